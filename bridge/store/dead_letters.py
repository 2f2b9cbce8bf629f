"""The records that sinks refused for good; only a person removes them."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from bridge.store.batch import COLUMNS, Batch, read_batch
from bridge.store.database import Store, StoreError
from bridge.store.progress import Progress, let_newer_follow
from wire.moment import rfc3339
from wire.record import BRIDGE_HEARTBEAT, EVENT_ENDED

DEAD_SHOWN: Final = 1_000
"""How many dead records a listing shows at most; the count is always complete."""

_END_AGAIN: Final = (
    "INSERT OR IGNORE INTO dead (sink, sequence, time, reason, attempts, again) "
    "SELECT ?1, over.sequence, over.time, '', 0, 2 "
    "FROM (SELECT event, min(sequence) AS first FROM dead JOIN records USING (sequence) "
    "WHERE sink = ?1 AND again GROUP BY event) AS older "
    "JOIN records AS over ON over.event = older.event "
    "WHERE over.type = ?2 AND over.sequence > older.first AND over.sequence <= ?3"
)
"""The end of an event, of this type (parameter 2), that was not for the sink when it moved past it
(parameter 3): it had refused the beginning, and is to get that now.
"""


class DeadRecord(NamedTuple):
    """A record that a sink refused for good."""

    sink: str
    sequence: int
    record_id: str
    record_type: str
    time: str
    reason: str
    attempts: int


class DeadRecords:
    """The dead records of every sink. All methods may be called from any thread.

    The column `again` is 0 for a record that is dead, 1 for one that is tried again, and 2 for a
    newer record of its event that follows it: that one is not dead.
    """

    def __init__(self, store: Store, progress: Progress) -> None:
        self._store = store
        self._progress = progress
        self._lock = threading.Lock()
        self._again: set[str] = set()
        """Sinks that may have records to try again."""

    def reload(self) -> None:
        """Read which sinks have records to try again: of an earlier run, or of requests that came
        while this one started. Raises `StoreError`.
        """
        rows = self._store.read("SELECT DISTINCT sink FROM dead WHERE again")
        with self._lock:
            self._again |= {sink for (sink,) in rows}

    def shown(self, sink: str | None = None) -> list[DeadRecord]:
        """Return the records that sinks refused for good, the oldest first, at most
        `DEAD_SHOWN`.
        """
        rows = self._store.read(
            "SELECT dead.sink, sequence, id, type, dead.time, reason, attempts FROM dead "
            "JOIN records USING (sequence) WHERE again != 2 AND (?1 IS NULL OR dead.sink = ?1) "
            "ORDER BY dead.sink, sequence LIMIT ?2",
            (sink, DEAD_SHOWN),
        )
        return [DeadRecord(*row) for row in rows]

    def count(self, sink: str) -> int:
        """Return how many dead records a sink has. Raises `StoreError`."""
        ((count,),) = self._store.read(
            "SELECT count(*) FROM dead WHERE sink = ? AND again != 2", (sink,)
        )
        return int(count)

    def following(self, sink: str) -> list[str]:
        """Return the times of the records that a sink gets again after an older one of their event.
        Raises `StoreError`.
        """
        rows = self._store.read(
            "SELECT records.time FROM dead JOIN records USING (sequence) "
            "WHERE dead.sink = ? AND again = 2",
            (sink,),
        )
        return [time for (time,) in rows]

    def retry(self, sink: str, sequences: Sequence[int] | None, *, ends_until: int = 0) -> int:
        """Mark dead records of the sink, all or these, to be tried again; return how many.

        The newest record of the same event that the sink has had is delivered again after them, so
        that the last record that it gets of an ended event is the event's end. So is an end that it
        did not want, if its sequence is not above `ends_until`.
        """
        with self._progress.transaction() as connection:
            count = _change(connection, "UPDATE dead SET again = 1", sink, sequences)
            let_newer_follow(connection, sink)
            connection.execute(_END_AGAIN, (sink, EVENT_ENDED, ends_until))
        with self._lock:
            self._again.add(sink)
        return count

    def drop(self, sink: str, sequences: Sequence[int] | None) -> int:
        """Remove dead records of the sink, all or these; return how many."""
        with self._store.transaction() as connection:
            return _change(connection, "DELETE FROM dead", sink, sequences)

    def next(self, sink: str, limit: int) -> Batch | None:
        """Return the next records to try again; None, without a read, if there are none."""
        with self._lock:
            if sink not in self._again:
                return None
            # This comes before the read: otherwise a request that a person makes meanwhile is lost.
            self._again.discard(sink)
        delivered = self._progress.retried(sink)
        try:
            rows = self._store.read(
                f"SELECT {COLUMNS} FROM dead "  # noqa: S608  # the columns are ours
                "JOIN records USING (sequence) "
                "WHERE dead.sink = ? AND again ORDER BY sequence LIMIT ?",
                (sink, limit + len(delivered)),
            )
        except StoreError:
            with self._lock:
                self._again.add(sink)
            raise
        batch = read_batch([row for row in rows if row[0] not in delivered][:limit], again=True)
        if batch is not None or delivered:  # behind those a newer record may follow once written
            with self._lock:
                self._again.add(sink)
        return batch

    def add(
        self,
        connection: sqlite3.Connection,
        sink: str,
        sequence: int,
        *,
        reason: str,
        attempts: int,
        now: datetime,
        again: bool,
    ) -> None:
        """Mark a record as dead in the connection's transaction; `again`: it was dead before. Of
        heartbeats only the newest is kept.
        """
        connection.execute(
            "DELETE FROM dead WHERE sink = ?1 AND sequence < ?2 AND sequence IN ("
            "SELECT sequence FROM records WHERE type = ?3) AND EXISTS ("
            "SELECT 1 FROM records WHERE sequence = ?2 AND type = ?3)",
            (sink, sequence, BRIDGE_HEARTBEAT),
        )
        # Not if the record is gone (a newer heartbeat replaced it), nor if a person has dropped it
        # meanwhile.
        connection.execute(
            "INSERT OR REPLACE INTO dead (sink, sequence, time, reason, attempts, again) "
            "SELECT ?1, sequence, ?2, ?3, ?4, 0 FROM records WHERE sequence = ?5 AND "
            "(NOT ?6 OR EXISTS (SELECT 1 FROM dead WHERE dead.sink = ?1 AND dead.sequence = ?5))",
            (sink, rfc3339(now), reason, attempts, sequence, again),
        )


def _change(
    connection: sqlite3.Connection, change: str, sink: str, sequences: Sequence[int] | None
) -> int:
    """Change a sink's dead records, all or these; return how many changed."""
    change += " WHERE again != 2 AND sink = ?"
    if sequences is None:
        return connection.execute(change, (sink,)).rowcount
    return sum(
        connection.execute(f"{change} AND sequence = ?", (sink, each)).rowcount
        for each in sequences
        if abs(each) < 1 << 63  # SQLite holds no others
    )
