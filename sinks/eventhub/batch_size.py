"""How many records one send may hold, learnt from how long sends take.

It never gives up on a line: at the slowest, records go one by one.
"""

from __future__ import annotations


class BatchSize:
    """A size that halves if an answer does not come in time, and doubles if it comes soon.

    Without it a backlog would never get over a line that is too slow for a full batch within one
    send's time: the same records would go out again and again.
    """

    def __init__(self, *, most: int, seconds: float) -> None:
        """`most` records at best; `seconds` is what one send may take."""
        self._most = most
        self._soon = seconds / 4  # so that twice as many still take no more than half of it
        self.size = most
        """How many records the next send may hold, 1 at least."""

    def sent(self, seconds: float) -> None:
        """A send was acknowledged after so many seconds."""
        if seconds <= self._soon:
            self.size = min(self._most, self.size * 2)

    def failed(self, records: int) -> None:
        """A send of so many records ended without an answer."""
        self.size = max(1, min(self.size, records) // 2)
