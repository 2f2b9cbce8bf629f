"""The newest sequence that was ever committed, noted beside the store: a store that has gone back
shows by it. It never says more than was committed, and may say less.

SQLite takes a log whose end is damaged or cut off for one that ends there: what was committed last
would be gone without a word, its numbers would be given out again, and used commands forgotten.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

FILE_NAME: Final = "newest"


class Tidemark:
    """One line of a stream and a sequence. Not synced: after a power cut it may be an older one."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE_NAME

    def note(self, stream: str, sequence: int) -> None:
        """Note what has just been committed; where that cannot be, an older note is left."""
        line = f"{stream} {sequence:020d}\n".encode()
        # In place: it must not need room on a full disk.
        how = "r+b" if self._path.exists() else "xb"
        with suppress(OSError), self._path.open(how, buffering=0) as file:
            file.write(line)

    def of(self, stream: str) -> int:
        """What was noted last, if it was of this stream; 0 where there is nothing of it."""
        noted, sequence = self._read()
        return sequence if noted == stream else 0

    @property
    def newest(self) -> int:
        """What was noted last, of whatever stream; 0 where nothing can be read."""
        return self._read()[1]

    def _read(self) -> tuple[str, int]:
        with suppress(OSError, ValueError):
            stream, sequence = self._path.read_text(encoding="ascii").split()
            return stream, int(sequence)
        return "", 0
