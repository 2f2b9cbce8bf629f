from datetime import timedelta

import pytest
from support.documents.documents import NOW, FakeClock

from bridge.clock import SteadyTime

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
