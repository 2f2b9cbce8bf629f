"""The records that sinks refused for good: shown, tried again, or forgotten when a person says so.

It never lets a refused record go by itself.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from bridge.store.batch import COLUMNS, Batch, read_batch
from bridge.store.database import Store
from sinks.record import BRIDGE_HEARTBEAT, rfc3339

DEAD_SHOWN: Final = 1_000
"""How many dead records a listing shows at most; the count is always whole."""

Write = Callable[[Callable[[sqlite3.Connection], object]], bool]
"""Makes a change, not synced; whether the disk took it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadRecord:
    """A record that a sink refused for good."""

    sink: str
    sequence: int
    record_id: str
    record_type: str
    time: str
    reason: str
    attempts: int


class DeadRecords:
    """The dead records of every sink. All methods may be called from any thread."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._again: set[str] = set()
        """The sinks that may have records to try again."""
        self._settled: set[tuple[str, int]] = set()
        """Records that were delivered after all, where the disk did not take that."""

    def look(self) -> None:
        """Find what was to be tried again before this start. Raises `StoreError`."""
        rows = self._store.read("SELECT DISTINCT sink FROM dead WHERE again")
        with self._lock:
            self._again = {sink for (sink,) in rows}

    def shown(self, sink: str | None = None) -> list[DeadRecord]:
        """The records that sinks refused for good, oldest first, at most `DEAD_SHOWN`."""
        rows = self._store.read(
            "SELECT dead.sink, sequence, id, type, dead.time, reason, attempts FROM dead "
            "JOIN records USING (sequence) WHERE ?1 IS NULL OR dead.sink = ?1 "
            "ORDER BY dead.sink, sequence LIMIT ?2",
            (sink, DEAD_SHOWN),
        )
        return [
            DeadRecord(
                sink=name,
                sequence=sequence,
                record_id=record_id,
                record_type=record_type,
                time=time,
                reason=reason,
                attempts=attempts,
            )
            for name, sequence, record_id, record_type, time, reason, attempts in rows
        ]

    def count(self, sink: str) -> int:
        """How many a sink has. Raises `StoreError`."""
        ((count,),) = self._store.read("SELECT count(*) FROM dead WHERE sink = ?", (sink,))
        return int(count)

    def retry(self, sink: str, sequences: Sequence[int] | None) -> int:
        """Have all of the sink's, or these, tried again; returns how many."""
        count = self._change("UPDATE dead SET again = 1", sink, sequences)
        with self._lock:
            self._again.add(sink)
            self._settled = {each for each in self._settled if each[0] != sink}
        return count

    def drop(self, sink: str, sequences: Sequence[int] | None) -> int:
        """Forget all of the sink's, or these; returns how many."""
        return self._change("DELETE FROM dead", sink, sequences)

    def next(self, sink: str, limit: int) -> Batch | None:
        """Those to try again next; None where there is none, which costs nothing."""
        with self._lock:
            if sink not in self._again:
                return None
            # Before the look, or what a person asks for meanwhile would be overlooked.
            self._again.discard(sink)
            settled = {sequence for name, sequence in self._settled if name == sink}
        rows = self._store.read(
            f"SELECT {COLUMNS} FROM dead "  # noqa: S608  # the columns are ours
            "JOIN records USING (sequence) "
            "WHERE dead.sink = ? AND again ORDER BY sequence LIMIT ?",
            (sink, limit + len(settled)),
        )
        batch = read_batch([row for row in rows if row[0] not in settled][:limit], again=True)
        if batch is not None:
            with self._lock:
                self._again.add(sink)
        return batch

    def settle(self, sink: str, sequences: Sequence[int], write: Write) -> None:
        """These were delivered after all. Not synced: a power cut repeats them at most."""
        done = [(sink, sequence) for sequence in sequences]
        delete = "DELETE FROM dead WHERE sink = ? AND sequence = ?"
        if not write(lambda connection: connection.executemany(delete, done)):
            with self._lock:
                self._settled.update(done)

    def add(
        self,
        connection: sqlite3.Connection,
        sink: str,
        sequence: int,
        *,
        reason: str,
        attempts: int,
        now: datetime,
    ) -> None:
        """Park a record, within the transaction of the connection.

        Of the heartbeats that a sink refuses, only the newest is kept: there is no end of them.
        """
        connection.execute(
            "DELETE FROM dead WHERE sink = ?1 AND sequence < ?2 AND sequence IN ("
            "SELECT sequence FROM records WHERE type = ?3) AND EXISTS ("
            "SELECT 1 FROM records WHERE sequence = ?2 AND type = ?3)",
            (sink, sequence, BRIDGE_HEARTBEAT),
        )
        # Not where the record has gone: a heartbeat that a newer one has replaced meanwhile. Nor
        # where a person has dropped it meanwhile, behind the cursor.
        connection.execute(
            "INSERT OR REPLACE INTO dead (sink, sequence, time, reason, attempts, again) "
            "SELECT ?1, sequence, ?2, ?3, ?4, 0 FROM records WHERE sequence = ?5 AND "
            "(EXISTS (SELECT 1 FROM dead WHERE dead.sink = ?1 AND dead.sequence = ?5) "
            "OR NOT EXISTS (SELECT 1 FROM sinks WHERE name = ?1 AND cursor >= ?5))",
            (sink, rfc3339(now), reason, attempts, sequence),
        )

    def _change(self, change: str, sink: str, sequences: Sequence[int] | None) -> int:
        with self._store.transaction() as connection:
            if sequences is None:
                return connection.execute(f"{change} WHERE sink = ?", (sink,)).rowcount
            return sum(
                connection.execute(
                    f"{change} WHERE sink = ? AND sequence = ?", (sink, each)
                ).rowcount
                for each in sequences
            )
