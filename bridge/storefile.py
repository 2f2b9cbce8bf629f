"""Opening the store's file: making it, locking it, and putting a damaged one aside.

Nothing that was committed is ever deleted here: a file that cannot be used is renamed.
"""

from __future__ import annotations

import sqlite3
import uuid
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from bridge import host
from bridge.errors import ConfigurationError, TryLaterError
from bridge.store import BALLAST_NAME, LOOKED_NAME, Store

FILE_NAME: Final = "seb.db"
SCHEMA_VERSION: Final = 1
LOCK_WAIT_SECONDS: Final = 5.0
"""How long a start waits for a predecessor that is on its way out."""

_SCHEMA: Final = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE events (key TEXT PRIMARY KEY, pending INTEGER NOT NULL, seen TEXT NOT NULL,
                     value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE records (sequence INTEGER PRIMARY KEY, type TEXT NOT NULL, time TEXT NOT NULL,
                      event TEXT, affects INTEGER, body BLOB NOT NULL);
CREATE TABLE sinks (name TEXT PRIMARY KEY, cursor INTEGER NOT NULL,
                    active INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE dead (sink TEXT NOT NULL, sequence INTEGER NOT NULL, time TEXT NOT NULL,
                   reason TEXT NOT NULL, attempts INTEGER NOT NULL, again INTEGER NOT NULL,
                   PRIMARY KEY (sink, sequence)) WITHOUT ROWID;
CREATE INDEX heartbeats ON records (sequence) WHERE type = 'seb.bridge.heartbeat.v1';
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreReset:
    """Why a new store was begun where there had been one."""

    reason: str
    previous_stream: str | None
    kept_as: str | None


class _DamagedError(Exception):
    """The file is no store of ours, or a broken one."""


def open_store(directory: Path, now: datetime) -> tuple[Store, StoreReset | None]:
    """Open the store in the directory, making either if need be.

    Raises `ConfigurationError` where the directory cannot be used or another bridge uses it, and
    `TryLaterError` where the disk is full.
    """
    _make_directory(directory)
    path = directory / FILE_NAME
    reset = _lost(path)
    try:
        return _open(path), reset
    except _DamagedError as error:
        reset = _put_aside(path, now, reason=str(error))
    return _open(path), reset


def put_aside(store: Store, now: datetime, *, reason: str) -> tuple[Store, StoreReset]:
    """Close a store that belongs to another VM, keep it under another name, and begin anew."""
    store.close()
    path = store.directory / FILE_NAME
    reset = _put_aside(path, now, reason=reason)
    return _open(path), reset


def _lost(path: Path) -> StoreReset | None:
    """What to say where a store has been in use here, and its file is gone or empty."""
    used = (path.parent / LOOKED_NAME).exists()
    if not used or (path.exists() and path.stat().st_size):
        return None
    reason = "the file is empty" if path.exists() else "the file is missing"
    return StoreReset(reason=reason, previous_stream=None, kept_as=None)


def _make_directory(directory: Path) -> None:
    try:
        existed = directory.exists()
        directory.mkdir(parents=True, exist_ok=True)
        if not existed:
            host.make_private(directory)
    except OSError as error:
        raise ConfigurationError(
            f"SEB_STATE_DIR: the state directory {directory} cannot be made ({error.strerror}); "
            "create it, or name one that this user may write to"
        ) from error


def _open(path: Path) -> Store:
    try:
        connection = _connect(path)
    except sqlite3.Error as error:
        _explain(path, error)
    try:
        return Store(path.parent, connection)
    except (sqlite3.Error, KeyError, ValueError) as error:
        connection.close()
        raise _DamagedError(f"{type(error).__name__}: {error}") from error


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path, timeout=LOCK_WAIT_SECONDS, isolation_level=None, check_same_thread=False
    )
    try:
        # Exclusive before WAL: one connection needs no shared memory, and holds the only lock.
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA journal_size_limit=4194304")
        connection.execute("BEGIN EXCLUSIVE")
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if not tables:
            _create(connection)
        connection.execute("COMMIT")
        _verify(connection, path)
    except BaseException:
        connection.close()
        raise
    host.make_private(path)
    host.sync_directory(path.parent)
    return connection


def _create(connection: sqlite3.Connection) -> None:
    for statement in _SCHEMA.split(";"):
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
    connection.executemany(
        "INSERT INTO meta VALUES (?, ?)", [("stream", str(uuid.uuid4())), ("sequence", "0")]
    )


def _verify(connection: sqlite3.Connection, path: Path) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version != SCHEMA_VERSION:
        raise ConfigurationError(
            f"SEB_STATE_DIR: the store {path} was written by another version (its schema is "
            f"{version}, this program's {SCHEMA_VERSION}); run that version, or name another "
            "state directory"
        )
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise _DamagedError(f"the integrity check says: {verdict}")


def _explain(path: Path, error: sqlite3.Error) -> None:
    """Turn SQLite's error into ours, which says what to do."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    directory = path.parent
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        raise ConfigurationError(
            f"SEB_STATE_DIR: the state directory {directory} is in use by another bridge; stop "
            "that one, or give this one a directory of its own"
        ) from error
    if code == sqlite3.SQLITE_FULL:
        with suppress(OSError):
            (directory / BALLAST_NAME).unlink()
        raise TryLaterError(
            f"SEB_STATE_DIR: the disk under {directory} is full; free some space and start again"
        ) from error
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        raise _DamagedError(str(error)) from error
    raise ConfigurationError(
        f"SEB_STATE_DIR: the store {path} cannot be opened ({error}); this user must be able to "
        "write to the directory and every file in it"
    ) from error


def _put_aside(path: Path, now: datetime, *, reason: str) -> StoreReset:
    previous = _stream_of(path)
    kept = path.with_name(f"{path.name}.{now:%Y%m%dT%H%M%S%f}.kept")
    try:
        path.rename(kept)
        for suffix in ("-wal", "-shm"):
            extra = path.with_name(path.name + suffix)
            if extra.exists():
                extra.rename(kept.with_name(kept.name + suffix))
        host.sync_directory(path.parent)
    except OSError as error:
        raise ConfigurationError(
            f"SEB_STATE_DIR: the store {path} is damaged ({reason}) and cannot be renamed "
            f"({error.strerror}); move it away by hand"
        ) from error
    return StoreReset(reason=reason, previous_stream=previous, kept_as=kept.name)


def _stream_of(path: Path) -> str | None:
    """The stream id of a damaged store, if it can still be read."""
    with suppress(sqlite3.Error), closing(sqlite3.connect(path, timeout=1)) as connection:
        row = connection.execute("SELECT value FROM meta WHERE key = 'stream'").fetchone()
        return str(row[0]) if row else None
    return None
