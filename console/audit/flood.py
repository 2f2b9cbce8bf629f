"""A bound for refused attempts, in the audit and the log: each kind at once, then once a minute."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

_SAME_SECONDS: Final = 60.0
"""Between two rows of one kind."""
_BURST: Final = 60
_PER_SECOND: Final = 1 / 30
"""Rows of all kinds together, after the burst: a megabyte a day."""
_KINDS: Final = 1000


class Flood:
    """Says what is to be written, and counts the rest; from any thread."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._kinds: dict[tuple[str, ...], float] = {}
        """When a row of each kind was written last, the oldest first."""
        self._rows = float(_BURST)
        self._filled_at = monotonic()
        self._unwritten = 0
        self._lock = threading.Lock()

    def passes(self, *kind: str) -> int | None:
        """How many were counted since the last row, if this one is to be written; None if not."""
        with self._lock:
            if not self._may_write(kind):
                self._unwritten += 1
                return None
            unwritten, self._unwritten = self._unwritten, 0
            return unwritten

    def count(self, unwritten: int) -> None:
        """So many more could not be written."""
        with self._lock:
            self._unwritten += unwritten

    def _may_write(self, kind: tuple[str, ...]) -> bool:
        now = self._monotonic()
        self._rows = min(_BURST, self._rows + (now - self._filled_at) * _PER_SECOND)
        self._filled_at = now
        if now - self._kinds.get(kind, float("-inf")) < _SAME_SECONDS or self._rows < 1:
            return False
        self._rows -= 1
        self._kinds.pop(kind, None)
        self._kinds[kind] = now
        if len(self._kinds) > _KINDS:
            del self._kinds[next(iter(self._kinds))]
        return True
