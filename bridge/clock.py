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


class DeadlineTime:
    """The time by which the deadline of an event is measured: by the wall clock as it was when the
    event was first seen. A clock that is set back delays nothing, and one that is set forward
    counts once it has gone on for `STOOD_SECONDS` without being set: until then it may be wrong, as
    after a boot. Any thread may call it.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        since: datetime,
        uptime_then: float | None,
        is_same_boot: bool,
        least: datetime | None = None,
    ) -> None:
        """`since`: when the event was first seen; `uptime_then`: the same by the machine's uptime,
        if it was stored. `least`: a time that the wall clock had reached before a boot.
        """
        self._clock = clock
        self._lock = threading.Lock()
        self._counted_from = uptime(clock)
        self._set_at = (clock.now(), self._counted_from)
        """The clocks when the wall clock was first seen as it goes now."""
        # After a boot the uptime is lower than before, or too low for the time that has passed.
        passed = 0.0 if uptime_then is None else max(0.0, self._counted_from - uptime_then)
        counted = since + timedelta(seconds=passed)
        # Within one boot the uptime alone tells how much time has passed.
        self._is_known = is_same_boot and uptime_then is not None
        self._counted = counted if self._is_known else max(counted, least or counted)

    def now(self) -> datetime:
        """Return the time."""
        with self._lock:
            wall, up = self._clock.now(), uptime(self._clock)
            wall_then, up_then = self._set_at
            if abs((wall - wall_then).total_seconds() - (up - up_then)) >= _SET_SECONDS:
                up_then = up
                self._set_at = (wall, up)
            counted = self._counted + timedelta(seconds=up - self._counted_from)
            if up - up_then < STOOD_SECONDS:
                return counted
            time_now = max(wall, counted)
            if not self._is_known:
                self._is_known = True
                self._counted, self._counted_from = time_now, up
            return time_now
