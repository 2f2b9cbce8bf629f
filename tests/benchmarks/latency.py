"""From IMDS serving a change to the subscriber having it: what lies in between adds to it.

The time that a change waits for the next poll does not count: it depends on the interval alone.
The bridge and the smallest loop of one's own run at the same time and take turns, one change each.
They poll ten times a second, which brings many changes in little time; and then, with fewer
changes, once a second, which is the bridge's default.
"""

import os
import statistics
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from bridge.simulator.simulator import Simulator
from tests.benchmarks.far_end import KINDS, Kind, announce, far_end
from tests.benchmarks.figures import Figure, Limit, ms
from tests.benchmarks.measure import PYTHON, bridge, running

TITLE: Final = "Added latency"
MAX_MS: Final = 5.0
"""The poll before it takes half a second on average."""
CHANGES: Final = 150
WARM_UP: Final = 10
INTERVAL: Final = "0.1"
DEFAULT_INTERVAL: Final = "1"
_COMMIT_BYTES: Final = 7 * 4096
"""SQLite's log takes about seven pages for a change."""


def measure(
    scratch: Path, *, changes: int = CHANGES, warm_up: int = WARM_UP, kinds: Sequence[Kind] = KINDS
) -> Any:
    """Milliseconds by destination and interval: median and 99th percentile of each of the two."""
    turns = [(INTERVAL, changes, warm_up), (DEFAULT_INTERVAL, changes // 8, 2)]
    return {
        kind if interval == INTERVAL else f"{kind} {interval} s": _contest(
            kind, scratch / f"latency-{kind}-{interval}", count, first, interval
        )
        for interval, count, first in turns
        for kind in kinds
        if count
    }


def _contest(
    kind: Kind, scratch: Path, changes: int, warm_up: int, interval: str
) -> dict[str, float]:
    scratch.mkdir()
    with ExitStack() as stack:
        far = stack.enter_context(far_end(kind, scratch))
        ours, bare = (stack.enter_context(Simulator()) for _ in range(2))
        variables = {**far.variables, "SEB_POLL_INTERVAL": interval}
        stack.enter_context(bridge(ours, scratch, scratch / "state", variables))
        loop = [PYTHON, "-m", "tests.benchmarks.bare_loop", bare.url, interval, kind, far.address]
        stack.enter_context(running(loop, scratch))
        times = [
            (announce(ours, far)[0], announce(bare, far)[0], _sync(scratch))
            for _ in range(warm_up + changes)
        ][warm_up:]
    return {
        **_summary("", [each for each, _, _ in times]),
        **_summary("bare_", [each for _, each, _ in times]),
        "sync_ms": round(statistics.median(each for _, _, each in times), 2),
    }


def _sync(scratch: Path) -> float:
    """The milliseconds of a write of a commit's size, synced, on the disk that the store is on."""
    with (scratch / "synced").open("ab") as file:
        started = time.perf_counter()
        file.write(bytes(_COMMIT_BYTES))
        file.flush()
        os.fdatasync(file.fileno())
        return 1000 * (time.perf_counter() - started)


def _summary(prefix: str, times: Sequence[float]) -> dict[str, float]:
    return {
        f"{prefix}median_ms": round(statistics.median(times), 2),
        f"{prefix}p99_ms": round(statistics.quantiles(times, n=100, method="inclusive")[98], 2),
    }


def figures(found: Any) -> list[Figure]:
    """The figures of each destination."""
    return [
        Figure(
            what=f"IMDS serves a change \u2192 {_RECEIVERS[kind]} has it"
            + (f", polled every {interval}" if interval else ""),
            ours=f"{ms(each['median_ms'])} median, {ms(each['p99_ms'])} p99",
            peer=f"{ms(each['bare_median_ms'])}, {ms(each['bare_p99_ms'])}: the small loop of "
            f"{_LOOPS[kind]}",
            ratio=each["median_ms"] / each["bare_median_ms"],
            limit=Limit(measured=each["median_ms"], unit="ms", at_most=MAX_MS),
            why=f"{ms(each['sync_ms'])} of it are the disk's, which the loop does without: a write "
            "of a commit's size, synced, measured beside them. The rest is the record's envelope, "
            f"its way into the store and out again, and one change of threads more{_MORE[kind]}",
        )
        for name, each in found.items()
        for kind, _, interval in [name.partition(" ")]
    ]


_LOOPS: Final = {
    "mqtt": "requests and paho-mqtt",
    "webhook": "requests alone",
    "eventhub": "requests and azure-eventhub",
}
_MORE: Final = {
    "mqtt": "",
    "webhook": "",
    "eventhub": "; and a message with a partition key and eleven properties, which the library "
    "encodes twice, once for its size",
}
_RECEIVERS: Final = {
    "mqtt": "an MQTT subscriber",
    "webhook": "a webhook's receiver",
    "eventhub": "the event hub",
}
