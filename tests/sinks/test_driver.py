"""The calls to a sink: each has a deadline, and a sink that was opened is closed."""

import logging

import pytest
from support.documents.documents import FakeClock
from support.sinks.scripted_sink import Script, ScriptedSink
from support.threads import no_new_threads

from sinks.base import SinkError, SinkSettings
from sinks.driver import AbandonedError, SinkDriver
from sinks.samples import sample_context


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    """What the sink does."""
    script = Script()
    monkeypatch.setitem(ScriptedSink.scripts, "driven", script)
    return script


@pytest.fixture
def clock() -> FakeClock:
    """A clock that the test moves."""
    return FakeClock()


@pytest.fixture
def driver(script: Script, clock: FakeClock) -> SinkDriver:
    """The driver of a sink with a deadline of a second."""
    sink = ScriptedSink("driven", SinkSettings(kind="scripted"), sample_context())
    script.deadline = 1.0
    return SinkDriver(sink, monotonic=clock.monotonic, log=logging.getLogger(__name__))


def test_a_call_ends_in_time_or_is_abandoned(
    driver: SinkDriver, script: Script, clock: FakeClock
) -> None:
    """A call that has ended counts, an abandoned one does not, the sink is told to abort, and no
    further call begins after that.
    """
    driver.open()
    clock.advance(2)
    assert not driver.abandon_if_overdue()

    def stuck() -> None:
        clock.advance(2)
        assert driver.abandon_if_overdue()

    script.on_deliver.append(stuck)
    with pytest.raises(AbandonedError):
        driver.deliver([])
    with pytest.raises(AbandonedError):
        driver.maintain()
    script.wait_for_calls("abort", 1)
    assert script.calls.count("maintain") == 0


def test_a_call_that_cannot_be_cut_is_abandoned_later(
    driver: SinkDriver, script: Script, clock: FakeClock
) -> None:
    """While no thread can be started to cut an overdue call, it goes on and may count; it is
    abandoned once there is such a thread.
    """
    driver.open()

    def overdue() -> None:
        clock.advance(2)
        with no_new_threads():
            assert not driver.abandon_if_overdue()

    def stuck() -> None:
        overdue()
        assert driver.abandon_if_overdue()

    script.on_deliver += [overdue, stuck]
    driver.deliver([])
    with pytest.raises(AbandonedError):
        driver.deliver([])
    script.wait_for_calls("abort", 1)


def test_a_sink_is_closed_once_after_each_open(driver: SinkDriver, script: Script) -> None:
    """A sink is opened once, closed once even if its open failed, and not maintained while it is
    closed.
    """
    script.on_open.append(SinkError("no"))
    with pytest.raises(SinkError):
        driver.open()
    driver.close_after(SinkError("no"))
    driver.close()
    driver.maintain()
    driver.open()
    driver.open()
    driver.close_after(SinkError("only this record", stays_open=True))
    script.on_maintain.append(SinkError("gone"))
    driver.maintain_failing()
    assert script.calls == ["open", "close", "open", "maintain", "close"]
