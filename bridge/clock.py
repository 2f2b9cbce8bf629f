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


def uptime(clock: Clock) -> float:
    """Seconds that the machine has been up, suspended ones included; every process has the same."""
    return clock.monotonic() + clock.suspended()


class SteadyTime:
    """The wall clock from one moment on, as far as it is not set back: what has passed since then
    has passed, also before this run.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        since: datetime | None = None,
        uptime_then: float | None = None,
        least: datetime | None = None,
    ) -> None:
        """`since`: that moment by the wall clock, and `uptime_then` by the machine's uptime, if it
        was kept. `least`: it was this time already, by the wall clock of an earlier run.
        """
        self._clock = clock
        self._begun_at = uptime(clock)
        begun = clock.now()
        if since is not None:
            # After a boot the uptime is less, or tells less than has passed.
            passed = self._begun_at - (self._begun_at if uptime_then is None else uptime_then)
            begun = max(begun, since + timedelta(seconds=max(0.0, passed)))
        self._begun = max(begun, least or begun)

    def now(self) -> datetime:
        """The time; later than the wall clock where that was set back."""
        passed = timedelta(seconds=uptime(self._clock) - self._begun_at)
        return max(self._clock.now(), self._begun + passed)
