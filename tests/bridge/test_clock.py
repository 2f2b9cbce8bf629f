"""The clock of the bridge, over restarts and after it was set back."""

from datetime import timedelta

import pytest
from support.documents.documents import NOW, FakeClock

from bridge.clock import STOOD_SECONDS, SteadyTime

HOUR = 3600.0


@pytest.mark.parametrize(
    ("uptime_then", "jump", "expected"),
    [
        (940.0, 0.0, 0.0),
        (940.0, -HOUR, 0.0),
        (940.0, HOUR, HOUR),
        # The machine has booted since, so its uptime tells less than has passed.
        (5000.0, -HOUR, -60.0),
        (None, -HOUR, -60.0),
    ],
)
def test_what_has_passed_before_this_run_has_passed(
    uptime_then: float | None, jump: float, expected: float
) -> None:
    """A steady time that began 60 s ago counts those seconds, although the clock was set and a new
    run began since.
    """
    clock = FakeClock()
    clock.jump(jump)
    since = NOW - timedelta(seconds=60)
    time = SteadyTime(clock, since=since, uptime_then=uptime_then)
    assert time.now() == NOW + timedelta(seconds=expected)
    clock.advance(5)
    clock.suspend(5)
    assert time.now() == NOW + timedelta(seconds=expected + 10)


def test_an_earlier_run_knew_the_time_too() -> None:
    """After a boot with a wrong clock, a steady time is no earlier than the last poll before the
    boot.
    """
    clock = FakeClock()
    clock.jump(-HOUR)
    time = SteadyTime(clock, since=NOW - timedelta(seconds=60), least=NOW)
    assert time.now() == NOW


def deadline_time(clock: FakeClock, *, is_same_boot: bool = True) -> SteadyTime:
    """Return the time for an event that was first seen 60 s ago, and polled for until 10 s ago."""
    return SteadyTime(
        clock,
        since=clock.now() - timedelta(seconds=60),
        uptime_then=clock.monotonic() - 60.0,
        is_same_boot=is_same_boot,
        least=clock.now() - timedelta(seconds=10),
        trusted_after=STOOD_SECONDS,
    )


def test_a_clock_that_is_set_back_delays_no_deadline() -> None:
    """If the clock is set back, the time that has passed by the uptime still counts."""
    clock = FakeClock()
    time = deadline_time(clock)
    clock.jump(-HOUR)
    clock.advance(2 * STOOD_SECONDS)
    clock.suspend(5)
    assert time.now() == NOW + timedelta(seconds=2 * STOOD_SECONDS + 5)


def test_a_clock_that_is_ahead_for_a_moment_hastens_no_deadline() -> None:
    """A clock that is ahead and set right again soon does not count."""
    clock = FakeClock()
    time = deadline_time(clock)
    clock.jump(HOUR)
    assert time.now() == NOW
    clock.advance(STOOD_SECONDS - 1)
    assert time.now() == NOW + timedelta(seconds=STOOD_SECONDS - 1)
    clock.jump(-HOUR)
    clock.advance(STOOD_SECONDS)
    assert time.now() == clock.now()


def test_a_clock_that_was_set_forward_counts_once_it_has_stood() -> None:
    """A clock that was set forward counts once it was not set again for a while, and no longer once
    it is set right.
    """
    clock = FakeClock()
    time = deadline_time(clock)
    clock.jump(HOUR)
    assert time.now() == NOW
    clock.advance(STOOD_SECONDS)
    assert time.now() == clock.now()
    clock.jump(-HOUR)
    assert time.now() == clock.now()


def test_after_a_boot_the_wall_clock_counts_once_it_has_stood() -> None:
    """After a boot the time is no earlier than the last poll before it. Once the wall clock was not
    set for a while it counts, and setting it back delays nothing.
    """
    clock = FakeClock()
    time = deadline_time(clock, is_same_boot=False)
    clock.jump(HOUR)
    clock.advance(3)
    assert time.now() == NOW + timedelta(seconds=3)
    clock.jump(-HOUR)
    assert time.now() == NOW + timedelta(seconds=3)
    clock.advance(STOOD_SECONDS)
    assert time.now() == clock.now()
    right = clock.now()
    clock.jump(-HOUR)
    clock.advance(1)
    assert time.now() == right + timedelta(seconds=1)


def test_the_last_poll_before_a_boot_is_the_least_that_it_is() -> None:
    """After a boot with a clock behind, the time is that of the last poll before the boot."""
    clock = FakeClock()
    least = clock.now()
    since = least - timedelta(seconds=60)
    clock.boot()
    clock.jump(-HOUR)
    time = SteadyTime(
        clock, since=since, uptime_then=900.0, least=least, trusted_after=STOOD_SECONDS
    )
    clock.advance(2 * STOOD_SECONDS)
    assert time.now() == least + timedelta(seconds=2 * STOOD_SECONDS)
