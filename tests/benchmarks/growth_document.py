"""How long a look at IMDS takes as its document grows: poller and store, synced, no network."""

import json
import statistics
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from support.documents.documents import LATER, NOT_BEFORE, entry
from support.imds.poller_bench import PollerBench

SIZES: Final = (1, 10, 100, 1000)
_LOOKS: Final = 3
_MIN_CHANGES: Final = 12
"""Changes that a cell of the grid is measured on, where one document has fewer."""


def measure(scratch: Path, *, sizes: Sequence[int] = SIZES, changes: int = 25) -> Any:
    """Milliseconds: per change by events and resources, and of one change among many events."""
    return {
        "per_change_ms": {
            str(events): {str(names): _per_change(scratch, events, names) for names in sizes}
            for events in sizes
        },
        "one_among": {str(events): _one_among(scratch, events, changes) for events in sizes},
    }


@contextmanager
def _bench(scratch: Path) -> Iterator[PollerBench]:
    bench = PollerBench(Path(tempfile.mkdtemp(dir=scratch)))
    try:
        yield bench
    finally:
        bench.close()


def _entries(events: int, names: int) -> list[dict[str, Any]]:
    resources = ["web_3", *(f"vm{number:03d}" for number in range(names - 1))]
    return [entry(str(uuid.uuid4()).upper(), resources=resources) for _ in range(events)]


def _body(entries: Sequence[dict[str, Any]], incarnation: int) -> bytes:
    document = {"DocumentIncarnation": incarnation, "Events": entries}
    return json.dumps(document, separators=(",", ":")).encode()


def _look(bench: PollerBench, body: bytes) -> float:
    """The milliseconds of one poll that finds this document."""
    bench.imds.said = body
    bench.clock.advance(1.0)
    started = time.perf_counter()
    good = bench.poller.run()
    lasted = 1000 * (time.perf_counter() - started)
    assert good
    return lasted


def _per_change(scratch: Path, events: int, names: int) -> float:
    """Milliseconds per record: all events come, and all go."""
    taken = []
    with _bench(scratch) as bench:
        _look(bench, _body([], 0))
        for number in range(max(_LOOKS, _MIN_CHANGES // (2 * events))):
            comes = _look(bench, _body(_entries(events, names), 2 * number + 1))
            goes = _look(bench, _body([], 2 * number + 2))
            taken.append((comes + goes) / (2 * events))
    return round(statistics.median(taken), 4)


def _one_among(scratch: Path, events: int, changes: int) -> dict[str, float]:
    """Milliseconds of a poll that finds one event moved among many, of one that finds the same
    bytes again, and of only reading the document's JSON.
    """
    moved, same, read = [], [], []
    with _bench(scratch) as bench:
        entries = _entries(events, 1)
        _look(bench, _body(entries, 1))
        for number in range(2, changes + 2):
            entries[0]["NotBefore"] = LATER if number % 2 else NOT_BEFORE
            body = _body(entries, number)
            started = time.perf_counter()
            json.loads(body)
            read.append(1000 * (time.perf_counter() - started))
            moved.append(_look(bench, body))
            same.append(_look(bench, body))
    return {
        "moved_ms": round(statistics.median(moved), 3),
        "same_ms": round(statistics.median(same), 3),
        "json_ms": round(statistics.median(read), 3),
        "bytes": len(body),
    }
