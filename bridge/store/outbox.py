"""The outbox: one cursor for each sink says how far it has come, and keeps the order."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from bridge.store.absences import NOT_MISSED_CONDITION, Absence, absences_of, reconcile
from bridge.store.batch import COLUMNS, Batch, read_batch
from bridge.store.database import Store
from bridge.store.dead_letters import DeadRecords
from bridge.store.progress import Progress, move_cursor
from bridge.store.recipient import UNKNOWN, Accepts, Recipient
from wire.record import EVENT_ENDED, RecordDraft

_WHOLE: Final = f"SELECT {COLUMNS} FROM records WHERE sequence > ? ORDER BY sequence LIMIT ?"  # noqa: S608  # our columns
"""The first query: nearly always the sink wants the records."""
_AHEAD: Final = (
    "SELECT sequence, type, affects FROM records INDEXED BY waiting "
    "WHERE sequence > ? ORDER BY sequence LIMIT ?"
)
"""The next queries: only the columns that decide whether a sink wants a record."""
_READ_AHEAD: Final = 1_000
"""How many records one read checks after a sink did not want the ones before."""
_WRITE_EVERY: Final = 256
"""After how many skipped records the cursor is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """The records that a sink has not acknowledged yet."""

    sink: str
    records: int
    oldest: str | None
    """Time of the oldest such record, RFC 3339."""
    dead: int


class Outbox:
    """The sinks' side of the store. All methods may be called from any thread."""

    def __init__(self, store: Store, recipients: Mapping[str, Recipient] | None = None) -> None:
        """`recipients`: the configured sinks by name, if `register` is not called."""
        self.recipients: Mapping[str, Recipient] = recipients or {}
        self._store = store
        self._lock = threading.Lock()
        self._cursors: dict[str, int] = {}
        self._written: dict[str, int] = {}
        self._absences: dict[str, list[Absence]] = {}
        self._progress = Progress(store)
        self.dead = DeadRecords(store, self._progress)

    def register(self, sinks: Mapping[str, Recipient]) -> dict[str, int]:
        """Set the configured sinks; return their cursors. A sink that is new, or was not configured
        in the previous run, gets the pending events, and the ends of the events that it knows.
        """
        self.recipients = sinks
        with self._store.transaction() as connection:
            reconcile(connection, sinks, head=self._store.head, wants=self._wants)
            kept = {
                name: cursor
                for name, cursor in connection.execute("SELECT name, cursor FROM sinks")
                if name in sinks
            }
            absences = absences_of(connection, sinks)
        with self._lock:
            self._cursors = dict(kept)
            self._written = dict(kept)
            self._absences = absences
        self.dead.reload()
        return kept

    def next(self, sink: str, limit: int) -> Batch | None:
        """Return the next records for the sink, in order; None if it has everything."""
        if batch := self.dead.next(sink, limit):
            return batch
        with self._lock:
            cursor = self._cursors[sink]
            absences = self._absences.get(sink, ())
        query = _WHOLE
        ahead = limit
        while cursor < (head := self._store.head):
            rows = self._store.read(query, (cursor, ahead))
            wanted = [
                row
                for row in rows
                if self._wants(sink, *row[:3]) and not self._is_hidden(sink, row[0], absences)
            ]
            end = rows[-1][0] if rows else head
            if wanted:
                end = end if len(wanted) <= limit else wanted[limit - 1][0]
                whole = wanted if query is _WHOLE else self._read(wanted[:limit])
                if batch := read_batch(whole, end=end):
                    return batch
            cursor = end
            query = _AHEAD
            ahead = _READ_AHEAD
            self._skip_unwanted(sink, cursor)
        return None

    def move_past(self, sink: str, batch: Batch, count: int | None = None) -> None:
        """Move the cursor past the first `count` records of a batch, or all of them. Not synced."""
        done = batch.records if count is None else batch.records[:count]
        if not done:
            return
        role = self.recipients[sink].role
        self._progress.note_delivered(sink, role, done, again=batch.again)
        if batch.again:
            self._progress.write()
        else:
            whole = len(done) == len(batch.records)
            self._advance(sink, batch.cursor if whole else done[-1].sequence)

    def mark_dead(
        self,
        sink: str,
        sequence: int,
        *,
        reason: str,
        attempts: int,
        now: datetime,
        again: bool = False,
        notice: RecordDraft | None = None,
    ) -> None:
        """Mark a record as dead, with its dead letter, and move past it. Raises `StoreError`.

        `again`: a person has let a dead record be tried again. Such a record is not in order: other
        records may wait before it.
        """

        def move(connection: sqlite3.Connection) -> None:
            self.dead.add(
                connection, sink, sequence, reason=reason, attempts=attempts, now=now, again=again
            )
            if not again:
                move_cursor(connection, sink, sequence)

        self._progress.commit([] if notice is None else [notice], also=move)
        if not again:
            with self._lock:
                self._cursors[sink] = max(self._cursors[sink], sequence)

    def retry(self, sink: str, sequences: Sequence[int] | None) -> int:
        """Let dead records of the sink, all or these, be tried again; return how many. Raises
        `StoreError`.
        """
        takes_ends = self._accepts(sink)(EVENT_ENDED, True)  # noqa: FBT003
        ends_until = self._cursor(sink) if takes_ends else 0
        return self.dead.retry(sink, sequences, ends_until=ends_until)

    def backlog(self, sink: str) -> Backlog:
        """Return the sink's backlog."""
        cursor = self._cursor(sink)
        rows = self._store.read(
            "SELECT type, affects, count(*), min(time) FROM records INDEXED BY waiting "  # noqa: S608  # our own words
            f"WHERE sequence > ?1 AND {NOT_MISSED_CONDITION} GROUP BY type, affects",
            (cursor, sink),
        )
        accepts = self._accepts(sink)
        waiting = [
            (count, oldest)
            for kind, concerns, count, oldest in rows
            if accepts(kind, None if concerns is None else bool(concerns))
        ]
        waiting += self._ends_of_others(sink, cursor)
        waiting += [(1, time) for time in self.dead.following(sink)]
        return Backlog(
            sink=sink,
            records=sum(count for count, _ in waiting),
            oldest=min((oldest for _, oldest in waiting), default=None),
            dead=self.dead.count(sink),
        )

    def _ends_of_others(self, sink: str, cursor: int) -> list[tuple[int, str]]:
        """Return how many ends of events of other VMs wait for a sink that leaves such events out
        now, with the oldest one's time; see `_wants`.
        """
        accepts = self._accepts(sink)
        if accepts(EVENT_ENDED, False) or not accepts(EVENT_ENDED, True):  # noqa: FBT003
            return []
        rows = self._store.read(
            "SELECT sequence, time FROM records "  # noqa: S608  # our own words
            f"WHERE sequence > ?1 AND type = ?3 AND affects = 0 AND {NOT_MISSED_CONDITION}",
            (cursor, sink, EVENT_ENDED),
        )
        times = [time for sequence, time in rows if self._wants(sink, sequence, EVENT_ENDED, 0)]
        return [(len(times), min(times))] if times else []

    def has_acknowledged(self, sink: str, event: str) -> bool:
        """Check whether the sink has acknowledged (not skipped) an event's newest record."""
        recipient = self.recipients.get(sink)
        if recipient is None:
            return False
        return self._progress.has_acknowledged(sink, recipient.role, event)

    def has_acknowledged_in_plain_role(self, sink: str, event: str) -> bool:
        """Check whether a sink that prepares has acknowledged an event's newest record in its plain
        role.
        """
        return self._progress.has_acknowledged(sink, self.recipients[sink].kind, event)

    def events_known_before(self, sink: str) -> list[str]:
        """Return the keys of the events whose start a sink that prepares may have got in its plain
        role, but not their end. Raises `StoreError`.
        """
        rows = self._store.read(
            "SELECT event FROM ends_owed JOIN acknowledged USING (sink, role, event) "
            "WHERE sink = ? AND role = ?",
            (sink, self.recipients[sink].kind),
        )
        return [event for (event,) in rows]

    def forget_events_known_before(self, sink: str) -> None:
        """Empty `events_known_before`: their ends are handled. Raises `StoreError`."""
        with self._store.transaction() as connection:
            connection.execute(
                "DELETE FROM ends_owed WHERE sink = ? AND role = ?",
                (sink, self.recipients[sink].kind),
            )

    def known_sinks(self) -> dict[str, bool]:
        """Return every sink that has a cursor, with whether it is configured now."""
        rows = self._store.read("SELECT name, active FROM sinks ORDER BY name", ())
        return {name: bool(active) for name, active in rows}

    def _wants(self, sink: str, sequence: int, kind: str, concerns: int | None) -> bool:
        """Check whether a record is for the sink. A sink that leaves out events of other VMs gets
        the end of such an event, if it got the event before it began to leave them out.
        """
        accepts = self._accepts(sink)
        if accepts(kind, None if concerns is None else bool(concerns)):
            return True
        if kind != EVENT_ENDED or concerns != 0 or not accepts(kind, True):  # noqa: FBT003
            return False
        return self._progress.may_have_received(sink, self.recipients[sink].role, sequence)

    def _is_hidden(self, sink: str, sequence: int, absences: Sequence[Absence]) -> bool:
        """Check whether an absence hides a record, or it is a catch-up record behind a newer one of
        its event, which a person has let be tried again meanwhile.
        """
        if any(absence.hides(sequence) for absence in absences):
            return True
        if not any(sequence in absence.catch_up for absence in absences):
            return False
        return self._progress.has_newer(sink, self.recipients[sink].role, sequence)

    def _cursor(self, sink: str) -> int:
        """Return the sink's cursor, also if no bridge runs that has registered it."""
        with self._lock:
            cursor = self._cursors.get(sink)
        if cursor is None:
            rows = self._store.read("SELECT cursor FROM sinks WHERE name = ?", (sink,))
            cursor = int(rows[0][0]) if rows else 0
        return cursor

    def _accepts(self, sink: str) -> Accepts:
        return self.recipients.get(sink, UNKNOWN).accepts

    def _read(self, rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Return these rows with all their columns. Heartbeats that were replaced meanwhile are
        missing.
        """
        marks = ",".join("?" * len(rows))
        return self._store.read(
            f"SELECT {COLUMNS} FROM records "  # noqa: S608  # our columns, and question marks
            f"WHERE sequence IN ({marks}) ORDER BY sequence",
            [row[0] for row in rows],
        )

    def _skip_unwanted(self, sink: str, cursor: int) -> None:
        """Move past records that the sink does not want; a restart may read some of them again."""
        with self._lock:
            self._cursors[sink] = max(self._cursors[sink], cursor)
            unwritten = cursor - self._written[sink]
        if unwritten >= _WRITE_EVERY:
            self._advance(sink, cursor)

    def _advance(self, sink: str, cursor: int) -> None:
        with self._lock:
            self._cursors[sink] = max(self._cursors[sink], cursor)
        self._progress.note_cursor(sink, cursor)
        # If the disk takes nothing now, the next write writes this too; until then a restart would
        # repeat these deliveries.
        if self._progress.write():
            with self._lock:
                self._written[sink] = max(self._written[sink], cursor)
