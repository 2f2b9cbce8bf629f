"""When IMDS was last polled, and what prevented it: gaps, restarts, pauses."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from bridge.clock import Clock

GapReason = Literal["restart", "reboot", "pause", "imds"]

LONG_SECONDS: Final = 10.0
"""A gap longer than this, and than three intervals, gets a record."""
LOOKING_SECONDS: Final = 5.0
"""How old the last good poll may be, or three intervals, to tell how an event ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """The time between the last good poll and this one."""

    seconds: float | None
    """None before the first poll."""
    since: datetime | None
    is_long: bool
    looking: bool
    """Whether polls went on all the time, so that it was seen how an event disappeared."""
    reason: GapReason
    restarted: bool
    """Whether this is the first poll since the VM booted."""
    pause_seconds: float
    """How long the VM was paused meanwhile, as measured; 0.0 if it was not."""


class GapTracker:
    """Keeps the time of the polls. `stood_still` may be called from any thread."""

    def __init__(
        self, clock: Clock, *, interval: float, looked_at: datetime | None, rebooted: bool | None
    ) -> None:
        self.rebooted = rebooted
        """Whether the VM booted since the last run; None if that is not known."""
        self.looked_at = looked_at
        self._clock = clock
        self._interval = interval
        self._monotonic: float | None = None
        self._lock = threading.Lock()
        self._pause = 0.0

    def gap(self, now: datetime) -> Gap:
        """The gap that a poll at this moment ends."""
        seconds = self._seconds(now)
        first = self._monotonic is None
        with self._lock:
            pause = self._pause
        longest = 3 * self._interval
        return Gap(
            seconds=seconds,
            since=None if seconds is None else self._since(now, seconds),
            is_long=seconds is not None and seconds > max(LONG_SECONDS, longest),
            # Between two runs there were no polls, and the wall clock may have been set.
            looking=not first and seconds is not None and seconds <= max(LOOKING_SECONDS, longest),
            reason=self._reason(first=first, pause=pause, seconds=seconds),
            restarted=first and bool(self.rebooted),
            pause_seconds=pause,
        )

    def is_looking(self) -> bool:
        """Whether this run's last good poll is recent: not longer ago than a long gap."""
        looked = self._monotonic
        if looked is None:
            return False
        return self._clock.monotonic() - looked <= max(LONG_SECONDS, 3 * self._interval)

    def looked(self, now: datetime, gap: Gap) -> None:
        """A good poll has ended the gap, and its changes are committed."""
        self.looked_at = now
        self._monotonic = self._clock.monotonic()
        with self._lock:
            self._pause = max(0.0, self._pause - gap.pause_seconds)

    def stood_still(self, seconds: float) -> None:
        """The VM was paused for so many seconds."""
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
