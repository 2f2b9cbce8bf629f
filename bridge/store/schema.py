"""The tables of the store: made, checked, and migrated from earlier versions."""

from __future__ import annotations

import sqlite3
import uuid
from contextlib import closing
from functools import cache
from typing import Final

from bridge.store.absences import note_ends_owed, role_in_0_2_0
from bridge.store.progress import let_newer_follow
from bridge.store.recipient import UNKNOWN
from bridge.store.rows import upsert_meta

SCHEMA_VERSION: Final = 4

_TABLES: Final = {
    "meta": "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    "events": """
CREATE TABLE events (key TEXT PRIMARY KEY, pending INTEGER NOT NULL, seen TEXT NOT NULL,
                     value TEXT NOT NULL) WITHOUT ROWID""",
    "records": """
CREATE TABLE records (sequence INTEGER PRIMARY KEY, id TEXT NOT NULL, type TEXT NOT NULL,
                      time TEXT NOT NULL, event TEXT, affects INTEGER, crc INTEGER NOT NULL,
                      body BLOB NOT NULL)""",
    "sinks": """
CREATE TABLE sinks (name TEXT PRIMARY KEY, cursor INTEGER NOT NULL,
                    active INTEGER NOT NULL, role TEXT NOT NULL DEFAULT '',
                    choice TEXT NOT NULL DEFAULT '') WITHOUT ROWID""",
    "approvals": """
CREATE TABLE approvals (cause TEXT PRIMARY KEY, time TEXT NOT NULL, jti TEXT NOT NULL, event TEXT,
                        fingerprint TEXT, actor TEXT NOT NULL, issuer TEXT,
                        resources TEXT NOT NULL, state TEXT NOT NULL, reason TEXT,
                        asked TEXT NOT NULL, why TEXT, key TEXT, expires INTEGER,
                        act TEXT NOT NULL DEFAULT 'approve',
                        revision INTEGER, uptime REAL) WITHOUT ROWID""",
    "dead": """
CREATE TABLE dead (sink TEXT NOT NULL, sequence INTEGER NOT NULL, time TEXT NOT NULL,
                   reason TEXT NOT NULL, attempts INTEGER NOT NULL, again INTEGER NOT NULL,
                   PRIMARY KEY (sink, sequence)) WITHOUT ROWID""",
    "acknowledged": """
CREATE TABLE acknowledged (event TEXT NOT NULL, sink TEXT NOT NULL, role TEXT NOT NULL,
                           sequence INTEGER NOT NULL,
                           PRIMARY KEY (event, sink, role)) WITHOUT ROWID""",
    "preparations": """
CREATE TABLE preparations (event TEXT NOT NULL, event_id TEXT NOT NULL,
                           fingerprint TEXT NOT NULL, sink TEXT NOT NULL, role TEXT NOT NULL,
                           cause TEXT NOT NULL, state TEXT NOT NULL,
                           request_sequence INTEGER NOT NULL,
                           first_seen TEXT NOT NULL, is_over INTEGER NOT NULL,
                           before TEXT NOT NULL,
                           PRIMARY KEY (event, role)) WITHOUT ROWID""",
    "forgotten": """
CREATE TABLE forgotten (key TEXT PRIMARY KEY, revision INTEGER NOT NULL,
                        place INTEGER NOT NULL) WITHOUT ROWID""",
    "absences": """
CREATE TABLE absences (sink TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER,
                       PRIMARY KEY (sink, first)) WITHOUT ROWID""",
    "ends_owed": """
CREATE TABLE ends_owed (sink TEXT NOT NULL, role TEXT NOT NULL, event TEXT NOT NULL,
                        PRIMARY KEY (sink, role, event)) WITHOUT ROWID""",
    "catch_up": """
CREATE TABLE catch_up (sink TEXT NOT NULL, sequence INTEGER NOT NULL,
                       PRIMARY KEY (sink, sequence)) WITHOUT ROWID""",
}
_OF_VERSION_4: Final = ("preparations", "forgotten", "absences", "ends_owed", "catch_up")
_FORGOTTEN_INDEX: Final = "CREATE INDEX forgotten_first ON forgotten (place)"
_INDEXES: Final = (
    "CREATE INDEX heartbeats ON records (sequence) WHERE type = 'seb.bridge.heartbeat.v1'",
    "CREATE INDEX waiting ON records (sequence, type, affects, time)",
    "CREATE INDEX of_event ON records (event) WHERE event IS NOT NULL",
    "CREATE INDEX dead_records ON dead (sequence)",
    _FORGOTTEN_INDEX,
)
_WITHOUT_PROOF: Final = {
    "meta": "key, value",
    "events": "key, pending, seen, value",
}
"""The tables of version 1 that had one more column, with the columns that stay."""
_WITHOUT_WHY: Final = (
    "cause, time, jti, event, fingerprint, actor, issuer, resources, state, reason, asked"
)
"""The columns of `approvals` before version 3."""
_FIRST_WITH_WHY: Final = 3
_WITHOUT_KEY: Final = f"{_WITHOUT_WHY}, why"
"""The columns of `approvals` in version 3."""
_WITHOUT_ROLE: Final = "name, cursor, active"
"""The columns of `sinks` before version 4 that stay; version 1 had one more."""
_ACKNOWLEDGED_EARLIER: Final = "event, sink, kind, sequence"
"""The columns of `acknowledged` in versions 2 and 3: no sink prepared, so its kind was its role."""


def create_tables(connection: sqlite3.Connection) -> None:
    """Make the tables in an empty file, with a new stream. Raises `sqlite3.Error`."""
    for statement in (*_TABLES.values(), *_INDEXES):
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
    upsert_meta(connection, {"stream": str(uuid.uuid4()), "sequence": "0"})


def migrate(connection: sqlite3.Connection) -> None:
    """Change the tables of an earlier version to the current ones. Raises `sqlite3.Error`."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version == 1:
        _migrate_first(connection)
    else:
        _remake(connection, "acknowledged", "event, sink, role, sequence", _ACKNOWLEDGED_EARLIER)
    _remake(connection, "approvals", _WITHOUT_KEY if version == _FIRST_WITH_WHY else _WITHOUT_WHY)
    _remake(connection, "sinks", _WITHOUT_ROLE)
    for table in _OF_VERSION_4:
        connection.execute(_TABLES[table])
    connection.execute(_FORGOTTEN_INDEX)
    _begin_absences(connection)
    _go_on_with_retries(connection)
    connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")


def _begin_absences(connection: sqlite3.Connection) -> None:
    """Begin the absence of each sink that was not configured in the last run. Versions before 4 did
    not keep when it was removed: what is after its cursor may have waited for it before that.
    """
    removed = connection.execute("SELECT name, cursor FROM sinks WHERE NOT active").fetchall()
    for name, cursor in removed:
        note_ends_owed(
            connection, name, role_in_0_2_0(connection, name) or "", cursor, UNKNOWN.accepts
        )
        connection.execute("INSERT INTO absences (sink, first) VALUES (?, ?)", (name, cursor))


def _go_on_with_retries(connection: sqlite3.Connection) -> None:
    """Let newer records follow those that are being tried again: earlier versions did not do so at
    a retry. Raises `sqlite3.Error`.
    """
    rows = connection.execute("SELECT DISTINCT sink FROM dead WHERE again").fetchall()
    for (sink,) in rows:
        let_newer_follow(connection, sink)


def _migrate_first(connection: sqlite3.Connection) -> None:
    for table, columns in _WITHOUT_PROOF.items():
        _remake(connection, table, columns)
    connection.execute(_TABLES["acknowledged"])  # empty: a cursor that is past proves nothing
    connection.execute("DELETE FROM meta WHERE key = 'sinks'")  # the names, for damaged cursors
    connection.execute(
        "INSERT INTO meta (key, value) "
        "SELECT 'confirmed_boot', value FROM meta WHERE key = 'boot_id'"
    )
    _merge_pull_channel(connection)


def _remake(
    connection: sqlite3.Connection, table: str, columns: str, earlier: str | None = None
) -> None:
    """Make a table again in its current form, and copy these columns of its rows; `earlier`: the
    former names of the columns, if they differ.
    """
    # SQLite before 3.35 cannot drop a column, and Python 3.11 runs with such; a column that is
    # added stands otherwise in the table's own text, by which `are_sound` knows it.
    connection.execute(f"ALTER TABLE {table} RENAME TO earlier")
    connection.execute(_TABLES[table])
    connection.execute(
        f"INSERT INTO {table} ({columns}) "  # noqa: S608  # our own words
        f"SELECT {earlier or columns} FROM earlier"
    )
    connection.execute("DROP TABLE earlier")


def _merge_pull_channel(connection: sqlite3.Connection) -> None:
    """Merge the sinks of version 1 `pull`, which took no record, and `pull-receipts` into one,
    `pull`.
    """
    names = {name for (name,) in connection.execute("SELECT name FROM sinks")}
    if {"pull", "pull-receipts"} <= names:
        connection.execute("DELETE FROM sinks WHERE name = 'pull'")
        connection.execute("UPDATE sinks SET name = 'pull' WHERE name = 'pull-receipts'")
        connection.execute("UPDATE dead SET sink = 'pull' WHERE sink = 'pull-receipts'")


def are_sound(connection: sqlite3.Connection) -> bool:
    """Check whether every table and index is as it was made. Raises `sqlite3.Error`."""
    return _tables(connection) == _sound_tables()


@cache
def _sound_tables() -> frozenset[tuple[str, ...]]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as fresh:
        create_tables(fresh)
        return _tables(fresh)


def _tables(connection: sqlite3.Connection) -> frozenset[tuple[str, ...]]:
    query = "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE sql IS NOT NULL"
    return frozenset(connection.execute(query))
