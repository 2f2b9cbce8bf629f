"""Rows of the store's tables, read and written within the caller's transaction."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from wire.record import BRIDGE_HEARTBEAT, Record


class EventRow(NamedTuple):
    """The row of an event."""

    key: str
    pending: bool
    """Whether its records are kept even if every sink has them."""
    seen: str
    """When it was first seen, RFC 3339; events are read in this order."""
    value: str


def read_meta(connection: sqlite3.Connection) -> dict[str, str]:
    """Return all of `meta`. Raises `sqlite3.Error`."""
    return dict(connection.execute("SELECT key, value FROM meta"))


def upsert_meta(connection: sqlite3.Connection, meta: Mapping[str, str]) -> None:
    """Write these values to `meta`. Raises `sqlite3.Error`."""
    connection.executemany(
        "INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", list(meta.items())
    )


def insert_records(connection: sqlite3.Connection, records: Sequence[Record]) -> None:
    """Add records; a heartbeat replaces the one before it. Raises `sqlite3.Error`."""
    if any(record.is_heartbeat for record in records):
        # Only the newest heartbeat matters: a backlog must not grow by them.
        connection.execute(
            "DELETE FROM records WHERE type = ? "
            "AND NOT EXISTS (SELECT 1 FROM dead WHERE dead.sequence = records.sequence)",
            (BRIDGE_HEARTBEAT,),
        )
    connection.executemany(
        "INSERT INTO records (sequence, id, type, time, event, affects, crc, body) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (
                record.sequence,
                record.id,
                record.type,
                record.time,
                record.event_id and record.event_id.casefold(),
                record.concerns_this_vm,  # the column `affects` has the name that it had in 0.1.0
                zlib.crc32(record.body),
                record.body,
            )
            for record in records
        ],
    )


def upsert_events(connection: sqlite3.Connection, events: Iterable[EventRow]) -> None:
    """Write these events. Raises `sqlite3.Error`."""
    connection.executemany(
        "INSERT OR REPLACE INTO events (key, pending, seen, value) VALUES (?, ?, ?, ?)", events
    )


def forget(connection: sqlite3.Connection, revisions: Mapping[str, int], *, sequence: int) -> None:
    """Delete events by key, except for their last revision; `sequence` is the newest one now.
    Raises `sqlite3.Error`.
    """
    keys = [(key,) for key in revisions]
    connection.executemany("DELETE FROM events WHERE key = ?", keys)
    connection.executemany(
        "INSERT OR REPLACE INTO forgotten (key, revision, place) VALUES (?, ?, ?)",
        [(key, revision, sequence) for key, revision in revisions.items()],
    )
