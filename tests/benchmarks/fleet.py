"""Connections and messages of a fleet: at its start, at one event of the whole group, and when the
broker has been restarted.

Each VM is the bridge's own worker with its own MQTT sink, on threads of a few processes. Everything
that a fleet would spread over time is done at once here, for that is what a broker has to bear.
"""

import json
import resource
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from support.mqtt.mosquitto import Mosquitto

from tests.benchmarks.figures import Figure, bars, bullets, growth, table
from tests.benchmarks.fleet_estimate import (
    SOURCES,
    broker_lines,
    hub_lines,
    message_bytes,
    wave_line,
)
from tests.benchmarks.measure import child

TITLE: Final = "A fleet at one broker"
SIZES: Final = (1, 10, 100, 1000)
AWAY_SECONDS: Final = (0.5, 10.0)
MAX_IN_A_SECOND: Final = 0.33
"""The largest part of a fleet that may be back within the same second."""
_FLEET: Final = 100
_VMS_A_PROCESS: Final = 125  # select(), in paho, takes no descriptor above 1023
_DESCRIPTORS: Final = 8
"""Descriptors a VM takes at most, in its process and at the broker."""
_PATIENCE: Final = 120.0
_LOOK_SECONDS: Final = 0.25

Notes = list[tuple[float, str]]


@dataclass(frozen=True, slots=True)
class _Fleet:
    """The processes that the VMs live in."""

    processes: Sequence[subprocess.Popen[str]]
    size: int

    def order(self, word: str) -> None:
        for process in self.processes:
            assert process.stdin
            process.stdin.write(f"{word}\n")
            process.stdin.flush()

    def until(self, **wanted: int) -> Notes:
        """What happened until so many notes of each kind are there. Raises `TimeoutError`."""
        notes: Notes = []
        deadline = time.monotonic() + _PATIENCE
        while True:
            self.order("report")
            for process in self.processes:
                assert process.stdout
                notes += json.loads(process.stdout.readline())
            found = Counter(what for _, what in notes)
            if all(found[what] >= count for what, count in wanted.items()):
                return sorted(notes)
            if time.monotonic() > deadline:
                raise TimeoutError(f"{wanted} wanted, {dict(found)} came")
            time.sleep(_LOOK_SECONDS)


def measure(
    scratch: Path, *, sizes: Sequence[int] = SIZES, away: Sequence[float] = AWAY_SECONDS
) -> Any:
    """By size of the fleet: what a start, an event and a restart of the broker bring."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max(soft, min(hard, _DESCRIPTORS * max(sizes) + 100))
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))  # the broker and the VMs inherit it
    return {
        "bytes": message_bytes(),
        "sizes": {str(size): _life(scratch / f"fleet-{size}", size, away) for size in sizes},
    }


def _life(scratch: Path, size: int, away: Sequence[float]) -> Any:
    # What Mosquitto logs of each packet would cost it more than the packet.
    quiet = ["log_type none"]
    with Mosquitto(scratch, extra=quiet) as broker, _fleet(broker.port, size, scratch) as fleet:
        begun = time.monotonic()
        fleet.order("start")
        started = fleet.until(opened=size, delivered=size, shown=size)
        called = time.monotonic()
        fleet.order("event")
        told = fleet.until(delivered=size, shown=size)
        returns = {f"{seconds:g}": _return(broker, fleet, seconds) for seconds in away}
    return {
        "start": _summary(started, begun),
        "event": _summary(told, called),
        "return": returns,
    }


def _return(broker: Mosquitto, fleet: _Fleet, away: float) -> Any:
    """The broker is restarted, and every VM comes back."""
    broker.stop()
    time.sleep(away)
    back = time.monotonic()
    broker.start()
    notes = fleet.until(opened=fleet.size, shown=fleet.size)
    return {**_summary(notes, back), "histogram": _histogram(notes, back)}


@contextmanager
def _fleet(port: int, size: int, scratch: Path) -> Iterator[_Fleet]:
    with ExitStack() as stack:
        processes = [
            stack.enter_context(
                child("fleet_vms", port, first, min(_VMS_A_PROCESS, size - first), scratch=scratch)
            )
            for first in range(0, size, _VMS_A_PROCESS)
        ]
        for process in processes:
            assert process.stdout
            process.stdout.readline()
        yield _Fleet(processes, size)


def _summary(notes: Notes, begun: float) -> dict[str, float]:
    """Connections and messages: how many, in how long, and in the busiest second."""
    since = [(moment - begun, what) for moment, what in notes if moment >= begun]
    opened = [moment for moment, what in since if what == "opened"]
    # An `open` says that the bridge is online; the others are a message each.
    sent = [moment for moment, what in since if what in ("opened", "delivered", "shown")]
    return {
        "connections": len(opened),
        "tries": sum(1 for _, what in since if what == "tried"),
        "messages": len(sent),
        "seconds": round(max(sent), 3),
        "connections_in_busiest_second": _busiest(opened),
        "messages_in_busiest_second": _busiest(sent),
    }


def _busiest(moments: Sequence[float]) -> int:
    """The most moments that lie within one second, wherever it begins."""
    ordered, most, start = sorted(moments), 0, 0
    for place, moment in enumerate(ordered):
        while ordered[start] <= moment - 1.0:
            start += 1
        most = max(most, place - start + 1)
    return most


def _histogram(notes: Notes, begun: float) -> list[int]:
    """How many VMs were back in each second after the broker was."""
    seconds = Counter(int(at - begun) for at, what in notes if what == "opened" and at >= begun)
    return [seconds[number] for number in range(max(seconds) + 1)]


def figures(found: Any) -> list[Figure]:
    """How much of a fleet comes back at once; a few VMs are no fleet."""
    return [
        growth(
            what=f"{size} VMs return to a broker that was away for {away} s",
            ours=f"{back['connections_in_busiest_second']} in the busiest second, all within "
            f"{back['seconds']:.1f} s",
            peer=f"{size} at once, without jitter",
            ratio=back["connections_in_busiest_second"] / int(size),
            at_most=MAX_IN_A_SECOND,
            why="an idle sink looks after its connection every five seconds, and the first wait "
            "after a failure is up to one second: VMs whose sinks were last busy at the same "
            "moment, here by an event of the whole group, notice together what was away for less "
            "than that, and are back within a second of each other",
        )
        for size, each in found["sizes"].items()
        if int(size) >= _FLEET
        for away, back in each["return"].items()
    ]


def notes(found: Any) -> Iterator[str]:
    """What was counted, the histogram of the returns, and the reckoning for a million."""
    yield (
        "Start and event are worst cases: every VM at the same moment, on cores that the VMs share "
        "with the broker.\n"
    )
    rows = [
        (size, phase, *(f"{each[phase][key]:g}" for key in _COLUMNS))
        for size, each in found["sizes"].items()
        for phase in ("start", "event")
    ]
    rows += [
        (size, f"return, away {away} s", *(f"{back[key]:g}" for key in _COLUMNS))
        for size, each in found["sizes"].items()
        for away, back in each["return"].items()
    ]
    yield table(("VMs", "phase", *_COLUMNS.values()), rows)
    largest, most = list(found["sizes"].items())[-1]
    for away, back in most["return"].items():
        yield f"VMs back in each second after the broker, {largest} VMs, away {away} s:\n"
        yield "```text\n" + bars(back["histogram"]) + "```\n"
    yield "### On paper: a million VMs\n"
    yield "**Event Hubs**\n"
    yield bullets(hub_lines(found["bytes"]))
    yield "**An MQTT cluster**\n"
    away, back = list(most["return"].items())[-1]
    share = back["connections_in_busiest_second"] / int(largest)
    wave = wave_line(share, back["seconds"], away)
    yield bullets([*broker_lines(found["bytes"]), wave])
    yield "Sources of the limits:\n"
    yield bullets(SOURCES)


_COLUMNS: Final = {
    "connections": "connections",
    "messages": "messages",
    "seconds": "seconds",
    "connections_in_busiest_second": "connections in the busiest second",
    "messages_in_busiest_second": "messages in the busiest second",
}
