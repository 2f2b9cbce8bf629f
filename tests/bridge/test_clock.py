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
    """Since a moment 60 s ago, after which the clock was set and a run began; and it goes on."""
    clock = FakeClock()
    clock.jump(jump)
    since = NOW - timedelta(seconds=60)
    time = SteadyTime(clock, since=since, uptime_then=uptime_then)
    assert time.now() == NOW + timedelta(seconds=expected)
    clock.advance(5)
    clock.suspend(5)
    assert time.now() == NOW + timedelta(seconds=expected + 10)


def test_an_earlier_run_knew_the_time_too() -> None:
    """After a boot with a wrong clock it is no earlier than at the last poll before it."""
    clock = FakeClock()
    clock.jump(-HOUR)
    time = SteadyTime(clock, since=NOW - timedelta(seconds=60), least=NOW)
    assert time.now() == NOW


def deadline_time(clock: FakeClock, *, is_same_boot: bool = True) -> SteadyTime:
    """The time for an event that was first seen 60 s ago, and polled for until 10 s ago."""
    return SteadyTime(
        clock,
        since=clock.now() - timedelta(seconds=60),
        uptime_then=clock.monotonic() - 60.0,
        is_same_boot=is_same_boot,
        least=clock.now() - timedelta(seconds=10),
        trusted_after=STOOD_SECONDS,
    )


def test_a_clock_that_is_set_back_delays_no_deadline() -> None:
    """What has passed by the uptime has passed."""
    clock = FakeClock()
    time = deadline_time(clock)
    clock.jump(-HOUR)
    clock.advance(2 * STOOD_SECONDS)
    clock.suspend(5)
    assert time.now() == NOW + timedelta(seconds=2 * STOOD_SECONDS + 5)


def test_a_clock_that_is_ahead_for_a_moment_hastens_no_deadline() -> None:
    """It is set right before it has stood."""
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
    """And no longer once it is set right."""
    clock = FakeClock()
    time = deadline_time(clock)
    clock.jump(HOUR)
    assert time.now() == NOW
    clock.advance(STOOD_SECONDS)
    assert time.now() == clock.now()
    clock.jump(-HOUR)
    assert time.now() == clock.now()


def test_after_a_boot_the_wall_clock_counts_once_it_has_stood() -> None:
    """Until then it is no earlier than at the last poll before the boot; from then on the clock
    delays nothing, if it is set back.
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
    """The clock is behind after the boot, and the uptime says nothing."""
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
