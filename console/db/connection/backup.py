"""Copies the SQLite database while a console writes to it."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from console.db.connection.errors import DatabaseFailedError


def copy(source: Path, target: Path) -> None:
    """Write a consistent copy, checked and synced to disk, that only its owner can read. Raises
    `OSError`, or `DatabaseFailedError` if the database or its copy is damaged.
    """
    target.unlink(missing_ok=True)
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    try:
        with (
            closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True)) as database,
            closing(sqlite3.connect(target)) as made,
        ):
            # All pages in one step: a write of the console between two steps would restart the
            # copy.
            database.backup(made)
            made.execute("PRAGMA journal_mode=DELETE")
            (result,) = made.execute("PRAGMA quick_check").fetchone()
    except sqlite3.Error as error:
        raise DatabaseFailedError(str(error)) from None
    if result != "ok":
        raise DatabaseFailedError(f"the copy is damaged: {result}")
    with target.open("rb") as stream:
        os.fsync(stream.fileno())
