"""What the store writes, table by table, within a transaction that is not of its own making."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterable, Sequence

from bridge.known import KnownEvent, dump_known
from sinks.record import BRIDGE_HEARTBEAT, EventRecord, rfc3339


def insert_records(connection: sqlite3.Connection, records: Sequence[EventRecord]) -> None:
    """Add records; a heartbeat takes the place of the one before it. Raises `sqlite3.Error`."""
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
                record.affects_this_vm,
                zlib.crc32(record.body),
                record.body,
            )
            for record in records
        ],
    )


def upsert_known(connection: sqlite3.Connection, known: Iterable[KnownEvent]) -> None:
    """Keep events as they are known now. Raises `sqlite3.Error`."""
    connection.executemany(
        "INSERT OR REPLACE INTO events (key, pending, seen, value) VALUES (?, ?, ?, ?)",
        [(k.event.key, k.pending, rfc3339(k.first_seen), dump_known(k)) for k in known],
    )


def forget(connection: sqlite3.Connection, keys: Iterable[str]) -> None:
    """Forget events by their keys. Raises `sqlite3.Error`."""
    connection.executemany("DELETE FROM events WHERE key = ?", [(key,) for key in keys])
