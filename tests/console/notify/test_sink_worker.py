"""The console keeps the contract of sinks: deadlines, pauses, and a close for each open."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from support.documents.documents import FakeClock
from support.sinks.scripted_sink import PATIENCE, Script, ScriptedSink

from console.db import notices as notice_rows
from console.db.connection.opening import Database
from console.db.connection.transactions import next_change_number
from console.db.snapshot import Snapshots
from console.notify.notice import Notice, NoticeKind
from console.notify.notice_worker import NoticeWorker
from console.notify.sink_worker import SinkWorker
from sinks.base import SinkError, SinkPaused, SinkRejected, SinkSettings
from sinks.samples import sample_context

NOW = 1_790_000_000.0


class NoticeBench:
    """The notices of a console with one scripted sink, and clocks that are moved by hand."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.clock = FakeClock()
        self.script = Script()
        ScriptedSink.scripts = {"chat": self.script}
        self.notices: NoticeWorker

    @property
    def worker(self) -> SinkWorker:
        (worker,) = self.notices.workers
        return worker

    def start(self) -> None:
        """Begin to deliver, as a run of a console does."""
        sink = ScriptedSink("chat", SinkSettings(kind="scripted"), sample_context())
        self.notices = NoticeWorker(
            [sink],
            snapshots=Snapshots(self.database, clock=lambda: NOW),
            base="http://c",
            site="console",
            monotonic=self.clock.monotonic,
        )
        self.notices._begun = self.notices._begin()

    def tell(self, kind: NoticeKind) -> None:
        """Store a notice, and wake the worker."""
        found = Notice(kind=kind, subject="vm-1", key=(), at=NOW, title="t", text="t", path="/")
        with self.database.writing.begin() as connection:
            next_change_number(connection)
            notice_rows.insert_notices(
                connection, [found], base="http://c", site="console", now=NOW
            )
        self.worker.wake()

    def advance(self, seconds: float) -> None:
        """Move the clock, and let the worker look at it."""
        self.clock.advance(seconds)
        self.worker.wake()

    def waiting(self) -> bool:
        """Whether there are notices that the sink has not acknowledged."""
        with self.database.reading.begin() as connection:
            return notice_rows.is_waiting(connection, "chat")


@pytest.fixture
def bench(database: Database) -> Iterator[NoticeBench]:
    """A console that has begun to deliver."""
    made = NoticeBench(database)
    made.start()
    yield made
    made.notices.stop()


def test_a_call_that_hangs_holds_no_notice_until_a_restart(bench: NoticeBench) -> None:
    """A call that hangs is cut at the sink's deadline, a new sink gets the notices, and a late
    result has no effect.
    """
    script, release, returned = bench.script, threading.Event(), threading.Event()

    def hang() -> None:
        release.wait(PATIENCE)
        returned.set()

    script.on_deliver = [hang]
    bench.tell("vm-silent")
    script.wait_for_calls("deliver", 1)
    bench.clock.advance(29)
    bench.notices.supervise()
    assert script.made == 1
    bench.clock.advance(2)
    bench.notices.supervise()
    script.wait_for_calls("abort", 1)
    assert script.made == 2
    assert bench.worker.health.trouble == "no answer within 30 s"
    bench.advance(600)
    script.wait_for(lambda: not bench.waiting())
    assert script.sequences() == [1]
    script.wait_for(lambda: bench.worker.health.trouble is None)
    assert bench.worker.health.delivered == 1
    script.on_deliver = [SinkError("away")]
    bench.tell("vm-heard")
    script.wait_for(lambda: bench.worker.health.trouble == "away")
    release.set()
    assert returned.wait(PATIENCE)
    script.wait_for_records(2)
    assert bench.waiting()
    assert bench.worker.health.trouble == "away"


@pytest.mark.parametrize("delivered", [-1, 7])
@pytest.mark.parametrize("kind", [SinkError, SinkRejected])
def test_an_error_that_counts_wrongly_loses_no_notice(
    bench: NoticeBench, kind: type[SinkError | SinkRejected], delivered: int
) -> None:
    """After an error with an impossible number of delivered notices, those that the sink has not
    taken come again.
    """
    script = bench.script
    script.on_deliver = [kind("odd", delivered=delivered)]
    bench.tell("vm-silent")
    script.wait_for_calls("deliver", 1)
    bench.tell("vm-heard")

    def has_come() -> bool:
        bench.advance(60)
        return 2 in script.sequences()

    script.wait_for(has_come)
    assert script.sequences() == ([1, 2] if delivered < 0 else [2])


def test_a_paused_sink_keeps_its_notices_until_a_restart(bench: NoticeBench) -> None:
    """A paused sink is not tried again until a restart, and its notices are kept."""
    script = bench.script
    script.on_deliver = [SinkPaused("gone", stays_open=True)]
    bench.tell("vm-silent")
    script.wait_for(lambda: bench.worker.health.trouble is not None)
    for _ in range(3):
        looked = script.calls.count("maintain")
        bench.advance(86_400)
        script.wait_for_calls("maintain", looked + 1)
    assert script.calls.count("deliver") == 1
    assert bench.worker.health.trouble == "gone; it is tried again when the console starts"
    bench.notices.stop()
    assert bench.waiting()
    bench.start()
    bench.worker.wake()
    script.wait_for(lambda: not bench.waiting())
    assert script.sequences() == [1]


def test_a_sink_that_fails_to_open_is_closed(bench: NoticeBench) -> None:
    """A sink whose `open` fails is closed before it is opened again."""
    script = bench.script
    script.on_open = [SinkError("away")]
    bench.tell("vm-silent")
    script.wait_for_calls("close", 1)
    script.wait_for(lambda: bench.worker.health.trouble == "away")
    bench.advance(600)
    script.wait_for_records(1)
    assert script.calls[:3] == ["open", "close", "open"]


def test_an_error_that_leaves_the_connection_good_closes_nothing(bench: NoticeBench) -> None:
    """After an error that `stays_open`, the sink is maintained until the next try."""
    script = bench.script
    script.on_deliver = [SinkError("not now", stays_open=True)]
    bench.tell("vm-silent")
    script.wait_for_calls("maintain", 1)
    bench.advance(600)
    script.wait_for_records(1)
    assert script.calls.count("open") == 1
    assert "close" not in script.calls
