"""Records a second, from the first of a backlog that arrives to the last.

The bridge as a process, with the backlog on its disk, against the raw library with the same bytes
in its memory, in turns.
"""

import shutil
import statistics
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from bridge.simulator.simulator import Simulator
from bridge.store.opening import open_store
from bridge.store.outbox import Outbox
from bridge.store.recipient import Recipient
from sinks.samples import sample_record
from tests.benchmarks.far_end import KINDS, LIBRARIES, Kind, MeasuredEnd, far_end
from tests.benchmarks.figures import Figure, Limit
from tests.benchmarks.measure import PYTHON, bridge, running
from wire.record import Record, RecordDraft

TITLE: Final = "Draining a backlog"
MIN_A_SECOND: Final[Mapping[Kind, int]] = {"mqtt": 3000}
RECORDS: Final[Mapping[Kind, int]] = {"mqtt": 20_000, "webhook": 2500, "eventhub": 10_000}
ROUNDS: Final = 5
_MARK: Final = '"type":"seb.event.'
_CHUNK: Final = 1000


def measure(
    scratch: Path,
    *,
    records: Mapping[Kind, int] = RECORDS,
    rounds: int = ROUNDS,
    kinds: Sequence[Kind] = KINDS,
) -> Any:
    """Records a second by destination: medians of the rounds, of each of the two."""
    return {
        kind: _contest(kind, scratch / f"drain-{kind}", records[kind], rounds) for kind in kinds
    }


def _contest(kind: Kind, scratch: Path, count: int, rounds: int) -> dict[str, float]:
    scratch.mkdir()
    backlog = make_backlog(scratch / "backlog", count, sink=kind)
    bodies = scratch / "bodies"
    bodies.write_bytes(b"\n".join(record.body for record in backlog))
    ours, bare = [], []
    with far_end(kind, scratch) as far:
        for number in range(rounds):
            ours.append(_bridge(far, scratch, scratch / f"state-{number}", count))
            bare.append(_raw(far, scratch, bodies, count))
    return {
        "records": count,
        "bytes": len(backlog[0].body),
        "per_second": round(statistics.median(ours)),
        "bare_per_second": round(statistics.median(bare)),
    }


def make_backlog(directory: Path, count: int, *, sink: str) -> list[Record]:
    """A store with so many records that the sink still has to get; the records."""
    now = datetime.now(UTC)
    store, _ = open_store(directory, now)
    try:
        Outbox(store).register({sink: Recipient(kind="test")})
        made: list[Record] = []
        for start in range(0, count, _CHUNK):
            drafts = [draft(n, now) for n in range(start + 1, min(start + _CHUNK, count) + 1)]
            made += store.commit(drafts)
        return made
    finally:
        store.close()


def draft(number: int, now: datetime) -> RecordDraft:
    """A record about an event, as it is before the store gives it its place."""
    record = sample_record(number)
    return RecordDraft(
        type=record.type,
        source=record.source,
        subject=record.subject,
        time=now,
        partition_key=record.partition_key,
        data=record.data,
        id=record.id,
    )


def _bridge(far: MeasuredEnd, scratch: Path, state: Path, count: int) -> float:
    shutil.copytree(scratch / "backlog", state)
    with Simulator() as simulator, bridge(simulator, scratch, state, far.variables):
        first, last = far.find(_MARK, count=count)
    return (count - 1) / (last - first)


def _raw(far: MeasuredEnd, scratch: Path, bodies: Path, count: int) -> float:
    command = [PYTHON, "-m", "tests.benchmarks.bare_drain", far.kind, far.address, str(bodies)]
    with running(command, scratch, may_end=True):
        first, last = far.find(_MARK, count=count)
    return (count - 1) / (last - first)


def figures(found: Any) -> list[Figure]:
    """The figures of each destination."""
    return [
        Figure(
            what=f"{each['records']} records of {each['bytes']} bytes to {_PLACES[kind]}",
            ours=f"{each['per_second']} records a second",
            peer=f"{each['bare_per_second']} with {LIBRARIES[kind]} alone",
            ratio=each["per_second"] / each["bare_per_second"],
            limit=_limit(kind, each["per_second"]),
            why=_WHY[kind],
        )
        for kind, each in found.items()
    ]


def _limit(kind: Kind, per_second: float) -> Limit | None:
    if kind not in MIN_A_SECOND:
        return None
    return Limit(measured=per_second, unit="records a second", at_least=MIN_A_SECOND[kind])


_WHY: Final = {
    "mqtt": "each record is read from disk, its checksum and envelope are checked, and what is "
    "acknowledged is written down, by the same interpreter that sends; the library alone has all "
    "in memory. The broker allows 20 messages in flight, so both sides wait for it as often",
    "webhook": "each record is read from disk, posted, and marked as delivered before the next, "
    "because order is kept and a crash is to repeat at most one",
    "eventhub": "each record is read from disk, and its checksum and envelope are checked, by the "
    "same interpreter that sends; the library alone has all in memory",
}
_PLACES: Final = {
    "mqtt": "an MQTT broker, QoS 1",
    "webhook": "a webhook, one at a time",
    "eventhub": "an event hub, in batches of 100",
}
