import pytest
from support.documents.documents import FakeClock

from bridge.api.liveness import SLACK_SECONDS, Liveness


def liveness(clock: FakeClock, interval: float = 1.0) -> Liveness:
    """The liveness of a poll loop with one round a second."""
    return Liveness(clock, interval=interval, timeout=5.0, first_timeout=130.0)


def test_a_loop_that_ends_its_rounds_is_alive_whatever_they_bring() -> None:
    """A poll that fails is a poll."""
    clock = FakeClock()
    loop = liveness(clock)
    loop.beat(answered=True)
    for _ in range(100):
        clock.advance(6.0)
        loop.beat()
        assert loop.is_alive()


def test_a_loop_that_ends_no_round_hangs() -> None:
    """Once its wait, its request and some slack are over."""
    clock = FakeClock()
    loop = liveness(clock)
    loop.beat(answered=True)
    clock.advance(1.0 + 5.0 + SLACK_SECONDS)
    assert loop.is_alive()
    clock.advance(0.1)
    assert not loop.is_alive()


def test_the_first_answer_may_take_two_minutes() -> None:
    """Until there was a document; a round without one changes nothing."""
    clock = FakeClock()
    loop = liveness(clock)
    clock.advance(130.0)
    assert loop.is_alive()
    loop.beat()
    clock.advance(130.0)
    assert loop.is_alive()
    loop.beat(answered=True)
    clock.advance(130.0)
    assert not loop.is_alive()


@pytest.mark.parametrize("interval", [0.1, 1.0, 60.0, 3600.0])
def test_a_slow_poll_interval_is_no_hang(interval: float) -> None:
    """Three rounds may be missed where they are far apart."""
    clock = FakeClock()
    loop = liveness(clock, interval)
    loop.beat(answered=True)
    clock.advance(3 * interval)
    assert loop.is_alive()


def test_a_clock_that_is_set_makes_no_hang() -> None:
    """Only time that passes counts."""
    clock = FakeClock()
    loop = liveness(clock)
    loop.beat(answered=True)
    clock.jump(86_400.0)
    assert loop.is_alive()


def test_each_round_is_told_with_the_allowance() -> None:
    """Whoever watches hears how long the next one may take."""
    clock, heard = FakeClock(), list[float]()
    loop = Liveness(clock, interval=1.0, timeout=5.0, first_timeout=130.0, ended=heard.append)
    loop.beat()
    loop.beat(answered=True)
    assert heard == [141.0, 16.0]
    assert loop.attempted_at == clock.now()
