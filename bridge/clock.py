"""The clock, as an argument: the wall clock for people, the monotonic one for waiting."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """What tells the time; tests give one that they move by hand."""

    def now(self) -> datetime:
        """The wall clock, in UTC. It may jump in either direction."""

    def monotonic(self) -> float:
        """Seconds since some moment; never goes back, whatever happens to the wall clock."""


class SystemClock:
    """The clock of this machine."""

    def now(self) -> datetime:
        """The wall clock, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds since some moment in the past."""
        return time.monotonic()
