"""The outbox: which committed records each sink still has to get, and which it refused for good.

A sink's progress is one cursor, so that order is kept by construction. This module never sends.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from bridge.store import Store, StoreError
from sinks.record import EventRecord, RecordDraft, read_record, rfc3339

Accepts = Callable[[str, bool | None], bool]
"""Whether a sink wants a record of this type that affects this VM, or does not, or has no event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Records for one delivery, and where the cursor stands once they are delivered."""

    records: tuple[EventRecord, ...]
    cursor: int
    again: bool = False
    """Whether these are dead records that a person asked to try again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """What a sink still has to get."""

    sink: str
    records: int
    oldest: str | None
    """Time of the oldest such record, RFC 3339."""
    dead: int


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


class Outbox:
    """The sinks' side of the store. All methods may be called from any thread."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._cursors: dict[str, int] = {}
        self._again: set[str] = set()

    def register(self, names: Iterable[str]) -> dict[str, int]:
        """Name the configured sinks. Those that are gone no longer hold records back.

        A sink that is new here begins with the oldest record of an event that is still pending,
        so that it learns what is coming. Returns each sink's cursor. Raises `StoreError`.
        """
        wanted = list(names)
        with self._store.transaction() as connection:
            begin = self._begin_of_pending(connection)
            connection.execute("UPDATE sinks SET active = 0")
            connection.executemany(
                "INSERT INTO sinks (name, cursor, active) VALUES (?, ?, 1) "
                "ON CONFLICT (name) DO UPDATE SET active = 1",
                [(name, begin) for name in wanted],
            )
            kept = dict(connection.execute("SELECT name, cursor FROM sinks WHERE active"))
            again = connection.execute("SELECT DISTINCT sink FROM dead WHERE again").fetchall()
        with self._lock:
            self._cursors = kept
            self._again = {sink for (sink,) in again}
        return dict(kept)

    def next(self, sink: str, accepts: Accepts, limit: int) -> Batch | None:
        """The next records for the sink, in order; None where it has everything."""
        with self._lock:
            cursor, again = self._cursors[sink], sink in self._again
        if again and (batch := self._next_again(sink, limit)):
            return batch
        while cursor < self._store.head:
            rows = self._store.read(
                "SELECT sequence, type, affects, body FROM records "
                "WHERE sequence > ? ORDER BY sequence LIMIT ?",
                (cursor, limit),
            )
            wanted = [
                read_record(body)
                for _, kind, affects, body in rows
                if accepts(kind, None if affects is None else bool(affects))
            ]
            if wanted:
                return Batch(records=tuple(wanted), cursor=rows[-1][0])
            # What the sink does not want is passed over; a restart may pass over it again.
            cursor = rows[-1][0] if rows else self._store.head
            with self._lock:
                self._cursors[sink] = cursor
        return None

    def delivered(self, sink: str, batch: Batch, count: int | None = None) -> None:
        """Move past the first `count` records of a batch, or past all of it.

        Not synced: a power cut repeats at most these deliveries.
        """
        done = batch.records if count is None else batch.records[:count]
        if not done:
            return
        if batch.again:
            with self._store.transaction(durable=False) as connection:
                connection.executemany(
                    "DELETE FROM dead WHERE sink = ? AND sequence = ?",
                    [(sink, record.sequence) for record in done],
                )
            return
        self._advance(sink, batch.cursor if len(done) == len(batch.records) else done[-1].sequence)

    def park(
        self,
        sink: str,
        sequence: int,
        *,
        reason: str,
        attempts: int,
        now: datetime,
        notice: RecordDraft | None = None,
    ) -> None:
        """Park a record as dead for the sink and move past it, with the record that says so.

        Raises `StoreError`.
        """

        def move(connection: sqlite3.Connection) -> None:
            connection.execute(
                "INSERT OR REPLACE INTO dead (sink, sequence, time, reason, attempts, again) "
                "VALUES (?, ?, ?, ?, ?, 0)",
                (sink, sequence, rfc3339(now), reason, attempts),
            )
            connection.execute(
                "UPDATE sinks SET cursor = max(cursor, ?) WHERE name = ?", (sequence, sink)
            )

        self._store.commit([] if notice is None else [notice], also=move)
        with self._lock:
            self._cursors[sink] = max(self._cursors[sink], sequence)

    def backlog(self, sink: str, accepts: Accepts) -> Backlog:
        """How much the sink still has to get."""
        with self._lock:
            cursor = self._cursors.get(sink)
        if cursor is None:
            rows = self._store.read("SELECT cursor FROM sinks WHERE name = ?", (sink,))
            cursor = rows[0][0] if rows else 0
        rows = self._store.read(
            "SELECT type, affects, count(*), min(time) FROM records WHERE sequence > ? "
            "GROUP BY type, affects",
            (cursor,),
        )
        waiting = [
            (count, oldest)
            for kind, affects, count, oldest in rows
            if accepts(kind, None if affects is None else bool(affects))
        ]
        ((dead,),) = self._store.read("SELECT count(*) FROM dead WHERE sink = ?", (sink,))
        return Backlog(
            sink=sink,
            records=sum(count for count, _ in waiting),
            oldest=min((oldest for _, oldest in waiting), default=None),
            dead=dead,
        )

    def known_sinks(self) -> dict[str, bool]:
        """Every sink that the store has a cursor of, and whether it is configured now."""
        rows = self._store.read("SELECT name, active FROM sinks ORDER BY name", ())
        return {name: bool(active) for name, active in rows}

    def dead(self, sink: str | None = None) -> list[DeadRecord]:
        """The records that sinks refused for good, oldest first."""
        rows = self._store.read(
            "SELECT dead.sink, dead.sequence, body, dead.time, reason, attempts FROM dead "
            "JOIN records USING (sequence) WHERE ? IS NULL OR dead.sink = ? "
            "ORDER BY dead.sink, dead.sequence",
            (sink, sink),
        )
        return [
            DeadRecord(
                sink=name,
                sequence=sequence,
                record_id=(record := read_record(body)).id,
                record_type=record.type,
                time=time,
                reason=reason,
                attempts=attempts,
            )
            for name, sequence, body, time, reason, attempts in rows
        ]

    def retry(self, sink: str, sequences: Sequence[int] | None = None) -> int:
        """Have dead records tried again, all of the sink's or these; returns how many."""
        count = self._change_dead("UPDATE dead SET again = 1", sink, sequences)
        with self._lock:
            self._again.add(sink)
        return count

    def drop(self, sink: str, sequences: Sequence[int] | None = None) -> int:
        """Forget dead records, all of the sink's or these; returns how many."""
        return self._change_dead("DELETE FROM dead", sink, sequences)

    def _change_dead(self, change: str, sink: str, sequences: Sequence[int] | None) -> int:
        with self._store.transaction() as connection:
            if sequences is None:
                return connection.execute(f"{change} WHERE sink = ?", (sink,)).rowcount
            return sum(
                connection.execute(
                    f"{change} WHERE sink = ? AND sequence = ?", (sink, each)
                ).rowcount
                for each in sequences
            )

    def _next_again(self, sink: str, limit: int) -> Batch | None:
        rows = self._store.read(
            "SELECT body FROM dead JOIN records USING (sequence) "
            "WHERE dead.sink = ? AND again ORDER BY sequence LIMIT ?",
            (sink, limit),
        )
        if not rows:
            with self._lock:
                self._again.discard(sink)
            return None
        records = tuple(read_record(body) for (body,) in rows)
        return Batch(records=records, cursor=records[-1].sequence, again=True)

    def _advance(self, sink: str, cursor: int) -> None:
        with self._lock:
            self._cursors[sink] = max(self._cursors[sink], cursor)
        # Where the disk takes nothing just now, the next move writes this one too; until then a
        # restart would repeat these deliveries, and not to move on would repeat them for certain.
        with suppress(StoreError), self._store.transaction(durable=False) as connection:
            connection.execute(
                "UPDATE sinks SET cursor = max(cursor, ?) WHERE name = ?", (cursor, sink)
            )

    def _begin_of_pending(self, connection: sqlite3.Connection) -> int:
        """The cursor just before the oldest kept record of an event that is pending."""
        (oldest,) = connection.execute(
            "SELECT min(sequence) FROM records "
            "WHERE event IN (SELECT key FROM events WHERE pending)"
        ).fetchone()
        return self._store.head if oldest is None else int(oldest) - 1
