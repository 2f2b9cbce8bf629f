"""The clock, as an argument: the wall clock for people, the monotonic one for waiting."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

from bridge import system


class Clock(Protocol):
    """The clocks of this machine; tests give one that they move by hand."""

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
        """Suspended seconds as Linux counts them; 0.0 elsewhere, as on Windows, where `monotonic`
        goes on.
        """
        return system.suspended()


class SteadyTime:
    """The wall clock from one moment on, as far as it is not set back: what has passed since then
    has passed.
    """

    def __init__(self, clock: Clock, *, least: datetime | None = None) -> None:
        """`least`: it was this time already, by the wall clock of an earlier run."""
        self._clock = clock
        now = clock.now()
        self._begun = max(now, least or now)
        self._begun_at = self._elapsed()

    def now(self) -> datetime:
        """The time; later than the wall clock where that was set back."""
        passed = timedelta(seconds=self._elapsed() - self._begun_at)
        return max(self._clock.now(), self._begun + passed)

    def _elapsed(self) -> float:
        return self._clock.monotonic() + self._clock.suspended()
