"""The records of known events that each sink has acknowledged; a cursor does not prove that."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Sequence

from bridge.store.database import Store, StoreError
from wire.record import Record


class Acknowledgements:
    """The newest acknowledged record of each event, sink and role; 0 if the sink may have received
    the event, but has acknowledged nothing. May be called from any thread.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._unwritten: set[tuple[str, str, str, int]] = set()
        """Event, sink, role, and sequence of each."""

    def add(self, sink: str, role: str, records: Sequence[Record]) -> None:
        """Note that the sink has acknowledged these records; the next `write` puts that on disk."""
        acknowledged = {
            (event.casefold(), sink, role, record.sequence)
            for record in records
            if (event := record.event_id) is not None
        }
        with self._lock:
            self._unwritten |= acknowledged

    def write(self, change: Callable[[sqlite3.Connection], object] | None = None) -> bool:
        """Write what is noted, not synced, together with a change of progress; return whether it is
        written.
        """
        acknowledged = self._noted()
        try:
            with self._store.transaction(durable=False) as connection:
                _upsert(connection, acknowledged)
                if change is not None:
                    change(connection)
        except StoreError:
            return False
        with self._lock:
            self._unwritten -= set(acknowledged)
        return True

    def write_in(self, connection: sqlite3.Connection) -> None:
        """Write what is noted within the connection's transaction. It stays noted until the next
        `write`: the transaction may fail.
        """
        _upsert(connection, self._noted())

    def _noted(self) -> list[tuple[str, str, str, int]]:
        """Return what is not written yet, the newest last."""
        with self._lock:
            return sorted(self._unwritten, key=lambda each: each[-1])

    def has(self, sink: str, role: str, event: str) -> bool:
        """Check whether the sink, in that role, has acknowledged the event's newest record."""
        with self._lock:
            unwritten = bool(self._unwritten)
        if unwritten and not self.write():
            return False
        rows = self._store.read(
            "SELECT 1 FROM acknowledged WHERE event = ?1 AND sink = ?2 AND role = ?3 "
            "AND sequence = (SELECT max(sequence) FROM records WHERE event = ?1)",
            (event, sink, role),
        )
        return bool(rows)

    def may_have_received(self, sink: str, role: str, sequence: int) -> bool:
        """Check whether the sink, in that role, may have received the event that the record of this
        sequence is about.
        """
        rows = self._store.read(
            "SELECT event, EXISTS (SELECT 1 FROM acknowledged WHERE event = records.event "
            "AND sink = ?2 AND role = ?3) FROM records WHERE sequence = ?1",
            (sequence, sink, role),
        )
        with self._lock:
            noted = {each[:3] for each in self._unwritten}
        return any(written or (event, sink, role) in noted for event, written in rows)


def _upsert(
    connection: sqlite3.Connection, acknowledged: Sequence[tuple[str, str, str, int]]
) -> None:
    """Keep the newest of each event, sink and role."""
    connection.executemany(
        "INSERT INTO acknowledged (event, sink, role, sequence) VALUES (?1, ?2, ?3, ?4) "
        "ON CONFLICT (event, sink, role) DO UPDATE SET sequence = excluded.sequence "
        "WHERE excluded.sequence > sequence",
        acknowledged,
    )
