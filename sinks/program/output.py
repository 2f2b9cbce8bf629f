"""The end of what a program says, for a person. It never keeps more than its limit of bytes."""

from __future__ import annotations

from typing import Final

from sinks.readable import escaped

KEPT_BYTES: Final = 2048
SHOWN_CHARACTERS: Final = 300
"""The bridge keeps the first 500 characters of a reason; what a program said last is the best part
of it, and must fit in with the words before it.
"""


class Tail:
    """The last bytes of a stream. One thread adds, any may read."""

    def __init__(self) -> None:
        self._kept = b""

    def add(self, data: bytes) -> None:
        """Take in some more."""
        self._kept = (self._kept + data[-KEPT_BYTES:])[-KEPT_BYTES:]

    def text(self) -> str:
        """The end of it on one line, lines parted by a bar, with nothing that a terminal obeys."""
        lines = (line.strip() for line in self._kept.decode(errors="replace").splitlines())
        text = escaped(" | ".join(line for line in lines if line))
        return text if len(text) <= SHOWN_CHARACTERS else f"…{text[1 - SHOWN_CHARACTERS :]}"
