"""When IMDS was last polled, and what prevented polls: gaps, restarts, pauses."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from bridge.clock import Clock

GapReason = Literal["restart", "reboot", "pause", "imds"]

LONG_SECONDS: Final = 10.0
"""A gap longer than this, and than three intervals, gets a record."""
SUSPENDED_SECONDS: Final = 1.0
"""The shortest suspension that counts: the kernel's value is exact to a few milliseconds."""
CONTINUOUS_SECONDS: Final = 5.0
"""How old the last good poll may be (or three intervals) to tell how an event ended."""

OVERDUE_SECONDS: Final = 1.0
"""How late a poll may end before the last document is too old to approve by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """The clocks at a good poll."""

    monotonic: float
    suspended: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PollGap:
    """The time between the last good poll and this one."""

    seconds: float | None
    """None before the first poll."""
    since: datetime | None
    is_long: bool
    is_continuous: bool
    """Whether polls went on all the time, so that the end of an event was seen."""
    reason: GapReason
    restarted: bool
    """Whether this is the first poll since the VM booted."""
    pause_seconds: float
    """How long the host paused the VM meanwhile, as measured; 0.0 if it did not."""


class GapTracker:
    """Keeps the times of the polls. `stood_still` may be called from any thread."""

    def __init__(
        self, clock: Clock, *, interval: float, polled_at: datetime | None, rebooted: bool | None
    ) -> None:
        self.rebooted = rebooted
        """Whether the VM was booted since the last run; None if that is not known."""
        self.polled_at = polled_at
        self._clock = clock
        self._interval = interval
        self._polled: _Reading | None = None
        self._lock = threading.Lock()
        self._pause = 0.0

    def gap(self, now: datetime) -> PollGap:
        """Return the gap that a poll at this moment ends."""
        seconds = self._seconds(now)
        first = self._polled is None
        with self._lock:
            pause = self._pause
        longest = 3 * self._interval
        return PollGap(
            seconds=seconds,
            since=None if seconds is None else self._since(now, seconds),
            is_long=seconds is not None and seconds > max(LONG_SECONDS, longest),
            # Between two runs there were no polls, and the wall clock may have been set.
            is_continuous=not first
            and seconds is not None
            and seconds <= max(CONTINUOUS_SECONDS, longest),
            reason=self._reason(first=first, pause=pause + self._suspended(), seconds=seconds),
            restarted=first and bool(self.rebooted),
            pause_seconds=pause,
        )

    def has_polled(self) -> bool:
        """Check whether there was a good poll in this run."""
        return self._polled is not None

    def is_polling(self) -> bool:
        """Check whether this run's last good poll is not longer ago than a long gap."""
        return self._polled_within(max(LONG_SECONDS, 3 * self._interval))

    def is_current(self) -> bool:
        """Check whether this run's last good poll is so recent that the next one is not overdue."""
        return self._polled_within(self._interval + OVERDUE_SECONDS)

    def polled(self, now: datetime, gap: PollGap) -> None:
        """Note that a good poll has ended the gap, and its changes are committed."""
        with self._lock:
            self._pause = max(0.0, self._pause - gap.pause_seconds)
        self.polled_at = now
        self._polled = _Reading(
            monotonic=self._clock.monotonic(), suspended=self._clock.suspended()
        )

    def stood_still(self, seconds: float) -> None:
        """Note that the host paused the VM for so many seconds. A suspension that the VM itself
        made says nothing about an event.
        """
        with self._lock:
            self._pause += seconds

    def _seconds(self, now: datetime) -> float | None:
        """Return the seconds since the last good poll, by the monotonic clock; across runs by the
        wall clock.
        """
        if self._polled is not None:
            return self._clock.monotonic() - self._polled.monotonic + self._suspended()
        if self.polled_at is not None:
            return max(0.0, (now - self.polled_at).total_seconds())
        return None

    def _polled_within(self, seconds: float) -> bool:
        elapsed = self._seconds(self._clock.now())
        return self._polled is not None and elapsed is not None and elapsed <= seconds

    def _suspended(self) -> float:
        """Return how many seconds this machine was suspended since the last good poll of
        this run.
        """
        if self._polled is None:
            return 0.0
        suspended = self._clock.suspended() - self._polled.suspended
        return suspended if suspended >= SUSPENDED_SECONDS else 0.0

    def _since(self, now: datetime, seconds: float) -> datetime | None:
        try:
            return now - timedelta(seconds=seconds)
        except OverflowError:
            return self.polled_at

    def _reason(self, *, first: bool, pause: float, seconds: float | None) -> GapReason:
        if first:
            return "reboot" if self.rebooted else "restart"
        return "pause" if pause > (seconds or 0.0) / 2 else "imds"
