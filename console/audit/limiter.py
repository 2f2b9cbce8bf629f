"""Limits refused attempts in the audit and the log: the first of each kind at once, then one a
minute.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

_SAME_SECONDS: Final = 60.0
"""The time between two rows of one kind."""
_BURST_ROWS: Final = 60
_PER_SECOND: Final = 1 / 30
"""The rate of all kinds together, after the burst: a megabyte a day."""
_MAX_KINDS: Final = 1000


class AuditLimiter:
    """Decides which attempts are written, and counts the others; may be used from any thread."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._kinds: dict[tuple[str, ...], float] = {}
        """When a row of each kind was written last, the oldest first."""
        self._rows = float(_BURST_ROWS)
        self._filled_at = monotonic()
        self._unwritten = 0
        self._lock = threading.Lock()

    def passes(self, *kind: str) -> int | None:
        """Return, if this attempt is to be written, how many were not written since the last row;
        otherwise count it and return None.
        """
        with self._lock:
            if not self._may_write(kind):
                self._unwritten += 1
                return None
            unwritten = self._unwritten
            self._unwritten = 0
            return unwritten

    def count(self, unwritten: int) -> None:
        """Add attempts that should have been written and were not."""
        with self._lock:
            self._unwritten += unwritten

    def _may_write(self, kind: tuple[str, ...]) -> bool:
        now = self._monotonic()
        self._rows = min(_BURST_ROWS, self._rows + (now - self._filled_at) * _PER_SECOND)
        self._filled_at = now
        if now - self._kinds.get(kind, float("-inf")) < _SAME_SECONDS or self._rows < 1:
            return False
        self._rows -= 1
        self._kinds.pop(kind, None)
        self._kinds[kind] = now
        if len(self._kinds) > _MAX_KINDS:
            del self._kinds[next(iter(self._kinds))]
        return True
