"""What is worth counting while the bridge works, as the parts tell it; it counts nothing itself.

The parts know this and no library of metrics: without an HTTP server, none is loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sinks.record import EventRecord


class Tally:
    """Hears of what happened, from any thread, and must not hold it up."""

    def polled(self, seconds: float, trouble: str | None) -> None:
        """A poll has ended after so many seconds; `trouble` is the reason where it brought none."""

    def committed(self, records: Sequence[EventRecord]) -> None:
        """Records are on disk."""

    def delivered(self, sink: str, lags: Sequence[float]) -> None:
        """A sink has acknowledged records, each so many seconds after it was committed."""

    def stood_still(self, seconds: float) -> None:
        """The VM was measured to stand still."""

    def jumped(self, seconds: float) -> None:
        """The wall clock was set, by so many seconds."""


SILENT: Final = Tally()
"""For where nobody counts."""
