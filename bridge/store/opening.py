"""Opens the store: makes it, locks it, or renames it if it is damaged; nothing is ever deleted."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Final, NoReturn

from bridge import system
from bridge.store.ballast import Ballast
from bridge.store.database import (
    CONDEMNED,
    CONDEMNED_NAME,
    FOUND_SOUND,
    PREPARATIONS_LOST_KEY,
    RESET_KEY,
    Store,
    StoreError,
    is_condemned,
)
from bridge.store.recovery import (
    DamagedError,
    UnreadableError,
    find_lost,
    find_unreported,
    forget_unreadable,
    is_long_unreadable,
    put_file_aside,
    refuse_condemned,
)
from bridge.store.schema import SCHEMA_VERSION, are_sound, create_tables, migrate
from sinks.shared.errors import ConfigurationError, TryLaterError, unusable_file
from wire.bridge import StoreReset

__all__ = [
    "FILE_NAME",
    "LOCK_WAIT_SECONDS",
    "DamagedError",
    "EarlierVersionError",
    "open_existing",
    "open_store",
    "put_aside",
]

FILE_NAME: Final = "seb.db"
_RESET_FIELDS: Final = ("reason", "previous_stream", "kept_as")
LOCK_WAIT_SECONDS: Final = 5.0
"""How long a start waits for a predecessor that is ending."""

_CODE: Final = re.compile(r"error code=([0-9]+)")
_PAUSES: Final = (0.1, 1.0)
"""The seconds before each further try to read a store whose disk gave an error: it may pass, and a
sound store must not be set aside for it.
"""
_CHECK_BYTES: Final = 64 << 20
"""A larger file is not checked at the start, which would take many seconds."""


class EarlierVersionError(TryLaterError):
    """The store is of an earlier version; that version can still use it."""


def open_store(
    directory: Path, now: datetime, *, wait: float = LOCK_WAIT_SECONDS
) -> tuple[Store, StoreReset | None]:
    """Open the store, waiting `wait` seconds for a predecessor; return it with the reset that is
    not reported yet, if there is one. Raises `ConfigurationError`, or `TryLaterError` for a disk
    that is full, or that does not read.
    """
    _make_directory(directory)
    path = directory / FILE_NAME
    with _usable(directory):
        reset = find_lost(path, now)
        try:
            refuse_condemned(path)
            store = _open_patiently(path, wait)
        except DamagedError as error:
            if isinstance(error, UnreadableError) and not _is_lost(path, now):
                raise _unreadable(path, error) from error
            reset = put_file_aside(path, now, reason=str(error))
            store = _open_new(path, wait)
        forget_unreadable(directory)
    return store, _unreported(store, reset)


def open_existing(directory: Path) -> Store:
    """Open the store of a bridge that does not run. Nothing is made, converted or put aside: this
    may be another account than the bridge's, which could not use what it made, or a newer version.
    Raises `DamagedError`, `EarlierVersionError`, or as `open_store`.
    """
    path = directory / FILE_NAME
    with _usable(directory):
        if path.is_file() and not path.stat().st_size:
            raise DamagedError("the file is empty")
        refuse_condemned(path)
        try:
            return _open(path, LOCK_WAIT_SECONDS, converts=False)
        except UnreadableError as error:
            raise _unreadable(path, error) from error


def _is_lost(path: Path, now: datetime) -> bool:
    """Check whether there is a store that its disk has not read for long."""
    return path.exists() and is_long_unreadable(path.parent, now)


def _open_new(path: Path, wait: float) -> Store:
    """Open the store that is made in the place of one that was renamed."""
    try:
        return _open(path, wait)
    except UnreadableError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: UnreadableError) -> TryLaterError:
    return TryLaterError(
        f"SEB_STATE_DIR: the disk under {path.parent} does not read or write just now ({error})",
        remedy="check the disk and start again",
    )


@contextmanager
def _usable(directory: Path) -> Iterator[None]:
    """Turn an error of the disk within the block into an error for people."""
    try:
        yield
    except OSError as error:
        what = f"SEB_STATE_DIR: the state directory {directory} cannot be used"
        raise unusable_file(what, error, "this user must own it and every file in it") from error


def put_aside(store: Store, now: datetime, *, reason: str) -> tuple[Store, StoreReset]:
    """Close a store that belongs to another VM, rename it, and open a new one."""
    store.close()
    path = store.directory / FILE_NAME
    reset = put_file_aside(path, now, reason=reason)
    store = _open_new(path, LOCK_WAIT_SECONDS)
    _unreported(store, reset)
    return store, reset


def _unreported(store: Store, reset: StoreReset | None) -> StoreReset | None:
    """Return the reset that is not reported yet. It is kept in the store, because the bridge may be
    killed before it has recorded it.
    """
    earlier = store.meta(RESET_KEY)
    if reset is None and earlier is None and not store.head:
        reset = find_unreported(store.directory / FILE_NAME)
    if reset is not None:
        try:
            store.commit(meta={RESET_KEY: json.dumps(asdict(reset)), PREPARATIONS_LOST_KEY: "true"})
        except StoreError as error:
            store.close()
            raise TryLaterError(f"SEB_STATE_DIR: {error}", remedy="is the disk full?") from error
        return reset
    kept = json.loads(earlier or "null")
    # By name: version 0.1.0 kept more of it.
    return None if kept is None else StoreReset(**{key: kept[key] for key in _RESET_FIELDS})


def _make_directory(directory: Path) -> None:
    try:
        existed = directory.exists()
        # Also for Windows, where Python takes this mode for: owner, SYSTEM and administrators.
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not existed:
            system.make_private(directory)
            system.sync_directory(directory.parent)
    except OSError as error:
        what = f"SEB_STATE_DIR: the state directory {directory} cannot be made"
        remedy = "create it, or name one that this user may write to"
        raise unusable_file(what, error, remedy) from error


def _open_patiently(path: Path, wait: float) -> Store:
    """Open the store, and look again where a part of it cannot be read. SQLite takes some errors of
    a disk for damage, so the second look decides.
    """
    for pause in _PAUSES:
        try:
            return _open(path, wait)
        except UnreadableError:
            time.sleep(pause)
        except DamagedError:
            break
    return _open(path, wait)


def _open(path: Path, wait: float, *, converts: bool = True) -> Store:
    try:
        connection = _connect(path, wait, converts=converts)
    except sqlite3.Error as error:
        _explain(path, error)
    except UnicodeDecodeError as error:  # of SQLite's own words, with a damaged name in them
        raise DamagedError(f"its tables cannot be read: {error}") from error
    try:
        store = Store(path.parent, connection)
        # Read what a start reads, so that starts do not fail on it each time.
        store.last_seen()
        store.identity()
        _verify_head(store)
    except (StoreError, sqlite3.Error, LookupError, ValueError, TypeError, AttributeError) as error:
        connection.close()
        cause = error.__cause__ or error
        damage = _error_for(getattr(cause, "sqlite_errorcode", 0))
        raise damage(f"{type(error).__name__}: {error}") from error
    return store


def _connect(path: Path, wait: float, *, converts: bool) -> sqlite3.Connection:
    with suppress(OSError):  # SQLite says why, and gives its log the mode of the file
        path.touch(mode=0o600)
    connection = sqlite3.connect(path, timeout=wait, isolation_level=None, check_same_thread=False)
    # A damaged byte in a text must not make its row and all later ones unreadable.
    connection.text_factory = lambda text: text.decode(errors="replace")
    try:
        # Exclusive before WAL: one connection needs no shared memory, and holds the only lock.
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        # Not even a large answer needs a file outside the state directory.
        connection.execute("PRAGMA temp_store=MEMORY")
        connection.execute("PRAGMA journal_size_limit=4194304")
        connection.execute("BEGIN EXCLUSIVE")
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if not tables:
            create_tables(connection)
        elif 1 <= version < SCHEMA_VERSION:
            if not converts:
                _refuse_to_convert(path)
            migrate(connection)
        elif version != SCHEMA_VERSION:
            _refuse(path, version)
        connection.execute("COMMIT")
        if not tables:
            # Write it from the log into the file at once, so that the stream's id stays readable.
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        _verify(connection, path)
        system.make_private(path)
        system.sync_directory(path.parent)
    except BaseException:
        connection.close()
        raise
    return connection


def _verify(connection: sqlite3.Connection, path: Path) -> None:
    if not are_sound(connection):
        raise DamagedError("its tables are not those that were made")
    is_suspect = is_condemned(path.parent, "", CONDEMNED)
    if is_suspect or path.stat().st_size <= _CHECK_BYTES:
        check = "integrity_check" if is_suspect else "quick_check"
        (verdict,) = connection.execute(f"PRAGMA {check}(1)").fetchone()
        if verdict != "ok":
            found = _CODE.search(verdict)
            damage = DamagedError if found is None else _error_for(int(found[1]))
            raise damage(f"the integrity check says: {verdict}")
    if is_suspect:
        with suppress(OSError):
            (path.parent / CONDEMNED_NAME).write_text(FOUND_SOUND, encoding="ascii")


def _error_for(code: int) -> type[DamagedError]:
    """Return the error for a code of SQLite, with which a page could not be read."""
    return UnreadableError if code & 0xFF == sqlite3.SQLITE_IOERR else DamagedError


def _refuse_to_convert(path: Path) -> NoReturn:
    raise EarlierVersionError(
        f"SEB_STATE_DIR: the store {path} is of an earlier version",
        remedy="start the bridge, which converts it",
    )


def _refuse(path: Path, version: int) -> NoReturn:
    raise ConfigurationError(
        f"SEB_STATE_DIR: the store {path} was written by another version (its schema is "
        f"{version}, this program's {SCHEMA_VERSION})",
        remedy="run that version, or name another state directory",
    )


def _verify_head(store: Store) -> None:
    """Raise `ValueError` if a record or a cursor is beyond the newest sequence."""
    ((newest,),) = store.read("SELECT max(sequence) FROM records")
    if newest is not None and newest > store.head:
        raise ValueError(f"record {newest} is beyond the newest, {store.head}")
    for name, cursor in store.read(
        "SELECT name, cursor FROM sinks WHERE cursor > ?", (store.head,)
    ):
        raise ValueError(f"the cursor of {name}, {cursor}, is beyond the newest, {store.head}")


def _explain(path: Path, error: sqlite3.Error) -> NoReturn:
    """Return this project's error, with its remedy, for an error of SQLite."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    directory = path.parent
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        # A predecessor may hang on its disk, and end only after this wait: try again later.
        raise TryLaterError(
            f"SEB_STATE_DIR: the state directory {directory} is in use by another bridge",
            remedy="stop that one, or give this one a directory of its own",
        ) from error
    if code == sqlite3.SQLITE_FULL:
        Ballast(directory).release()
        raise TryLaterError(
            f"SEB_STATE_DIR: the disk under {directory} is full",
            remedy="free some space and start again",
        ) from error
    # SQLite reports an I/O error for a read-only disk, too.
    if code == sqlite3.SQLITE_IOERR and os.access(path if path.exists() else directory, os.W_OK):
        raise UnreadableError(str(error)) from error
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        raise DamagedError(str(error)) from error
    raise ConfigurationError(
        f"SEB_STATE_DIR: the store {path} cannot be opened ({error})",
        remedy="this user must be able to write to the directory and every file in it",
    ) from error
