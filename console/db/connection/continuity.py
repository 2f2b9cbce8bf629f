"""Whether the database still has everything that this console has read and written.

A server that fails over to a copy which lagged, or that is put back to a backup, loses the last
transactions. What VMs told in them comes again only if it is asked for.
"""

from __future__ import annotations

import threading


class Continuity:
    """Compares the numbers of transactions, which only grow. May be used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._breaks = 0
        self._noted = 0
        self.newest = 0
        """The highest number of a committed transaction that this console has seen."""

    @property
    def has_break(self) -> bool:
        """Whether transactions were lost, and what VMs told in them was not asked for yet."""
        return self._breaks != self._noted

    def begin_write(self, change_number: int) -> None:
        """Check the number that a transaction has got."""
        with self._lock:
            if change_number <= self.newest:
                self._go_back(change_number - 1)

    def end_write(self, change_number: int) -> None:
        """Note that a transaction was committed."""
        with self._lock:
            self.newest = max(self.newest, change_number)

    def end_read(self, change_number: int, *, newest_before: int) -> None:
        """Check the newest number that was read; `newest_before`: what `newest` was when the
        transaction began.
        """
        with self._lock:
            if change_number < newest_before and change_number < self.newest:
                self._go_back(change_number)
            self.newest = max(self.newest, change_number)

    def breaks(self) -> int:
        """Return how often transactions were lost, for `note`."""
        with self._lock:
            return self._breaks

    def note(self, breaks: int) -> None:
        """Note that what was lost in so many breaks is being asked for."""
        with self._lock:
            self._noted = breaks

    def _go_back(self, change_number: int) -> None:
        self._breaks += 1
        self.newest = change_number
