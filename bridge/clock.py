"""The clock, as an argument: the wall clock for people, the monotonic one for waiting."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol

from bridge import system


class Clock(Protocol):
    """What tells the time; tests give one that they move by hand."""

    def now(self) -> datetime:
        """The wall clock, in UTC. It may jump in either direction."""

    def monotonic(self) -> float:
        """Seconds since some moment; never goes back, whatever happens to the wall clock."""

    def suspended(self) -> float:
        """Seconds that the machine has been suspended since it booted, as far as `monotonic` stood
        still meanwhile; exact to some milliseconds.
        """


class SystemClock:
    """The clock of this machine."""

    def now(self) -> datetime:
        """The wall clock, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds since some moment in the past."""
        return time.monotonic()

    def suspended(self) -> float:
        """What Linux counts; 0.0 elsewhere, as on Windows, where `monotonic` goes on."""
        return system.suspended()
