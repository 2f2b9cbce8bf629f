"""The preparations in the store, one row for each event that a sink of some role was asked to
prepare for.
"""

from __future__ import annotations

import sqlite3
from dataclasses import astuple, dataclass, replace
from typing import Final

from bridge.store.database import Store
from wire.preparation import State
from wire.record import Record, RecordDraft, RecordError, read_record


@dataclass(frozen=True, slots=True)
class Preparation:
    """A preparation for one event, and its state."""

    event: str
    """The key of the event."""
    event_id: str
    fingerprint: str
    """The state of the event that it is for."""
    sink: str
    role: str
    """The role of the sink: what a sink of another kind has prepared does not count for it."""
    cause: str
    state: State
    request_sequence: int
    """The sequence of the record that asked the sink."""
    first_seen: str
    """When the event appeared, RFC 3339: if it returns later, it counts as another one."""
    is_over: bool = False
    """Whether the event has ended since, or changed before this was prepared: then the VM has to
    prepare again.
    """
    before: tuple[str, ...] = ()
    """The earlier states of the event, by fingerprint, for which the VM is prepared too."""


_COLUMNS: Final = (
    "event, event_id, fingerprint, sink, role, cause, state, request_sequence, first_seen, "
    "is_over, before"
)


class PreparationRows:
    """The preparations of one store. All methods may be called from any thread."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def all(self) -> list[Preparation]:
        """Return every row. Raises `StoreError`."""
        rows = self._store.read(f"SELECT {_COLUMNS} FROM preparations")  # noqa: S608  # ours
        return [
            replace(Preparation(*row), is_over=bool(row[-2]), before=tuple(row[-1].split()))
            for row in rows
        ]

    def hand_over(self, sink: str, role: str) -> None:
        """Give the preparations of other sinks of this role to this one: once it is configured, it
        also gets the ends that came before. What another role was asked for and has not done
        becomes this one's; what that role did stays for its ends, until the role is back. Raises
        `StoreError`.
        """

        def write(connection: sqlite3.Connection) -> None:
            connection.execute(
                "INSERT OR IGNORE INTO ends_owed (sink, role, event) "
                "SELECT ?1, ?2, event FROM preparations WHERE role = ?2 AND sink != ?1",
                (sink, role),
            )
            connection.execute("UPDATE preparations SET sink = ? WHERE role = ?", (sink, role))
            connection.execute(
                f"INSERT OR IGNORE INTO preparations ({_COLUMNS}) "  # noqa: S608  # our own words
                "SELECT event, event_id, fingerprint, ?1, ?2, cause, state, request_sequence, "
                "first_seen, is_over, '' FROM preparations WHERE role != ?2 "
                "AND state = 'preparing'",
                (sink, role),
            )
            connection.execute(
                "UPDATE preparations SET state = 'failed', is_over = 1 "
                "WHERE role != ? AND state = 'preparing'",
                (role,),
            )

        self._store.commit(also=write)

    def had_other_role(self, sink: str, role: str) -> bool:
        """Check whether the sink had another role in the last run that named it. Raises
        `StoreError`.
        """
        rows = self._store.read(
            "SELECT 1 FROM sinks WHERE name = ? AND role NOT IN ('', ?)", (sink, role)
        )
        return bool(rows)

    def ask_sink(self, preparation: Preparation, record: RecordDraft) -> Preparation:
        """Commit a new preparation together with the record that asks the sink, synced; return the
        row with that record's sequence. Raises `StoreError`; then neither is written.
        """

        def write(connection: sqlite3.Connection) -> None:
            # The record is the newest one of this transaction.
            ((head,),) = connection.execute("SELECT max(sequence) FROM records")
            _upsert(connection, preparation, request_sequence=head)

        (written,) = self._store.commit([record], also=write)
        return replace(preparation, request_sequence=written.sequence)

    def save(self, preparation: Preparation, record: RecordDraft | None = None) -> None:
        """Write a row, with a record about it, synced. Raises `StoreError`."""

        def write(connection: sqlite3.Connection) -> None:
            _upsert(connection, preparation, request_sequence=preparation.request_sequence)

        self._store.commit([] if record is None else [record], also=write)

    def finish(self, preparation: Preparation, record: RecordDraft | None = None) -> None:
        """Delete a row, and commit a record about it in the same synced transaction. Raises
        `StoreError`.
        """

        def write(connection: sqlite3.Connection) -> None:
            connection.execute(
                "DELETE FROM preparations WHERE event = ? AND role = ?",
                (preparation.event, preparation.role),
            )

        self._store.commit([] if record is None else [record], also=write)

    def shown(self, event: str) -> Record | None:
        """Return the newest record that shows an event before its end. Raises `StoreError`."""
        return self._newest(event, "AND type IN ('seb.event.scheduled.v1', 'seb.event.updated.v1')")

    def ends_after(self, event: str, sequence: int) -> bool:
        """Check whether a record after that sequence says that the event is over for this VM.
        Raises `StoreError`.
        """
        rows = self._store.read(
            "SELECT body FROM records WHERE event = ? AND sequence > ? "
            "AND type IN ('seb.event.updated.v1', 'seb.event.ended.v1')",
            (event, sequence),
        )
        found = (_readable(body) for (body,) in rows)
        return any(record is not None and record.is_end for record in found)

    def newest(self, event: str) -> Record | None:
        """Return the newest record of an event. Raises `StoreError`."""
        return self._newest(event)

    def _newest(self, event: str, types: str = "") -> Record | None:
        rows = self._store.read(
            f"SELECT body FROM records WHERE event = ? {types} "  # noqa: S608  # our own words
            "ORDER BY sequence DESC LIMIT 1",
            (event,),
        )
        return _readable(rows[0][0]) if rows else None


def _readable(body: bytes) -> Record | None:
    """Return the record; None for a damaged row, which the sink's own queue reports."""
    try:
        return read_record(bytes(body))
    except RecordError:
        return None


def _upsert(
    connection: sqlite3.Connection, preparation: Preparation, *, request_sequence: int
) -> None:
    values = [*astuple(replace(preparation, request_sequence=request_sequence))]
    values[-1] = " ".join(preparation.before)
    connection.execute(
        f"INSERT OR REPLACE INTO preparations ({_COLUMNS}) "  # noqa: S608  # our own words
        f"VALUES ({', '.join('?' * len(values))})",
        values,
    )
