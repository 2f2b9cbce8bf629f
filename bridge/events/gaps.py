"""When IMDS was last looked at, and what kept the bridge from looking: gaps, restarts, pauses."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from bridge.clock import Clock

GapReason = Literal["restart", "reboot", "pause", "imds"]

LONG_SECONDS: Final = 10.0
"""A gap is worth a record where nobody looked for longer than this, and than three intervals."""
LOOKING_SECONDS: Final = 5.0
"""How old the last good look may be, or three intervals, to say how an event vanished."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """What lies between the last good look and this one."""

    seconds: float | None
    """None before the first look ever."""
    since: datetime | None
    is_long: bool
    looking: bool
    """Whether somebody looked all the while, so that how an event vanished was seen."""
    reason: GapReason
    restarted: bool
    """Whether this is the first look since the VM booted."""
    pause_seconds: float
    """How long the VM was measured to stand still meanwhile; 0.0 for not at all."""


class GapTracker:
    """Keeps the time of the looks. `stood_still` may be called from any thread."""

    def __init__(
        self, clock: Clock, *, interval: float, looked_at: datetime | None, rebooted: bool | None
    ) -> None:
        self.rebooted = rebooted
        """Whether the VM booted since the last run; None where that cannot be known."""
        self.looked_at = looked_at
        self._clock = clock
        self._interval = interval
        self._monotonic: float | None = None
        self._lock = threading.Lock()
        self._pause = 0.0

    def gap(self, now: datetime) -> Gap:
        """The gap that a look at this moment ends."""
        seconds = self._seconds(now)
        first = self._monotonic is None
        with self._lock:
            pause = self._pause
        longest = 3 * self._interval
        return Gap(
            seconds=seconds,
            since=None if seconds is None else self._since(now, seconds),
            is_long=seconds is not None and seconds > max(LONG_SECONDS, longest),
            # Between two runs nobody looked, however short that was, and the wall clock that
            # measures it may have been set.
            looking=not first and seconds is not None and seconds <= max(LOOKING_SECONDS, longest),
            reason=self._reason(first=first, pause=pause, seconds=seconds),
            restarted=first and bool(self.rebooted),
            pause_seconds=pause,
        )

    def is_looking(self) -> bool:
        """Whether this run's last good look is recent: not longer ago than a gap worth a record."""
        looked = self._monotonic
        if looked is None:
            return False
        return self._clock.monotonic() - looked <= max(LONG_SECONDS, 3 * self._interval)

    def looked(self, now: datetime, gap: Gap) -> None:
        """A good look at this moment has ended the gap, and what it told is committed."""
        self.looked_at = now
        self._monotonic = self._clock.monotonic()
        with self._lock:
            self._pause = max(0.0, self._pause - gap.pause_seconds)

    def stood_still(self, seconds: float) -> None:
        """The VM was measured to stand still for so many seconds."""
        with self._lock:
            self._pause += seconds

    def _seconds(self, now: datetime) -> float | None:
        """By the monotonic clock; across runs only the wall clock can tell."""
        if self._monotonic is not None:
            return self._clock.monotonic() - self._monotonic
        if self.looked_at is not None:
            return max(0.0, (now - self.looked_at).total_seconds())
        return None

    def _since(self, now: datetime, seconds: float) -> datetime | None:
        try:
            return now - timedelta(seconds=seconds)
        except OverflowError:
            return self.looked_at

    def _reason(self, *, first: bool, pause: float, seconds: float | None) -> GapReason:
        if first:
            return "reboot" if self.rebooted else "restart"
        return "pause" if pause > (seconds or 0.0) / 2 else "imds"
