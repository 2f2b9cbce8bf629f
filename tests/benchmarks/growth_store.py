"""How long the store takes as it grows: with records that every sink has, and with a backlog.

The rows are written by SQL here, because a bridge would need days for a million changes.
"""

import os
import shutil
import sqlite3
import statistics
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from bridge.store.batch import Batch
from bridge.store.opening import FILE_NAME, open_store
from bridge.store.outbox import Outbox
from bridge.store.recipient import Recipient
from sinks.samples import sample_record
from tests.benchmarks.drain import draft

SIZES: Final = (0, 1000, 100_000, 1_000_000)
TURNS: Final = 5
"""The sizes take turns: a disk that has just taken two gigabytes is slow to sync for a while."""
SINK: Final = "sink"
BYTES_A_RECORD: Final = 2300
"""On disk, with its part of the indexes; measured."""
_PLACE: Final = b"00000000000000000001"
_BEGIN: Final = 10_000_000
"""Numbers of the drafts that are committed while it is measured, far from those of the rows."""


def measure(scratch: Path, *, sizes: Sequence[int] = SIZES, changes: int = 40) -> Any:
    """Milliseconds of each step, by the number of records, delivered or not."""
    stores = {size: scratch / f"store-{size}" for size in sizes}
    for size, directory in list(stores.items()):
        if shutil.disk_usage(scratch).free < 2 * BYTES_A_RECORD * size:
            del stores[size]  # the page says which sizes it has
        else:
            fill(directory, size)
    found: dict[str, Any] = {}
    for state in ("waiting", "delivered"):
        taken: dict[int, list[dict[str, float]]] = {size: [] for size in stores}
        for _ in range(TURNS):
            for size, directory in stores.items():
                delivered = size if state == "delivered" else 0
                taken[size].append(_steps(directory, changes, delivered=delivered))
        found[state] = {str(size): _medians(turns) for size, turns in taken.items()}
    for directory in stores.values():
        shutil.rmtree(directory)
    return found


def _medians(turns: Sequence[dict[str, float]]) -> dict[str, float]:
    return {step: round(statistics.median(each[step] for each in turns), 3) for step in turns[0]}


def fill(directory: Path, count: int) -> None:
    """A store with so many records, and one sink that has none of them."""
    now = datetime.now(UTC)
    store, _ = open_store(directory, now)
    Outbox(store).register({SINK: Recipient(kind="test")})
    (first,) = store.commit([draft(1, now)])
    (row,) = store.read("SELECT id, type, time, affects, body FROM records")
    store.commit(meta={"sequence": str(count), "record_sequence": str(count)})
    store.close()
    connection = sqlite3.connect(directory / FILE_NAME, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode=OFF")
        connection.execute("PRAGMA synchronous=OFF")
        connection.execute("BEGIN")
        connection.execute("DELETE FROM records")
        connection.executemany(
            "INSERT INTO records (sequence, id, type, time, event, affects, crc, body) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            _rows(row, first.body, count),
        )
        connection.execute("COMMIT")
        connection.execute("PRAGMA journal_mode=WAL")
    finally:
        connection.close()
    # Else the disk is still busy with all of it while commits are measured.
    with (directory / FILE_NAME).open("rb+") as file:
        os.fsync(file.fileno())


def _rows(row: tuple[Any, ...], body: bytes, count: int) -> Iterator[tuple[Any, ...]]:
    record_id, kind, moment, concerns, _ = row
    head, _, tail = body.partition(_PLACE)
    for number in range(1, count + 1):
        written = head + b"%020d" % number + tail
        # A few records to an event, as in life.
        event = f"{number // 4:036d}"
        yield number, record_id, kind, moment, event, concerns, zlib.crc32(written), written


def _steps(directory: Path, changes: int, *, delivered: int = 0) -> dict[str, float]:
    now = datetime.now(UTC)
    started = time.perf_counter()
    store, _ = open_store(directory, now)
    opened = time.perf_counter() - started
    try:
        outbox = Outbox(store)
        outbox.register({SINK: Recipient(kind="test")})
        if delivered:
            outbox.move_past(SINK, Batch(records=(sample_record(),), cursor=delivered))
        drafts = [draft(_BEGIN + number, now) for number in range(changes)]
        return {
            "open_ms": round(1000 * opened, 1),
            "commit_ms": _median(lambda number: store.commit([drafts[number]]), changes),
            "deliver_ms": _median(lambda _: _take(outbox), changes),
            "backlog_ms": _median(lambda _: outbox.backlog(SINK), 1),
            "mib": round((directory / FILE_NAME).stat().st_size / 2**20, 1),
        }
    finally:
        store.close()


def _take(outbox: Outbox) -> None:
    """What a delivery costs beside the sending."""
    batch = outbox.next(SINK, 1)
    assert batch is not None
    outbox.move_past(SINK, batch)


def _median(work: Callable[[int], object], times: int) -> float:
    taken = []
    for number in range(times):
        started = time.perf_counter()
        work(number)
        taken.append(1000 * (time.perf_counter() - started))
    return round(statistics.median(taken), 3)
