"""The outbox: each sink's progress is one cursor, which keeps the order."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from bridge.store.acknowledged import Acknowledged
from bridge.store.batch import COLUMNS, Batch, read_batch
from bridge.store.database import Store
from bridge.store.dead_letters import DeadRecords
from sinks.record import RecordDraft

Accepts = Callable[[str, bool | None], bool]
"""Whether a sink wants a record of a type, whose event affects this VM or not (None: no event)."""


_WHOLE: Final = f"SELECT {COLUMNS} FROM records WHERE sequence > ? ORDER BY sequence LIMIT ?"  # noqa: S608  # our columns
"""What is read first: nearly always the sink wants it."""
_AHEAD: Final = (
    "SELECT sequence, type, affects FROM records INDEXED BY waiting "
    "WHERE sequence > ? ORDER BY sequence LIMIT ?"
)
"""What is read from then on: the columns by which a sink chooses."""
_LOOK_AHEAD: Final = 1_000
"""How many records one read looks at after a sink did not want those before."""
_WRITE_EVERY: Final = 256
"""How many unwanted records are passed over before that is written down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipient:
    """A configured sink as the outbox knows it."""

    kind: str
    """An acknowledgement of another kind of sink under this name does not count."""
    accepts: Accepts = lambda *_: True


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """What a sink still has to get."""

    sink: str
    records: int
    oldest: str | None
    """Time of the oldest such record, RFC 3339."""
    dead: int


_UNKNOWN: Final = Recipient(kind="")


class Outbox:
    """The sinks' side of the store. All methods may be called from any thread."""

    def __init__(self, store: Store, recipients: Mapping[str, Recipient] | None = None) -> None:
        """`recipients`: the configured sinks by name, if `register` is not called."""
        self.recipients: Mapping[str, Recipient] = recipients or {}
        self._store = store
        self._lock = threading.Lock()
        self._cursors: dict[str, int] = {}
        self._written: dict[str, int] = {}
        self._acknowledged = Acknowledged(store)
        self.dead = DeadRecords(store)

    def register(self, sinks: Mapping[str, Recipient]) -> dict[str, int]:
        """Name the configured sinks; a new one begins with what is pending. Returns the cursors."""
        before: dict[str, int] = dict(self._store.read("SELECT name, cursor FROM sinks"))
        begin = self._begin_of_pending()
        kept = {name: before.get(name, begin) for name in sinks}

        def put(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM sinks")
            connection.executemany(
                "INSERT INTO sinks (name, cursor, active) VALUES (?, ?, ?)",
                [(name, cursor, name in kept) for name, cursor in {**before, **kept}.items()],
            )

        self._store.commit(also=put)
        with self._lock:
            self._cursors, self._written, self.recipients = dict(kept), dict(kept), sinks
        self.dead.look()
        return kept

    def next(self, sink: str, limit: int) -> Batch | None:
        """The next records for the sink, in order; None if it has everything."""
        if batch := self.dead.next(sink, limit):
            return batch
        with self._lock:
            cursor = self._cursors[sink]
        accepts, query, ahead = self._accepts(sink), _WHOLE, limit
        while cursor < (head := self._store.head):
            rows = self._store.read(query, (cursor, ahead))
            wanted = [
                row for row in rows if accepts(row[1], None if row[2] is None else bool(row[2]))
            ]
            end = rows[-1][0] if rows else head
            if wanted:
                end = end if len(wanted) <= limit else wanted[limit - 1][0]
                whole = wanted if query is _WHOLE else self._read(wanted[:limit])
                if batch := read_batch(whole, end=end):
                    return batch
            cursor, query, ahead = end, _AHEAD, _LOOK_AHEAD
            self._pass_over(sink, cursor)
        return None

    def delivered(self, sink: str, batch: Batch, count: int | None = None) -> None:
        """Move past the first `count` records of a batch, or all. Not synced."""
        done = batch.records if count is None else batch.records[:count]
        if not done:
            return
        self._acknowledged.note(sink, self.recipients[sink].kind, done)
        if batch.again:
            sequences = [record.sequence for record in done]
            self.dead.settle(sink, sequences, self._acknowledged.write)
        else:
            whole = len(done) == len(batch.records)
            self._advance(sink, batch.cursor if whole else done[-1].sequence)

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
        """Park a record as dead and move past it, with its dead letter. Raises `StoreError`."""

        def move(connection: sqlite3.Connection) -> None:
            self.dead.add(connection, sink, sequence, reason=reason, attempts=attempts, now=now)
            _move(connection, sink, sequence)

        self._store.commit([] if notice is None else [notice], also=move)
        with self._lock:
            self._cursors[sink] = max(self._cursors[sink], sequence)

    def backlog(self, sink: str) -> Backlog:
        """How much the sink still has to get."""
        with self._lock:
            cursor = self._cursors.get(sink)
        if cursor is None:
            rows = self._store.read("SELECT cursor FROM sinks WHERE name = ?", (sink,))
            cursor = rows[0][0] if rows else 0
        rows = self._store.read(
            "SELECT type, affects, count(*), min(time) FROM records INDEXED BY waiting "
            "WHERE sequence > ? GROUP BY type, affects",
            (cursor,),
        )
        accepts = self._accepts(sink)
        waiting = [
            (count, oldest)
            for kind, affects, count, oldest in rows
            if accepts(kind, None if affects is None else bool(affects))
        ]
        return Backlog(
            sink=sink,
            records=sum(count for count, _ in waiting),
            oldest=min((oldest for _, oldest in waiting), default=None),
            dead=self.dead.count(sink),
        )

    def acknowledged(self, sink: str, event: str) -> bool:
        """Whether the sink has acknowledged (not passed over) an event's newest record."""
        recipient = self.recipients.get(sink)
        return recipient is not None and self._acknowledged.has(sink, recipient.kind, event)

    def known_sinks(self) -> dict[str, bool]:
        """Every sink that has a cursor, and whether it is configured now."""
        rows = self._store.read("SELECT name, active FROM sinks ORDER BY name", ())
        return {name: bool(active) for name, active in rows}

    def _accepts(self, sink: str) -> Accepts:
        return self.recipients.get(sink, _UNKNOWN).accepts

    def _read(self, rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """The whole rows; some may be gone: heartbeats that have been replaced."""
        marks = ",".join("?" * len(rows))
        return self._store.read(
            f"SELECT {COLUMNS} FROM records "  # noqa: S608  # our columns, and question marks
            f"WHERE sequence IN ({marks}) ORDER BY sequence",
            [row[0] for row in rows],
        )

    def _pass_over(self, sink: str, cursor: int) -> None:
        """Move past records that are not wanted; a restart may pass over some again."""
        with self._lock:
            self._cursors[sink] = max(self._cursors[sink], cursor)
            unwritten = cursor - self._written[sink]
        if unwritten >= _WRITE_EVERY:
            self._advance(sink, cursor)

    def _advance(self, sink: str, cursor: int) -> None:
        with self._lock:
            self._cursors[sink] = max(self._cursors[sink], cursor)
        # If the disk takes nothing now, the next move writes this one too; until then a restart
        # would repeat these deliveries.
        if self._acknowledged.write(lambda connection: _move(connection, sink, cursor)):
            with self._lock:
                self._written[sink] = max(self._written[sink], cursor)

    def _begin_of_pending(self) -> int:
        """The cursor just before the oldest record of a pending event."""
        ((oldest,),) = self._store.read(
            "SELECT min(sequence) FROM records "
            "WHERE event IN (SELECT key FROM events WHERE pending)"
        )
        return self._store.head if oldest is None else int(oldest) - 1


def _move(connection: sqlite3.Connection, sink: str, cursor: int) -> None:
    connection.execute(
        "UPDATE sinks SET cursor = ?1 WHERE name = ?2 AND cursor < ?1", (cursor, sink)
    )
