"""What each sink has acknowledged of the known events; a cursor proves nothing."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Sequence

from bridge.store.database import Store, StoreError
from wire.record import Record


class Acknowledged:
    """The newest acknowledged record of each event and sink. May be called from any thread."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._unwritten: set[tuple[str, str, str, int]] = set()
        """Event, sink, kind of sink, and sequence."""

    def note(self, sink: str, kind: str, records: Sequence[Record]) -> None:
        """Note that the sink has acknowledged these; it is on disk after the next `write`."""
        facts = {
            (event.casefold(), sink, kind, record.sequence)
            for record in records
            if (event := record.event_id) is not None
        }
        with self._lock:
            self._unwritten |= facts

    def write(self, change: Callable[[sqlite3.Connection], object] | None = None) -> bool:
        """Write what is noted, not synced, with a change of progress; whether it is written."""
        with self._lock:
            facts = sorted(self._unwritten, key=lambda fact: fact[-1])
        try:
            with self._store.transaction(durable=False) as connection:
                _keep(connection, facts)
                if change is not None:
                    change(connection)
        except StoreError:
            return False
        with self._lock:
            self._unwritten -= set(facts)
        return True

    def has(self, sink: str, kind: str, event: str) -> bool:
        """Whether the sink, as that kind, has acknowledged the event's newest record."""
        with self._lock:
            unwritten = bool(self._unwritten)
        if unwritten and not self.write():
            return False
        rows = self._store.read(
            "SELECT 1 FROM acknowledged WHERE event = ?1 AND sink = ?2 AND kind = ?3 "
            "AND sequence = (SELECT max(sequence) FROM records WHERE event = ?1)",
            (event, sink, kind),
        )
        return bool(rows)

    def knows_event(self, sink: str, sequence: int) -> bool:
        """Whether the sink has acknowledged any record of the event that the record of this
        sequence is about, as whatever kind: what it got has its end.
        """
        rows = self._store.read(
            "SELECT event, EXISTS (SELECT 1 FROM acknowledged WHERE event = records.event "
            "AND sink = ?2) FROM records WHERE sequence = ?1",
            (sequence, sink),
        )
        with self._lock:
            noted = {fact[:2] for fact in self._unwritten}
        return any(written or (event, sink) in noted for event, written in rows)


def _keep(connection: sqlite3.Connection, facts: Sequence[tuple[str, str, str, int]]) -> None:
    """Keep the newest of each event and sink."""
    connection.executemany(
        "INSERT INTO acknowledged (event, sink, kind, sequence) VALUES (?1, ?2, ?3, ?4) "
        "ON CONFLICT (event, sink) DO UPDATE "
        "SET kind = excluded.kind, sequence = excluded.sequence "
        "WHERE excluded.kind != kind OR excluded.sequence > sequence",
        facts,
    )
