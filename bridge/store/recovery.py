"""Recovery from a lost or damaged store: it is renamed, and the reset is reported."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from bridge import system
from bridge.store.database import (
    CONDEMNED_AGAIN,
    CONDEMNED_NAME,
    POLLED_NAME,
    is_condemned,
    last_polled,
)
from sinks.shared.errors import unusable_file
from wire.bridge import StoreReset

_UNREADABLE_NAME: Final = "unreadable"
"""The name of the file with the time since when the store cannot be read."""
_UNREADABLE_TIME: Final = timedelta(minutes=10)
_STAMP: Final = "%Y%m%dT%H%M%S%f"
"""The time in the name of a store that was set aside, in UTC."""


class DamagedError(Exception):
    """The file is damaged, or not a store of the bridge."""


class UnreadableError(DamagedError):
    """The disk gave an error for a part of the file, which may pass."""


def is_long_unreadable(directory: Path, now: datetime) -> bool:
    """Check whether the store in a directory could not be read for so long, over several starts,
    that its disk will not read it any more. Raises `OSError`.
    """
    note = directory / _UNREADABLE_NAME
    with suppress(FileNotFoundError, ValueError):
        age = now - datetime.fromisoformat(note.read_text(encoding="ascii"))
        if age >= timedelta(0):
            return age >= _UNREADABLE_TIME
    note.write_text(now.isoformat(), encoding="ascii")
    return False


def forget_unreadable(directory: Path) -> None:
    """Note that the store can be read again. Raises `OSError`."""
    (directory / _UNREADABLE_NAME).unlink(missing_ok=True)


def find_lost(path: Path, now: datetime) -> StoreReset | None:
    """Return the reset to report if a store was in use here and its file is gone or empty."""
    if path.exists() and (not path.is_file() or path.stat().st_size):
        return None
    left = path.with_name(f"{path.name}-wal")
    kept = None
    if left.exists() and left.stat().st_size:
        # SQLite deletes a log without its file, and with it what was committed last.
        kept = _kept_name(path, now).name + "-wal"
        left.rename(path.with_name(kept))
    elif unreported := find_unreported(path):
        return unreported
    elif not (path.parent / POLLED_NAME).exists():
        return None
    reason = "the file is empty" if path.exists() else "the file is missing"
    return StoreReset(reason=reason, previous_stream=None, kept_as=kept)


def find_unreported(path: Path) -> StoreReset | None:
    """Return the reset to report if an earlier start renamed the store, and ended before it had
    stored that fact.
    """
    kept = max(path.parent.glob(f"{path.name}.*.kept"), default=None)
    if kept is None:
        return None
    with suppress(ValueError):
        aside = datetime.strptime(kept.name.split(".")[-2], _STAMP).replace(tzinfo=UTC)
        polled = last_polled(path.parent)
        # A bridge that has polled since has reported it.
        if polled is None or polled <= aside:
            reason = "it was damaged, and set aside by a start that did not complete"
            return StoreReset(reason=reason, previous_stream=_stream_of(kept), kept_as=kept.name)
    return None


def refuse_condemned(path: Path) -> None:
    """Raise `DamagedError` if the path is not a file, or if the store was found damaged while in
    use, again within an hour after a check had found it sound.
    """
    if not path.exists():
        (path.parent / CONDEMNED_NAME).unlink(missing_ok=True)
        return
    if not path.is_file():
        raise DamagedError("it is not a file, but a directory or a device")
    if is_condemned(path.parent, CONDEMNED_AGAIN):
        raise DamagedError("the store was found damaged while in use")


def put_file_aside(path: Path, now: datetime, *, reason: str) -> StoreReset:
    """Rename a store's file, and the files that SQLite keeps beside it. Raises
    `ConfigurationError`.
    """
    kept = _kept_name(path, now)
    try:
        # The file first: the next start finds a log without its file, but a file without its log
        # looks like a whole store that is older.
        path.rename(kept)
        for suffix in ("-wal", "-shm"):
            extra = path.with_name(path.name + suffix)
            if extra.exists():
                extra.rename(kept.with_name(kept.name + suffix))
        (path.parent / CONDEMNED_NAME).unlink(missing_ok=True)
        system.sync_directory(path.parent)
    except OSError as error:
        what = f"SEB_STATE_DIR: the store {path} is damaged ({reason}) and cannot be renamed"
        raise unusable_file(what, error, "move it away by hand") from error
    return StoreReset(reason=reason, previous_stream=_stream_of(kept), kept_as=kept.name)


def _kept_name(path: Path, now: datetime) -> Path:
    return path.with_name(f"{path.name}.{now.astimezone(UTC):{_STAMP}}.kept")


def _stream_of(path: Path) -> str | None:
    """Return the stream id of a damaged store, if it can be read; the file is not changed."""
    address = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
    with (
        suppress(sqlite3.Error, ValueError),
        closing(sqlite3.connect(address, uri=True)) as connection,
    ):
        row = connection.execute("SELECT value FROM meta WHERE key = 'stream'").fetchone()
        return str(row[0]) if row else None
    return None
