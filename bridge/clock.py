"""The clock as an argument: the wall clock for people, the monotonic clock for waiting."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

from bridge import system


class Clock(Protocol):
    """The clocks of this machine; tests pass one that they move by hand."""

    def now(self) -> datetime:
        """Return the wall clock's time, in UTC. It may jump in either direction."""

    def monotonic(self) -> float:
        """Return the seconds since some moment; it never goes back, even if the wall
        clock is set.
        """

    def suspended(self) -> float:
        """Return the seconds since the boot in which the machine was suspended and `monotonic`
        stood still; exact to a few milliseconds.
        """


class SystemClock:
    """The clock of this machine."""

    def now(self) -> datetime:
        """Return the wall clock's time, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return the seconds since some moment in the past."""
        return time.monotonic()

    def suspended(self) -> float:
        """Return the suspended seconds as Linux counts them; 0.0 elsewhere, as on Windows, where
        `monotonic` includes them.
        """
        return system.suspended()


def uptime(clock: Clock) -> float:
    """Return the seconds since the machine's boot, including suspensions; every process has the
    same.
    """
    return clock.monotonic() + clock.suspended()


class SteadyTime:
    """The wall clock from one moment on, without being set back: time that has passed since then
    stays passed, even from before this run.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        since: datetime | None = None,
        uptime_then: float | None = None,
        least: datetime | None = None,
    ) -> None:
        """`since`: that moment by the wall clock; `uptime_then`: the same by the machine's uptime,
        if it was stored. `least`: a time that an earlier run's wall clock had reached.
        """
        self._clock = clock
        self._begun_at = uptime(clock)
        begun = clock.now()
        if since is not None:
            # After a boot the uptime is lower than before, or too low for the time that has passed.
            passed = self._begun_at - (self._begun_at if uptime_then is None else uptime_then)
            begun = max(begun, since + timedelta(seconds=max(0.0, passed)))
        self._begun = max(begun, least or begun)

    def now(self) -> datetime:
        """Return the time; later than the wall clock if that was set back."""
        passed = timedelta(seconds=uptime(self._clock) - self._begun_at)
        return max(self._clock.now(), self._begun + passed)
