"""The clock as an argument: the wall clock for people, the monotonic clock for waiting."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

from bridge import system

STOOD_SECONDS: Final = 30.0
"""How long a wall clock must go on without being set until it counts as right."""
_SET_SECONDS: Final = 1.0


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
    """The wall clock from one moment on, although it may be wrong. If it is set back, the time that
    has passed stays passed, also before this run. If it is set forward, that counts once it has
    gone on for `trusted_after` seconds without being set. Any thread may call it.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        since: datetime | None = None,
        uptime_then: float | None = None,
        is_same_boot: bool = False,
        least: datetime | None = None,
        trusted_after: float = 0.0,
    ) -> None:
        """`since`: that moment by the wall clock, now if it is not given; `uptime_then`: the same
        by the machine's uptime, if it was stored; `is_same_boot`: whether that was the uptime of
        this boot. `least`: a time that an earlier run's wall clock had reached.
        """
        self._clock = clock
        self._lock = threading.Lock()
        self._trusted_after = trusted_after
        self._counted_from = uptime(clock)
        self._set_at = (clock.now(), self._counted_from)
        """The clocks when the wall clock was first seen as it goes now."""
        # After a boot the uptime is lower than before, or too low for the time that has passed.
        passed = 0.0 if uptime_then is None else max(0.0, self._counted_from - uptime_then)
        counted = (since or self._set_at[0]) + timedelta(seconds=passed)
        # Within one boot the uptime alone tells how much time has passed.
        self._is_known = is_same_boot and uptime_then is not None
        self._counted = counted if self._is_known else max(counted, least or counted)
        self.now()  # the wall clock of this moment counts, even if it is set back before the next

    def now(self) -> datetime:
        """Return the time; later than the wall clock if that was set back."""
        with self._lock:
            wall, up = self._clock.now(), uptime(self._clock)
            wall_then, up_then = self._set_at
            if abs((wall - wall_then).total_seconds() - (up - up_then)) >= _SET_SECONDS:
                up_then = up
                self._set_at = (wall, up)
            counted = self._counted + timedelta(seconds=up - self._counted_from)
            if up - up_then < self._trusted_after:
                return counted
            time_now = max(wall, counted)
            if not self._is_known:
                self._is_known = True
                self._counted, self._counted_from = time_now, up
            return time_now
