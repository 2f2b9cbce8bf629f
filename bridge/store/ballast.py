"""A file that only takes up space, to be deleted when the disk is full."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Final

FILE_NAME: Final = "ballast"
SIZE_BYTES: Final = 1 << 20
ROOM_BYTES: Final = 8 * SIZE_BYTES
"""How much must be free before the ballast is made: it must not itself fill the disk."""


class Ballast:
    """Reserved space, which lets SQLite's DELETE and INSERT work on a full disk. Errors of this
    file are ignored.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE_NAME
        self._there = self._path.exists()

    def reserve(self) -> None:
        """Make the file if it is missing and the disk has room; costs nothing if it exists."""
        if self._there:
            return
        with suppress(OSError):
            if shutil.disk_usage(self._path.parent).free < ROOM_BYTES:
                return
            # Random bytes: a disk that compresses would store zeros in no space at all.
            self._path.touch(mode=0o600)
            self._path.write_bytes(os.urandom(SIZE_BYTES))
            self._there = True

    def release(self) -> None:
        """Delete the file, to free its space."""
        self._there = False
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
