"""Whether the loops of a bridge still make progress, as `/healthz` reports it."""

import pytest
from support.documents.documents import FakeClock

from bridge.api.liveness import SLACK_SECONDS, Liveness


def liveness(clock: FakeClock, interval: float = 1.0) -> Liveness:
    """The liveness of a poll loop with a poll each second."""
    return Liveness(clock, interval=interval, timeout=5.0, first_timeout=130.0)


def test_a_loop_that_ends_its_rounds_is_alive_whatever_they_bring() -> None:
    """A loop whose polls end is alive, also if they fail."""
    clock = FakeClock()
    loop = liveness(clock)
    loop.beat(answered=True)
    for _ in range(100):
        clock.advance(6.0)
        loop.beat()
        assert loop.is_alive()


def test_a_loop_that_ends_no_round_hangs() -> None:
    """A loop hangs if no poll has ended after its wait, its request and some slack."""
    clock = FakeClock()
    loop = liveness(clock)
    loop.beat(answered=True)
    clock.advance(1.0 + 5.0 + SLACK_SECONDS)
    assert loop.is_alive()
    clock.advance(0.1)
    assert not loop.is_alive()


def test_the_first_answer_may_take_two_minutes() -> None:
    """Until the first document a poll may take two minutes; a poll without a document does not
    change that.
    """
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


def test_after_a_day_asleep_a_poll_may_take_two_minutes() -> None:
    """After a suspension of more than a day the next document may take as long as the first."""
    clock = FakeClock()
    loop = liveness(clock)
    loop.beat(answered=True)
    clock.suspend(30 * 3600)
    clock.advance(130.0)
    assert loop.is_alive()
    loop.beat(answered=True)
    clock.advance(130.0)
    assert not loop.is_alive()


@pytest.mark.parametrize("interval", [0.1, 1.0, 60.0, 3600.0])
def test_a_slow_poll_interval_is_no_hang(interval: float) -> None:
    """With a long interval, three polls may be missed before the loop counts as hanging."""
    clock = FakeClock()
    loop = liveness(clock, interval)
    loop.beat(answered=True)
    clock.advance(3 * interval)
    assert loop.is_alive()


def test_a_clock_that_is_set_makes_no_hang() -> None:
    """A change of the wall clock does not make the loop count as hanging."""
    clock = FakeClock()
    loop = liveness(clock)
    loop.beat(answered=True)
    clock.jump(86_400.0)
    assert loop.is_alive()


def test_each_poll_reports_the_next_allowance() -> None:
    """After each poll the callback gets how many seconds the next one may take."""
    clock, heard = FakeClock(), list[float]()
    loop = Liveness(clock, interval=1.0, timeout=5.0, first_timeout=130.0, on_beat=heard.append)
    loop.beat()
    loop.beat(answered=True)
    assert heard == [141.0, 16.0]
    assert loop.attempted_at == clock.now()
