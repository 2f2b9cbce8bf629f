"""The dispatcher: one sink never delays another, and a stuck one gets a new worker."""

import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.sinks.scripted_sink import DispatcherBench
from support.store_helpers import draft, opened
from support.threads import no_new_threads

from sinks.base import SinkError


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[DispatcherBench]:
    """A bench with two sinks; hanging calls are released at the end."""
    with opened(tmp_path) as store:
        made = DispatcherBench(store, "bad", "good")
        yield made
        made.finish(5)


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """The event that a hanging call waits for."""
    event = threading.Event()
    yield event
    event.set()


def hang(bench: DispatcherBench, release: threading.Event) -> None:
    """Commit a record, and wait until the bad sink hangs on it."""
    bench.scripts["bad"].on_deliver = [lambda: release.wait(30) and None]  # type: ignore[func-returns-value, list-item]
    bench.commit(draft(1))
    bench.start()
    bench.scripts["bad"].wait_for_calls("deliver", 1)


def test_a_hanging_sink_delays_no_other(bench: DispatcherBench, release: threading.Event) -> None:
    """The other sink gets every record while one hangs."""
    hang(bench, release)
    for number in range(2, 30):
        bench.commit(draft(number))
    bench.scripts["good"].wait_for_records(29)
    assert bench.scripts["bad"].sequences() == []


def test_a_stuck_sink_is_replaced_after_its_deadline(
    bench: DispatcherBench, release: threading.Event
) -> None:
    """A stuck call is cut after the deadline and not before, and a new sink delivers the same
    record.
    """
    hang(bench, release)
    bad, health = bench.scripts["bad"], bench.dispatcher.health["bad"]
    bench.clock.advance(29)
    bench.dispatcher.supervise()
    assert bad.made == 1
    bench.clock.advance(2)
    bench.dispatcher.supervise()
    bad.wait_for_calls("abort", 1)
    assert (bad.made, health.stuck_threads) == (2, 1)
    assert (health.state, health.reason) == ("failing", "no answer within 30 s")
    bench.wait_for_failure("bad")
    bench.advance(130)
    bad.wait_for_records(1)
    assert bad.sequences() == [1]


def test_a_stuck_call_that_returns_ends_the_long_wait(
    bench: DispatcherBench, release: threading.Event
) -> None:
    """When the stuck call returns, the sink waits only as long as after any failure."""
    hang(bench, release)
    bad = bench.scripts["bad"]
    (old,) = bad.threads
    bench.clock.advance(31)
    bench.dispatcher.supervise()
    health = bench.wait_for_failure("bad")
    bad.wait_for(lambda: health.next_try_at == bench.clock.monotonic() + 61)
    release.set()
    old.join(10)
    bench.dispatcher.supervise()
    bench.advance(0)
    bad.wait_for(lambda: health.next_try_at == bench.clock.monotonic() + 1)
    bench.advance(1)
    bad.wait_for_records(1)


def test_what_a_stuck_call_brings_back_does_not_count(
    bench: DispatcherBench, release: threading.Event
) -> None:
    """The result of an abandoned call is ignored, and its thread ends without touching sink or
    store.
    """
    hang(bench, release)
    bad = bench.scripts["bad"]
    (old,) = bad.threads
    bench.clock.advance(31)
    bench.dispatcher.supervise()
    bad.wait_for_calls("abort", 1)
    calls = list(bad.calls)
    release.set()
    old.join(10)
    assert calls == bad.calls
    assert bench.outbox.backlog("bad").records == 1
    bench.dispatcher.supervise()
    assert bench.dispatcher.health["bad"].stuck_threads == 0


def test_a_call_that_ends_in_time_is_not_given_up(bench: DispatcherBench) -> None:
    """An idle sink is not abandoned, however long it is idle."""
    bench.start()
    bench.scripts["bad"].wait_for_calls("maintain", 1)
    bench.clock.advance(1e6)
    bench.dispatcher.supervise()
    assert bench.scripts["bad"].made == 1


def test_finish_ends_in_time_although_one_hangs(
    bench: DispatcherBench, release: threading.Event
) -> None:
    """`finish` delivers the last record of the good sink, and abandons the stuck one."""
    hang(bench, release)
    bad = bench.scripts["bad"]
    bench.commit(draft(2))
    assert not bench.finish(0.3)
    assert bench.scripts["good"].sequences() == [1, 2]
    bad.wait_for_calls("abort", 1)
    calls = list(bad.calls)
    release.set()
    for thread in bad.threads:
        if thread.name.startswith("sink-"):
            thread.join(10)
    assert calls == bad.calls


def test_an_abort_that_hangs_delays_nothing(
    bench: DispatcherBench, release: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watchdog does not wait for a sink's `abort`."""
    hang(bench, release)
    sink = bench.dispatcher.sink("bad")
    monkeypatch.setattr(sink, "abort", lambda: release.wait(30))
    bench.clock.advance(31)
    bench.dispatcher.supervise()
    assert bench.scripts["bad"].made == 2


@pytest.mark.parametrize("called", ["", "abort-", "sink-"])
def test_a_stuck_sink_is_replaced_once_threads_can_be_started(
    bench: DispatcherBench, release: threading.Event, called: str
) -> None:
    """While no thread can be started, whichever it is, the watchdog goes on; then the stuck sink is
    replaced, and a new one delivers the same record.
    """
    hang(bench, release)
    bad = bench.scripts["bad"]
    bench.clock.advance(31)
    with no_new_threads(called=called):
        bench.dispatcher.supervise()
        bench.dispatcher.supervise()
    bench.dispatcher.supervise()
    bad.wait_for_calls("abort", 1)
    assert bad.made == 2
    bench.wait_for_failure("bad")
    bench.advance(130)
    bad.wait_for_records(1)


def test_sinks_that_cannot_be_started_are_started_later(bench: DispatcherBench) -> None:
    """A start without new threads ends nothing: each sink delivers once its thread is started."""
    bench.commit(draft(1))
    with no_new_threads():
        bench.start()
        bench.dispatcher.supervise()
    bench.dispatcher.supervise()
    bench.scripts["bad"].wait_for_records(1)
    bench.scripts["good"].wait_for_records(1)


def test_finish_says_that_a_sink_was_never_started(bench: DispatcherBench) -> None:
    """A stop without new threads ends in time, and says that not all sinks had their last try."""
    with no_new_threads():
        bench.start()
        assert not bench.finish(0.3)


@pytest.mark.parametrize("when", ["at the start", "at a replacement"])
def test_a_constructor_with_a_bug_stops_no_other_sink(
    bench: DispatcherBench, release: threading.Event, when: str
) -> None:
    """A sink that cannot be made is shown as failing, and the other one delivers."""
    bad = bench.scripts["bad"]
    bug = ZeroDivisionError("in the constructor")
    bad.on_make = [bug] if when == "at the start" else [None, bug]
    bad.on_deliver = [lambda: release.wait(30) and None]  # type: ignore[func-returns-value, list-item]
    bench.commit(draft(1))
    bench.start()
    if when == "at a replacement":
        bad.wait_for_calls("deliver", 1)
        bench.clock.advance(31)
        bench.dispatcher.supervise()
        bench.wait_for_failure("bad")
        bench.advance(130)
    health = bench.dispatcher.health["bad"]
    bad.wait_for(lambda: "in the constructor" in str(health.reason))
    bench.scripts["good"].wait_for_records(1)


def test_a_thread_that_died_is_replaced(
    bench: DispatcherBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sink whose thread has ended gets a new worker."""
    monkeypatch.setattr(threading, "excepthook", lambda args: None)
    bad = bench.scripts["bad"]
    bad.on_deliver = [SinkError("no")]
    asked: list[None] = []

    def urgent() -> bool:
        asked.append(None)
        if len(asked) == 1:
            raise SystemError
        return False

    bench.commit(draft(1))
    bench.ask_urgent = urgent
    bench.start()
    bad.wait_for(lambda: len(asked) > 0)
    for thread in list(bad.threads):
        thread.join(10)
    bench.dispatcher.supervise()
    assert bench.dispatcher.health["bad"].reason == "its thread ended"
    bench.wait_for_failure("bad", 2)
    bench.advance(130)
    bad.wait_for_records(1)


def test_changes_of_health_are_logged_once(
    bench: DispatcherBench, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has one line when a sink begins to fail, and one when it works again."""
    caplog.set_level(logging.INFO)
    good = bench.scripts["good"]
    good.on_deliver = [SinkError("down") for _ in range(7)]
    bench.commit(draft(1))
    bench.start()
    for failures in range(1, 8):
        bench.wait_for_failure("good", failures)
        bench.advance(61)
    good.wait_for(lambda: bench.dispatcher.health["good"].state == "ok")
    told = [record.action for record in caplog.records if getattr(record, "sink", "") == "good"]  # type: ignore[attr-defined]
    assert told == ["sink_down", "sink_up"]
    assert (good.sequences(), bench.outbox.dead.count("good")) == ([1], 0)
