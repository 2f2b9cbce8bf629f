"""What can still be read of a damaged store: the records that its sinks have not had yet, for the
new store to deliver. It never writes the old file, and never takes a row that is not whole.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import chain
from pathlib import Path
from typing import Final

from bridge.outbox import SINKS_KEY
from bridge.rows import insert_records, proof
from bridge.store import Store
from sinks.record import EventRecord, RecordError, read_record

_UNREADABLE: Final = (sqlite3.Error, ValueError, TypeError)
"""What reading a damaged row, or SQLite's own words about it, may end in."""
_HIGHEST: Final = 1 << 53
"""Beyond any sequence that was ever given out: a flipped bit makes such."""
_MOST: Final = 2_000_000
"""How many sequences are looked for; it takes some seconds."""
_UNKNOWN_SINK: Final = "?"
"""Stands for sinks that the old store had and that nobody can name any more."""


def take_over(kept: Path, store: Store) -> int:
    """Bring into a store that has no record yet what the one that was kept as this file still had
    to deliver, each record with its place and bytes; returns how many. The new stream counts on
    behind them, and no cursor is taken for further on than it was.

    Raises `StoreError` where that cannot be written; then nothing has changed.
    """
    address = f"{kept.absolute().as_uri()}?mode=ro&immutable=1"
    with suppress(*_UNREADABLE), closing(sqlite3.connect(address, uri=True)) as old:
        old.text_factory = lambda text: text.decode(errors="replace")
        # SQLite: with this, a table whose description is damaged does not hide the others.
        old.execute("PRAGMA writable_schema=ON")
        return _copy(old, store)
    return 0


def _copy(old: sqlite3.Connection, store: Store) -> int:
    head = _head(old, store)
    cursors = _cursors(old)
    named = _names(old)
    dead = _dead(old)
    floor = min(cursors.values(), default=0) if named == set(cursors) else 0
    taken: set[int] = set()

    def put(connection: sqlite3.Connection) -> None:
        taken.clear()
        for record in _intact(old, floor, head, {sequence for _, sequence, *_ in dead}):
            insert_records(connection, [record])
            taken.add(record.sequence)
        connection.executemany(
            "INSERT INTO sinks (name, cursor, proof, active) VALUES (?, ?, ?, 1)",
            [(name, cursor, proof(name, cursor)) for name, cursor in cursors.items()],
        )
        connection.executemany(
            "INSERT INTO dead (sink, sequence, time, reason, attempts, again) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            [row for row in dead if row[1] in taken],
        )

    if head:
        meta = {SINKS_KEY: json.dumps(sorted(named)), **_identity(old)}
        store.begin_behind(head, meta=meta, also=put)
    return len(taken)


def _head(old: sqlite3.Connection, store: Store) -> int:
    """The newest sequence that the old store is known to have given out."""
    known = [store.noted]
    with suppress(*_UNREADABLE):
        row = old.execute("SELECT key, value, proof FROM meta WHERE key = 'sequence'").fetchone()
        known.append(int(row[1]) if row[2] == proof(*row[:2]) else 0)
    with suppress(*_UNREADABLE):
        known.append(int(old.execute("SELECT max(sequence) FROM records").fetchone()[0]))
    return max(each for each in known if each <= _HIGHEST)


def _identity(old: sqlite3.Connection) -> dict[str, str]:
    """Whose store it was: one of another VM is then found out as such."""
    with suppress(*_UNREADABLE):
        row = old.execute("SELECT key, value, proof FROM meta WHERE key = 'identity'").fetchone()
        return {row[0]: row[1]} if row[2] == proof(*row[:2]) else {}
    return {}


def _cursors(old: sqlite3.Connection) -> dict[str, int]:
    """How far each sink was, where that can be told."""
    with suppress(*_UNREADABLE):
        rows = old.execute("SELECT name, cursor, proof FROM sinks").fetchall()
        return {name: cursor for name, cursor, shown in rows if shown == proof(name, cursor)}
    return {}


def _names(old: sqlite3.Connection) -> set[str]:
    """The sinks that the old store had."""
    with suppress(*_UNREADABLE):
        query = "SELECT key, value, proof FROM meta WHERE key = ?"
        key, value, shown = old.execute(query, (SINKS_KEY,)).fetchone()
        if shown == proof(key, value):
            return set(json.loads(value))
    return {_UNKNOWN_SINK}


def _dead(old: sqlite3.Connection) -> list[tuple[str, int, str, str, int, int]]:
    """What sinks had refused for good."""
    with suppress(*_UNREADABLE):
        query = "SELECT sink, sequence, time, reason, attempts, again FROM dead"
        rows = old.execute(query).fetchall()
        types = (str, int, str, str, int, int)
        return [row for row in rows if all(map(isinstance, row, types))]
    return []


def _intact(
    old: sqlite3.Connection, floor: int, head: int, more: set[int]
) -> Iterator[EventRecord]:
    """The whole records past the floor, and those of these sequences, in order."""
    # One by one: a scan ends at the first page that cannot be read.
    query = "SELECT crc, body FROM records WHERE sequence = ?"
    behind = sorted(each for each in more if each <= floor)
    for sequence in chain(behind, range(floor + 1, min(head, floor + _MOST) + 1)):
        with suppress(*_UNREADABLE):
            for crc, body in old.execute(query, (sequence,)):
                if record := _whole(sequence, crc, body):
                    yield record


def _whole(sequence: int, crc: object, body: object) -> EventRecord | None:
    if isinstance(body, bytes) and zlib.crc32(body) == crc:
        with suppress(RecordError):
            record = read_record(body)
            return record if record.sequence == sequence else None
    return None
