"""What the store writes, table by table, within a transaction that is not of its own making; and
the proof by which a row is known to be what was written. It never repairs one that is not.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bridge.known import KnownEvent, dump_known, load_known
from sinks.record import BRIDGE_HEARTBEAT, EventRecord, rfc3339


def proof(*values: object) -> int:
    """What stands beside the values in a row: SQLite has no checksum of a page, so that a flipped
    bit in a number makes another number.
    """
    return zlib.crc32(repr(values).encode("utf-8", "backslashreplace"))


def read_meta(connection: sqlite3.Connection) -> dict[str, str]:
    """All of `meta`. Raises `ValueError` where a row is not what was written."""
    return {
        key: value
        for key, value, shown in connection.execute("SELECT key, value, proof FROM meta")
        if _is_proven(shown, key, value)
    }


def upsert_meta(connection: sqlite3.Connection, meta: Mapping[str, str]) -> None:
    """Keep these in `meta`. Raises `sqlite3.Error`."""
    connection.executemany(
        "INSERT OR REPLACE INTO meta (key, value, proof) VALUES (?, ?, ?)",
        [(key, value, proof(key, value)) for key, value in meta.items()],
    )


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
    rows = [(k.event.key, int(k.pending), rfc3339(k.first_seen), dump_known(k)) for k in known]
    connection.executemany(
        "INSERT OR REPLACE INTO events (key, pending, seen, value, proof) VALUES (?, ?, ?, ?, ?)",
        [(*row, proof(*row)) for row in rows],
    )


def load_events(rows: Iterable[Sequence[Any]]) -> dict[str, KnownEvent]:
    """The events of rows of key, pending, seen, value and proof. Raises `ValueError`,
    `LookupError` or `TypeError` where one is not what was written.
    """
    return {
        key: load_known(value)
        for key, pending, seen, value, shown in rows
        if _is_proven(shown, key, pending, seen, value)
    }


def forget(connection: sqlite3.Connection, keys: Iterable[str]) -> None:
    """Forget events by their keys. Raises `sqlite3.Error`."""
    connection.executemany("DELETE FROM events WHERE key = ?", [(key,) for key in keys])


def _is_proven(shown: object, *values: object) -> bool:
    if shown != proof(*values):
        raise ValueError(f"the row of {values[0]} is not what was written")
    return True
