"""What the sinks have done, until it is on disk, and what each has acknowledged of an event."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from bridge.store.database import Store, StoreError
from wire.record import Record, RecordDraft

_OVERTAKEN: Final = (
    "FROM dead JOIN records AS older USING (sequence) "
    "JOIN acknowledged AS known ON known.event = older.event AND known.sink = dead.sink "
    "WHERE dead.sink = ?1 AND dead.again AND known.sequence > dead.sequence"
)
"""The newest record of an event that a sink (parameter 1) has acknowledged (`known`), where an
older one is tried again.
"""
_OF_EVENT: Final = " AND dead.sequence IN (SELECT sequence FROM records WHERE event = ?2)"
"""Added to that: of one event (parameter 2). With `older.event = ?2`, SQLite would read all dead
records of the sink.
"""
_NEWER_AGAIN: Final = (
    "INSERT OR IGNORE INTO dead (sink, sequence, time, reason, attempts, again) "
    "SELECT ?1, sequence, time, '', 0, 2 FROM records WHERE sequence IN (SELECT known.sequence {})"
)
"""Newer records of an event that a sink gets again after an older one. They are not dead: the sink
has had them, perhaps as one of another kind.
"""
_UNDONE: Final = (
    "UPDATE acknowledged SET sequence = 0 "
    "WHERE (event, sink, role) IN (SELECT known.event, known.sink, known.role {})"
)
"""An older record may undo what the sink did at a newer one: that counts as acknowledged only once
the sink has acknowledged it again.
"""


class _Delivery(NamedTuple):
    """Records that a sink has acknowledged."""

    sink: str
    role: str
    acknowledged: tuple[tuple[str, int], ...]
    """The events of these records, by their keys, with the sequences."""
    retried: tuple[int, ...]
    """The sequences of those that were tried again."""


class _Noted(NamedTuple):
    """What is not on disk yet."""

    deliveries: tuple[_Delivery, ...]
    cursors: dict[str, int]


class Progress:
    """What each sink has done. Where the disk takes nothing, that is kept, and the next write
    writes all of it: no sink's acknowledgements are ever on disk without its cursor. May be called
    from any thread.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._deliveries: list[_Delivery] = []
        """In their order, which decides whether a newer record of an event still follows."""
        self._cursors: dict[str, int] = {}

    # What sinks do

    def note_delivered(
        self, sink: str, role: str, records: Sequence[Record], *, again: bool
    ) -> None:
        """Note that the sink has acknowledged these records; `again`: they were tried again."""
        acknowledged = tuple(
            (event.casefold(), record.sequence)
            for record in records
            if (event := record.event_id) is not None
        )
        retried = tuple(record.sequence for record in records) if again else ()
        if acknowledged or retried:
            with self._lock:
                self._deliveries.append(_Delivery(sink, role, acknowledged, retried))

    def note_cursor(self, sink: str, cursor: int) -> None:
        """Note how far the sink has come."""
        with self._lock:
            self._cursors[sink] = max(cursor, self._cursors.get(sink, 0))

    # Writing

    @contextmanager
    def transaction(self, *, durable: bool = True) -> Iterator[sqlite3.Connection]:
        """Open a transaction of the store that begins with all that is noted. Raises `StoreError`;
        then that stays noted.
        """
        # Otherwise a retry could undo an acknowledgement before it is forgotten here, and it would
        # be written once more.
        with self._store.exclusive():
            with self._store.transaction(durable=durable) as connection:
                noted = self._noted()
                _write(connection, noted)
                yield connection
            self._forget(noted)

    def _forget(self, noted: _Noted) -> None:
        """Forget what is on disk now."""
        with self._lock:
            del self._deliveries[: len(noted.deliveries)]
            for sink, cursor in noted.cursors.items():
                if self._cursors[sink] == cursor:  # it may have come further meanwhile
                    del self._cursors[sink]

    def write(self) -> bool:
        """Write all that is noted, not synced: a power cut can only make records be delivered
        twice. Return whether it is written.
        """
        try:
            with self.transaction(durable=False):
                return True
        except StoreError:
            return False

    def commit(
        self, drafts: Sequence[RecordDraft], *, also: Callable[[sqlite3.Connection], object]
    ) -> None:
        """Commit these records with all that is noted. `also` is called with the connection, in the
        same transaction. Raises `StoreError`; then what is noted stays noted.
        """
        noted = _Noted((), {})

        def write(connection: sqlite3.Connection) -> None:
            nonlocal noted
            also(connection)
            noted = self._noted()
            _write(connection, noted)

        self._store.commit(drafts, also=write, then=lambda: self._forget(noted))

    def _noted(self) -> _Noted:
        with self._lock:
            return _Noted(tuple(self._deliveries), dict(self._cursors))

    # What is known

    def retried(self, sink: str) -> set[int]:
        """Return which records the sink has acknowledged that were tried again, while that could
        not be written.
        """
        with self._lock:
            deliveries = [each for each in self._deliveries if each.sink == sink]
        return {sequence for each in deliveries for sequence in each.retried}

    def has_acknowledged(self, sink: str, role: str, event: str) -> bool:
        """Check whether the sink, in that role, has acknowledged the event's newest record."""
        with self._lock:
            unwritten = bool(self._deliveries)
        if unwritten and not self.write():
            return False
        rows = self._store.read(
            "SELECT 1 FROM acknowledged WHERE event = ?1 AND sink = ?2 AND role = ?3 "
            "AND sequence = (SELECT max(sequence) FROM records WHERE event = ?1)",
            (event, sink, role),
        )
        return bool(rows)

    def has_newer(self, sink: str, role: str, sequence: int) -> bool:
        """Check whether the sink, in that role, has acknowledged a newer record of the event that
        the record of this sequence is about.
        """
        return self._knows_event_of(sink, role, sequence, least=sequence + 1)

    def may_have_received(self, sink: str, role: str, sequence: int) -> bool:
        """Check whether the sink, in that role, may have received the event that the record of this
        sequence is about.
        """
        return self._knows_event_of(sink, role, sequence, least=0)

    def _knows_event_of(self, sink: str, role: str, sequence: int, *, least: int) -> bool:
        """Check whether an acknowledgement of that event is from the sequence `least` on."""
        with self._lock:  # before the read: another thread may write it and forget it here
            noted = {
                event
                for each in self._deliveries
                if (each.sink, each.role) == (sink, role)
                for event, acknowledged in each.acknowledged
                if acknowledged >= least
            }
        rows = self._store.read(
            "SELECT event, EXISTS (SELECT 1 FROM acknowledged WHERE event = records.event "
            "AND sink = ?2 AND role = ?3 AND sequence >= ?4) FROM records WHERE sequence = ?1",
            (sequence, sink, role, least),
        )
        return any(written or event in noted for event, written in rows)


def _write(connection: sqlite3.Connection, noted: _Noted) -> None:
    for delivery in noted.deliveries:
        _write_delivery(connection, delivery)
    for sink, cursor in noted.cursors.items():
        move_cursor(connection, sink, cursor)


def _write_delivery(connection: sqlite3.Connection, delivery: _Delivery) -> None:
    """Keep the newest acknowledged record of each event, sink and role: 0 there means that the sink
    may have received the event, but has acknowledged nothing.
    """
    sink = delivery.sink
    connection.executemany(
        "INSERT INTO acknowledged (event, sink, role, sequence) VALUES (?1, ?2, ?3, ?4) "
        "ON CONFLICT (event, sink, role) DO UPDATE SET sequence = excluded.sequence "
        "WHERE excluded.sequence > sequence",
        [(event, sink, delivery.role, sequence) for event, sequence in delivery.acknowledged],
    )
    connection.executemany(
        "DELETE FROM dead WHERE sink = ? AND sequence = ?",
        [(sink, sequence) for sequence in delivery.retried],
    )
    let_newer_follow(connection, sink, {event for event, _ in delivery.acknowledged})


def move_cursor(connection: sqlite3.Connection, sink: str, cursor: int) -> None:
    """Move the sink's cursor forward. Raises `sqlite3.Error`."""
    connection.execute(
        "UPDATE sinks SET cursor = ?1 WHERE name = ?2 AND cursor < ?1", (cursor, sink)
    )


def let_newer_follow(
    connection: sqlite3.Connection, sink: str, events: Iterable[str] | None = None
) -> None:
    """Let the newest record that the sink has had of an event follow an older one that is tried
    again, so that the older one is not the last that it gets. `events`: those of which it has just
    acknowledged a record, or all. Raises `sqlite3.Error`.
    """
    is_any = "SELECT 1 FROM dead WHERE sink = ? AND again LIMIT 1"
    if not connection.execute(is_any, (sink,)).fetchone():  # often: each delivery asks
        return
    for change in (_NEWER_AGAIN, _UNDONE):
        if events is None:
            connection.execute(change.format(_OVERTAKEN), (sink,))
        else:
            of_event = change.format(_OVERTAKEN + _OF_EVENT)
            connection.executemany(of_event, [(sink, event) for event in events])
