"""The records that sinks refused for good; only a person removes them."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from bridge.store.acknowledgements import Acknowledgements
from bridge.store.batch import COLUMNS, Batch, read_batch
from bridge.store.database import Store, StoreError
from wire.moment import rfc3339
from wire.record import BRIDGE_HEARTBEAT, EVENT_ENDED

DEAD_SHOWN: Final = 1_000
"""How many dead records a listing shows at most; the count is always complete."""

_NEWER_AGAIN: Final = (
    "INSERT OR IGNORE INTO dead (sink, sequence, time, reason, attempts, again) "
    "SELECT DISTINCT ?1, newer.sequence, newer.time, '', 0, 2 "
    "FROM dead JOIN records AS older ON older.sequence = dead.sequence "
    "JOIN acknowledged ON acknowledged.event = older.event AND acknowledged.sink = ?1 "
    "JOIN records AS newer ON newer.sequence = acknowledged.sequence "
    "WHERE dead.sink = ?1 AND dead.again AND newer.sequence > older.sequence"
)
"""Newer records of an event that a sink (parameter 1) gets again after an older one. They are not
dead: the sink has had them, perhaps as one of another kind.
"""

_END_AGAIN: Final = (
    "INSERT OR IGNORE INTO dead (sink, sequence, time, reason, attempts, again) "
    "SELECT DISTINCT ?1, over.sequence, over.time, '', 0, 2 "
    "FROM dead JOIN records AS older ON older.sequence = dead.sequence "
    "JOIN records AS over ON over.event = older.event "
    "WHERE dead.sink = ?1 AND dead.again AND over.type = ?2 "
    "AND over.sequence > older.sequence AND over.sequence <= ?3"
)
"""The end of an event, of this type (parameter 2), that was not for the sink when it moved past it
(parameter 3): it had refused the beginning, and is to get that now.
"""

_UNDONE: Final = (
    "UPDATE acknowledged SET sequence = 0 WHERE sink = ?1 AND EXISTS ("
    "SELECT 1 FROM dead JOIN records AS older ON older.sequence = dead.sequence "
    "WHERE dead.sink = ?1 AND dead.again AND older.event = acknowledged.event "
    "AND older.sequence < acknowledged.sequence)"
)
"""An older record may undo what the sink (parameter 1) did at a newer one: that counts as
acknowledged only once the sink has acknowledged it again."""

Write = Callable[[Callable[[sqlite3.Connection], object]], bool]
"""Makes a change, not synced; returns whether it is written."""


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

    def __init__(self, store: Store, acknowledged: Acknowledgements) -> None:
        self._store = store
        self._acknowledged = acknowledged
        self._lock = threading.Lock()
        self._again: set[str] = set()
        """Sinks that may have records to try again."""
        self._delivered: set[tuple[str, int]] = set()
        """Records that were delivered after all, when that could not be written."""

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
        self._acknowledged.write()
        with self._store.transaction() as connection:
            count = _change(connection, "UPDATE dead SET again = 1", sink, sequences)
            _follow(connection, sink)
            connection.execute(_END_AGAIN, (sink, EVENT_ENDED, ends_until))
        with self._lock:
            self._again.add(sink)
            self._delivered = {each for each in self._delivered if each[0] != sink}
        return count

    def follow(self, connection: sqlite3.Connection, sink: str) -> None:
        """Let what the sink has just acknowledged follow an older record of the same event that a
        person has let be tried again meanwhile, in the connection's transaction.
        """
        with self._lock:
            has_some = sink in self._again
        if has_some:
            _follow(connection, sink)

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
            delivered = {sequence for name, sequence in self._delivered if name == sink}
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
        if batch is not None:
            with self._lock:
                self._again.add(sink)
        return batch

    def note_delivered(self, sink: str, sequences: Sequence[int], write: Write) -> None:
        """Note that these records were delivered after all. Not synced: a power cut can only make
        them be delivered twice.
        """
        done = [(sink, sequence) for sequence in sequences]
        delete = "DELETE FROM dead WHERE sink = ? AND sequence = ?"
        if not write(lambda connection: connection.executemany(delete, done)):
            with self._lock:
                self._delivered.update(done)

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


def _follow(connection: sqlite3.Connection, sink: str) -> None:
    connection.execute(_NEWER_AGAIN, (sink,))
    connection.execute(_UNDONE, (sink,))


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
