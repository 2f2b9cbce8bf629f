"""The scheduler: jobs run on after any jump of the clock, and the watch distinguishes jumps from
pauses.
"""

import logging
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Self

import apscheduler.schedulers.base
import pytest
from support.documents.documents import FakeClock
from support.store_helpers import NOW

from bridge.service.scheduler import Every, Scheduler, Tick, Watch

YEARS = timedelta(days=365 * 30)


class Leaping(datetime):
    """The time for APScheduler: the real one, shifted by a jump."""

    leap = timedelta(0)

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        real = datetime.now(tz) + cls.leap
        return cls.fromisoformat(real.isoformat())


class LeapingClock:
    """The bridge's clock, which jumps together with APScheduler's."""

    def now(self) -> datetime:
        return datetime.now(UTC) + Leaping.leap

    def monotonic(self) -> float:
        return time.monotonic()

    def suspended(self) -> float:
        return 0.0


class Counter:
    """A job that counts its runs, and lets a test wait for a number of them."""

    def __init__(self) -> None:
        self.count = 0
        self._condition = threading.Condition()

    def __call__(self) -> None:
        with self._condition:
            self.count += 1
            self._condition.notify_all()

    def wait_for_more(self, more: int) -> bool:
        return self.wait_until(self.count + more)

    def wait_until(self, wanted: int) -> bool:
        with self._condition:
            return self._condition.wait_for(lambda: self.count >= wanted, timeout=5)


@pytest.fixture
def scheduler(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scheduler]:
    """A real scheduler whose clock can be made to jump."""
    logging.getLogger("apscheduler").setLevel(logging.ERROR)
    monkeypatch.setattr(apscheduler.schedulers.base, "datetime", Leaping)
    monkeypatch.setattr(Leaping, "leap", timedelta(0))
    made = Scheduler(LeapingClock())
    yield made
    made.stop()


@pytest.mark.parametrize("leap", [-YEARS, -timedelta(minutes=10), timedelta(days=30), YEARS])
def test_a_job_goes_on_after_a_leap(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch, leap: timedelta
) -> None:
    """After a jump of ten minutes or 30 years, in either direction, the job runs on, one run at a
    time and without extra runs.
    """
    job = Counter()
    scheduler.every(0.05, job)
    scheduler.start()
    assert job.wait_for_more(1)
    monkeypatch.setattr(Leaping, "leap", leap)
    before, started = job.count, time.monotonic()
    scheduler.run_now()
    assert job.wait_for_more(2)
    assert time.monotonic() - started < 15
    assert job.count - before <= 2 + (time.monotonic() - started) / 0.05


@pytest.mark.parametrize("leap", [timedelta(hours=1), YEARS])
def test_a_job_goes_on_after_a_jump_between_two_ticks(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch, leap: timedelta
) -> None:
    """A clock that is wrong only between two ticks leaves no job waiting for a wrong time: neither
    one that ran then nor one that is seldom due.
    """
    job, seldom = Counter(), Counter()
    scheduler.every(0.02, job)
    scheduler.every(60, seldom)
    scheduler.start()
    assert seldom.wait_until(1)
    monkeypatch.setattr(Leaping, "leap", leap)
    assert seldom.wait_until(2)
    assert job.wait_for_more(2)
    monkeypatch.setattr(Leaping, "leap", timedelta(0))
    assert job.wait_for_more(3)
    assert seldom.wait_until(3)


def test_a_slow_job_is_skipped_and_counted(scheduler: Scheduler) -> None:
    """A job that still runs when it is due again is skipped, and delays no other."""
    release, other = threading.Event(), Counter()
    slow_runs: list[int] = []

    def slow() -> None:
        slow_runs.append(1)
        release.wait(10)

    scheduler.every(0.02, slow)
    scheduler.every(0.02, other)
    scheduler.start()
    assert other.wait_for_more(10)
    assert slow_runs == [1]
    assert scheduler.skipped > 0
    release.set()


def test_a_job_that_fails_runs_again(scheduler: Scheduler) -> None:
    """A job that raised runs again at its next time."""
    logging.getLogger("apscheduler").setLevel(logging.CRITICAL)
    counter = Counter()

    def failing() -> None:
        counter()
        raise ZeroDivisionError

    scheduler.every(0.02, failing)
    scheduler.start()
    assert counter.wait_for_more(3)


def test_the_first_run_may_be_put_off(scheduler: Scheduler) -> None:
    """A job may run for the first time after its first interval, as the heartbeat does."""
    late, soon = Counter(), Counter()
    scheduler.every(60, late, first=60)
    scheduler.every(0.02, soon)
    scheduler.start()
    assert soon.wait_for_more(3)
    assert late.count == 0
    scheduler.run_now()
    assert late.wait_until(1)


def test_after_a_leap_of_years_one_time_is_due() -> None:
    """After a jump of years, the next time follows from now, without the missed ones."""
    every = Every(1)
    assert every.get_next_fire_time(None, NOW) == NOW
    assert NOW + YEARS + timedelta(seconds=1) == every.get_next_fire_time(NOW, NOW + YEARS)


def ticked(clock: FakeClock, *, wall: float, monotonic: float) -> Tick:
    """Return the result of one tick in which the clocks advanced so far."""
    watch = Watch(clock)
    clock.advance(monotonic)
    clock.jump(wall - monotonic)
    return watch.tick()


@pytest.mark.parametrize(
    ("wall", "monotonic", "jump", "pause"),
    [
        (0.25, 0.25, 0.0, 0.0),
        (1.4, 1.2, 0.0, 0.0),
        (-599.75, 0.25, -600.0, 0.0),
        (YEARS.total_seconds() + 0.25, 0.25, YEARS.total_seconds(), 0.0),
        (0.25 - YEARS.total_seconds(), 0.25, -YEARS.total_seconds(), 0.0),
        (5.25, 5.25, 0.0, 5.0),  # both clocks went on while the machine stood still
        (5.25, 0.25, 5.0, 5.0),  # the monotonic clock stood still with it
        (-594.75, 5.25, -600.0, 5.0),
    ],
)
def test_jumps_and_pauses(wall: float, monotonic: float, jump: float, pause: float) -> None:
    """From both clocks together, the watch distinguishes a clock that was set from a machine that
    stood still.
    """
    shown = ticked(FakeClock(NOW), wall=wall, monotonic=monotonic)
    assert (shown.jump, shown.pause) == pytest.approx((jump, pause))


def test_a_machine_that_was_suspended_did_not_set_its_clock() -> None:
    """A suspension that the kernel has counted is neither a jump nor a pause."""
    clock = FakeClock(NOW)
    watch = Watch(clock)
    clock.advance(0.25)
    clock.suspend(8 * 3600)
    assert watch.tick() == Tick(suspended=8 * 3600)
    clock.advance(0.25)
    assert watch.tick() == Tick()


def test_a_jump_is_reported_once() -> None:
    """After a jump the watch compares with the new time."""
    clock = FakeClock(NOW)
    watch = Watch(clock)
    clock.advance(1)
    clock.jump(86400)
    watch.tick()
    clock.advance(1)
    assert watch.tick() == Tick()
