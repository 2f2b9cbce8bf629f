"""When IMDS was last polled, and what prevented polls: gaps, restarts, pauses."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from bridge.clock import Clock, uptime

GapReason = Literal["restart", "reboot", "pause", "imds", "store"]

LONG_SECONDS: Final = 10.0
"""A gap longer than this, and than three intervals, gets a record."""
SUSPENDED_SECONDS: Final = 1.0
"""The shortest suspension that counts: the kernel's value is exact to a few milliseconds."""
CONTINUOUS_SECONDS: Final = 5.0
"""How old the last good poll may be (or three intervals) to tell how an event ended."""

JUMP_SECONDS: Final = 1.0
"""A wall clock that is further ahead than the others show may have been set, or this VM may have
stood still while the others did not count."""
_SLEWED: Final = 0.1
"""The same limit, as a share of the time that has passed, for times of up to a minute. A wall clock
that is set right little by little may run faster than the others, as on Windows; with chrony it
runs faster by at most a twelfth.
"""
_MOST_SLEWED_SECONDS: Final = 60.0
OVERDUE_SECONDS: Final = 1.0
"""How late a poll may end before the last document is too old to approve by."""


def slow_answers(interval: float, timeout: float) -> str | None:
    """Return a sentence if IMDS may answer so late within this timeout that each document is too
    old to approve by; None if it may not.
    """
    longest = interval + OVERDUE_SECONDS + CONTINUOUS_SECONDS
    if timeout <= longest:
        return None
    return (
        f"SEB_IMDS__TIMEOUT lets IMDS take {timeout:g} s to answer, but while it takes more than "
        f"{longest:g} s nothing is approved"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """The clocks at one moment."""

    wall: datetime
    monotonic: float
    suspended: float
    paused: float
    """All measured pauses of this run together."""

    def since(self, before: _Reading) -> float:
        """Return the seconds from another reading to this one, suspensions included, and pauses
        that the monotonic clock did not count.
        """
        seconds = self.monotonic - before.monotonic + self.suspended_since(before)
        pause = self.paused - before.paused
        return seconds + pause if pause > seconds else seconds

    def suspended_since(self, before: _Reading) -> float:
        """Return for how many seconds since another reading this machine was suspended."""
        seconds = self.suspended - before.suspended
        return seconds if seconds >= SUSPENDED_SECONDS else 0.0

    def has_jumped_since(self, before: _Reading) -> bool:
        """Check whether the wall clock shows much more time than the other clocks counted."""
        seconds = self.since(before)
        ahead = (self.wall - before.wall).total_seconds() - seconds
        return ahead >= max(JUMP_SECONDS, min(_SLEWED * seconds, _MOST_SLEWED_SECONDS))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Poll:
    """A poll: its document shows a moment between the request and the answer."""

    requested: _Reading
    answered: _Reading
    lasted: float
    """Seconds from the request to the commit."""


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
        self,
        clock: Clock,
        *,
        interval: float,
        polled_at: datetime | None,
        rebooted: bool | None,
        polled_uptime: float | None = None,
    ) -> None:
        """`polled_at`, `polled_uptime`: the last good poll of an earlier run by the wall clock, and
        by the machine's uptime in seconds.
        """
        self.rebooted = rebooted
        """Whether the VM was booted since the last run; None if that is not known."""
        self.polled_at = polled_at
        self._polled_uptime = polled_uptime
        self._clock = clock
        self._interval = interval
        self._requested: _Reading | None = None
        self._answered: _Reading | None = None
        self._last_good_poll: _Poll | None = None
        self._failed: Counter[GapReason] = Counter()
        """The polls since the last good one, by what failed: IMDS or the store."""
        self._patience = 0.0
        """Seconds that answers take, as the last two good polls show."""
        self._lock = threading.Lock()
        self._paused = 0.0

    def begin_poll(self) -> None:
        """Note that a poll sends its request now."""
        self._requested = self._reading()

    def gap(self, now: datetime) -> PollGap:
        """Return the gap before a poll. The answer to that poll has come at this moment."""
        self._answered = self._reading()
        seconds = self._seconds(now, self._answered)
        first = self._last_good_poll is None
        before = 0.0 if self._last_good_poll is None else self._last_good_poll.answered.paused
        pause = self._answered.paused - before
        longest = 3 * self._interval
        return PollGap(
            seconds=seconds,
            since=None if seconds is None else self._since(now, seconds),
            is_long=seconds is not None and seconds > max(LONG_SECONDS, longest),
            # Between two runs there were no polls, and the wall clock may have been set.
            is_continuous=not first
            and seconds is not None
            and seconds <= max(CONTINUOUS_SECONDS, longest)
            and not self._may_have_stood_still(),
            reason=self._reason(first=first, pause=pause + self._suspended(), seconds=seconds),
            restarted=first and bool(self.rebooted),
            pause_seconds=pause,
        )

    def has_polled(self) -> bool:
        """Check whether there was a good poll in this run."""
        return self._last_good_poll is not None

    def is_polling(self) -> bool:
        """Check whether this run's last good poll is not longer ago than a long gap."""
        return self._polled_within(max(LONG_SECONDS, 3 * self._interval))

    def is_current(self) -> bool:
        """Check whether the document of this run's last good poll is so recent that the next one is
        not overdue. It is as old as its request: this VM may have stood still since IMDS answered,
        or the disk while its changes were written. If answers always take long, that does not make
        a document old, up to `CONTINUOUS_SECONDS`.
        """
        poll = self._last_good_poll
        if poll is None:
            return False
        is_young = self._polled_within(self._interval + OVERDUE_SECONDS + self._patience)
        # A pause may not be in the seconds: the monotonic clock may not have counted it.
        pause = self._reading().paused - poll.requested.paused
        return is_young and pause <= OVERDUE_SECONDS and not self._may_have_stood_still()

    def end_poll(self, now: datetime) -> None:
        """Note that a good poll has ended the gap, and its changes are committed."""
        self.polled_at = now
        done = self._reading()
        requested = self._requested or done
        poll = _Poll(
            requested=requested, answered=self._answered or done, lasted=done.since(requested)
        )
        before = 0.0 if self._last_good_poll is None else self._last_good_poll.lasted
        self._patience = min(poll.lasted, before, CONTINUOUS_SECONDS)
        self._last_good_poll = poll
        self._failed.clear()

    def fail_poll(self, failed: Literal["imds", "store"]) -> None:
        """Note that a poll has failed: IMDS gave no document, or its changes were not committed."""
        self._failed[failed] += 1

    def note_standstill(self, seconds: float) -> None:
        """Note that the host paused the VM for so many seconds. A suspension that the VM itself
        made says nothing about an event.
        """
        with self._lock:
            self._paused += seconds

    def _seconds(self, now: datetime, answered: _Reading) -> float | None:
        """Return the seconds without a poll: by the monotonic clock within a run, by the uptime
        across runs, and by the wall clock across boots. They are counted from request to request,
        or from answer to answer if that is longer: while a poll stands still before its answer, or
        works after it, it does not see what changes at IMDS.
        """
        if self._last_good_poll is not None:
            between_answers = answered.since(self._last_good_poll.answered)
            if self._requested is None:
                return between_answers
            return max(between_answers, self._requested.since(self._last_good_poll.requested))
        if self.polled_at is not None:
            by_uptime = uptime(self._clock) - (self._polled_uptime or 0.0)
            if self.rebooted is False and self._polled_uptime is not None and by_uptime >= 0:
                return by_uptime  # the wall clock may have been set meanwhile
            return max(0.0, (now - self.polled_at).total_seconds())
        return None

    def _polled_within(self, seconds: float) -> bool:
        poll = self._last_good_poll
        return poll is not None and self._reading().since(poll.requested) <= seconds

    def _may_have_stood_still(self) -> bool:
        """Check whether the wall clock has jumped since the last good poll of this run."""
        poll = self._last_good_poll
        return poll is not None and self._reading().has_jumped_since(poll.requested)

    def _suspended(self) -> float:
        """Return how many seconds this machine was suspended since the last good poll of
        this run.
        """
        return (
            0.0
            if self._last_good_poll is None
            else self._reading().suspended_since(self._last_good_poll.requested)
        )

    def _reading(self) -> _Reading:
        with self._lock:
            paused = self._paused
        return _Reading(
            wall=self._clock.now(),
            monotonic=self._clock.monotonic(),
            suspended=self._clock.suspended(),
            paused=paused,
        )

    def _since(self, now: datetime, seconds: float) -> datetime | None:
        try:
            return now - timedelta(seconds=seconds)
        except OverflowError:
            return self.polled_at

    def _reason(self, *, first: bool, pause: float, seconds: float | None) -> GapReason:
        if first:
            return "reboot" if self.rebooted else "restart"
        if pause > (seconds or 0.0) / 2:
            return "pause"
        return "store" if self._failed["store"] > self._failed["imds"] else "imds"
