"""The worker of one sink: order, refusals, waits, and its end."""

import threading

import pytest
from support.sinks.scripted_sink import PATIENCE, DispatcherBench, Script
from support.store_helpers import bridge_draft, draft

from bridge.delivery.health import reason_of
from bridge.store.database import StoreError
from sinks.base import SinkError, SinkPaused, SinkRejected
from wire.record import BRIDGE_DEAD_LETTER, BRIDGE_HEARTBEAT


@pytest.fixture
def ops(bench: DispatcherBench) -> Script:
    """The script of the one sink."""
    return bench.scripts["ops"]


def test_records_are_delivered_in_order(bench: DispatcherBench, ops: Script) -> None:
    """Records from before the start and later ones are delivered in order."""
    bench.commit(*[draft(n) for n in range(1, 6)])
    bench.start()
    ops.wait_for_records(5)
    bench.commit(draft(6))
    ops.wait_for_records(6)
    assert ops.sequences() == [1, 2, 3, 4, 5, 6]
    ops.wait_for(lambda: bench.dispatcher.health["ops"].delivered == 6)


def test_a_failure_is_tried_again_after_a_wait(bench: DispatcherBench, ops: Script) -> None:
    """A record that failed is delivered again when the wait is over, and not before."""
    ops.on_deliver = [SinkError("down, secret")]
    bench.commit(draft(1), draft(2))
    bench.start()
    ops.wait_for_calls("close", 1)
    health = bench.dispatcher.health["ops"]
    bench.wait_for_failure("ops")
    assert (health.reason, health.failures) == ("down, [secret]", 1)
    bench.advance(0.9)
    assert ops.sequences() == []
    bench.advance(0.2)
    ops.wait_for_records(2)
    ops.wait_for(lambda: health.state == "ok")
    assert (ops.sequences(), health.failures) == ([1, 2], 0)


def test_a_failed_open_is_closed_and_tried_again(bench: DispatcherBench, ops: Script) -> None:
    """`close` is called after each `open`, whether it succeeded or failed."""
    ops.on_open = [SinkError("no")]
    bench.start()
    ops.wait_for_calls("close", 1)
    assert ops.calls == ["open", "close"]
    bench.wait_for_failure("ops")
    bench.advance(1.1)
    ops.wait_for(lambda: bench.dispatcher.health["ops"].state == "idle")


def test_a_sink_that_refuses_every_record_is_never_ok(bench: DispatcherBench, ops: Script) -> None:
    """A sink that only refuses records never has the state ok."""
    seen = set()
    # The records about the dead ones are refused too.
    ops.on_deliver = [SinkRejected("no")] * 9
    ops.on_maintain = [lambda: seen.add(bench.dispatcher.health["ops"].state)] * 9
    bench.commit(*[draft(n) for n in range(1, 4)])
    bench.start()
    health = bench.dispatcher.health["ops"]
    ops.wait_for(lambda: health.dead >= 3 and health.state == "idle")
    ops.wait_for_calls("maintain", 3)
    assert "ok" not in seen


def test_a_refusal_after_deliveries_takes_the_ok_away(bench: DispatcherBench, ops: Script) -> None:
    """After a refusal the sink is not ok until it accepts a record again."""
    taken_again = threading.Event()

    def hold() -> None:
        taken_again.wait(PATIENCE)

    ops.on_deliver = [None, SinkRejected("no"), hold]
    bench.commit(draft(1))
    bench.start()
    assert wait_ok(bench, ops) == "ok"
    bench.commit(draft(2))
    ops.wait_for(lambda: bench.dispatcher.health["ops"].state == "idle")
    taken_again.set()
    bench.commit(draft(3))
    assert wait_ok(bench, ops) == "ok"


def test_a_failure_between_two_records_is_over_when_the_sink_is_open_again(
    bench: DispatcherBench, ops: Script
) -> None:
    """A sink that has acknowledged a record in this run is ok again after an error in `maintain`
    once it is open.
    """
    bench.commit(draft(1))
    bench.start()
    assert wait_ok(bench, ops) == "ok"
    ops.on_maintain = [SinkError("lost")]
    bench.dispatcher.wake()
    bench.wait_for_failure("ops")
    bench.advance(1.1)
    assert wait_ok(bench, ops) == "ok"


def wait_ok(bench: DispatcherBench, ops: Script) -> str:
    """Wait until the sink is ok."""
    ops.wait_for(lambda: bench.dispatcher.health["ops"].state == "ok")
    return bench.dispatcher.health["ops"].state


def test_what_was_acknowledged_is_not_sent_again(bench: DispatcherBench, ops: Script) -> None:
    """Records that an error counts as delivered are not sent again, and the wait begins with its
    shortest value.
    """
    ops.on_deliver = [SinkError("no"), SinkError("half", delivered=2)]
    bench.commit(*[draft(n) for n in range(1, 4)])
    bench.start()
    health = bench.dispatcher.health["ops"]
    bench.wait_for_failure("ops")
    bench.advance(1.1)
    ops.wait_for(lambda: health.reason == "half" and health.next_try_at is not None)
    assert (health.failures, health.delivered) == (1, 2)
    bench.advance(1.1)
    ops.wait_for_records(1)
    assert ops.sequences() == [3]


@pytest.mark.parametrize("delivered", [-1, 7])
def test_an_error_that_counts_wrongly(bench: DispatcherBench, ops: Script, delivered: int) -> None:
    """An error with an impossible number of delivered records loses no record and does not stop the
    worker.
    """
    ops.on_deliver = [
        SinkError("odd", delivered=delivered),
        SinkRejected("odd", delivered=delivered),
    ]
    bench.commit(*[draft(n) for n in range(1, 8)])
    bench.start()
    bench.wait_for_failure("ops")
    bench.advance(1.1)
    ops.wait_for_calls("deliver", 2)
    ops.wait_for(lambda: bench.dispatcher.health["ops"].next_try_at is not None)
    bench.advance(60)
    ops.wait_for(lambda: 7 in ops.sequences())
    assert bench.outbox.dead.count("ops") == 0
    assert ops.sequences() == list(range(ops.sequences()[0], 8))


def test_a_refused_record_is_dead_and_the_others_go_on(bench: DispatcherBench, ops: Script) -> None:
    """A refused record is dead with its reason, a dead letter reports it to the same sink, and
    later records are delivered.
    """
    ops.on_deliver = [SinkRejected("too large, secret", delivered=1)]
    bench.commit(*[draft(n) for n in range(1, 4)])
    bench.start()
    ops.wait_for(lambda: 4 in ops.sequences())
    assert ops.sequences() == [3, 4]
    assert ops.records[-1].type == BRIDGE_DEAD_LETTER
    (dead,) = bench.outbox.dead.shown()
    assert (dead.sequence, dead.reason, dead.attempts) == (2, "too large, [secret]", 1)


def test_the_last_refusal_is_shown_until_a_record_is_acknowledged(
    bench: DispatcherBench, ops: Script
) -> None:
    """A sink that refused the last record is idle and says why, until it acknowledges one."""
    ops.on_deliver = [SinkRejected("no"), SinkRejected("no")]
    bench.commit(draft(1))
    bench.start()
    health = bench.dispatcher.health["ops"]
    ops.wait_for(lambda: health.reason is not None)
    assert (health.state, health.reason) == ("idle", "the last record was refused: no")
    bench.commit(draft(9))
    ops.wait_for(lambda: health.state == "ok")
    assert health.reason is None


def test_a_record_that_may_yet_be_taken_is_tried_so_often(
    bench: DispatcherBench, ops: Script
) -> None:
    """A record is marked as dead after as many tries as the error says."""
    ops.on_deliver = [SinkRejected("no", tries=3) for _ in range(3)]
    bench.commit(draft(1), draft(2))
    bench.start()
    for failures in (1, 2):
        bench.wait_for_failure("ops", failures)
        assert bench.outbox.dead.count("ops") == 0
        bench.advance(2.1)
    ops.wait_for_records(2)
    assert [dead.attempts for dead in bench.outbox.dead.shown()] == [3]


@pytest.mark.parametrize("kind", [BRIDGE_HEARTBEAT, BRIDGE_DEAD_LETTER])
def test_a_refused_dead_letter_or_heartbeat_makes_no_record(
    bench: DispatcherBench, ops: Script, kind: str
) -> None:
    """A refused dead letter or heartbeat is marked as dead without a further record."""
    ops.on_deliver = [SinkRejected("no")]
    bench.commit(bridge_draft(kind))
    bench.start()
    ops.wait_for(lambda: bench.outbox.dead.count("ops") == 1)
    bench.commit(draft(1))
    ops.wait_for_records(1)
    assert ops.sequences() == [2]


def test_a_damaged_record_is_dead(bench: DispatcherBench, ops: Script) -> None:
    """A damaged record is marked as dead, nothing of it is sent, and later records are
    delivered.
    """
    bench.commit(*[draft(n) for n in range(1, 4)])
    with bench.store.transaction() as connection:
        connection.execute("UPDATE records SET body = X'00' WHERE sequence = 2")
    bench.start()
    ops.wait_for(lambda: 4 in ops.sequences())
    assert ops.sequences() == [1, 3, 4]
    assert [dead.sequence for dead in bench.outbox.dead.shown()] == [2]


def test_a_paused_sink_rests_until_a_person_acts(bench: DispatcherBench, ops: Script) -> None:
    """A paused sink is not tried until a person resumes it, and no record is lost."""
    ops.on_deliver = [SinkPaused("gone for good")]
    bench.commit(draft(1))
    bench.start()
    health = bench.dispatcher.health["ops"]
    ops.wait_for(lambda: health.state == "paused")
    bench.advance(1e6)
    bench.commit(draft(2))
    assert ops.calls.count("deliver") == 1
    bench.dispatcher.resume("ops")
    ops.wait_for_records(2)
    assert ops.sequences() == [1, 2]


def test_the_destinations_wish_is_honoured(bench: DispatcherBench, ops: Script) -> None:
    """The worker waits for the destination's Retry-After, up to five minutes."""
    ops.on_deliver = [SinkError("busy", retry_after=100), SinkError("busy", retry_after=1e9)]
    bench.commit(draft(1))
    bench.start()
    ops.wait_for_calls("deliver", 1)
    bench.wait_for_failure("ops", 1)
    bench.advance(99)
    assert ops.calls.count("deliver") == 1
    bench.advance(1.1)
    ops.wait_for_calls("deliver", 2)
    bench.wait_for_failure("ops", 2)
    bench.advance(300.1)
    ops.wait_for_records(1)


def test_a_near_event_cuts_the_wait(bench: DispatcherBench, ops: Script) -> None:
    """If an event of this VM may start within two minutes, no wait is longer than five seconds."""
    ops.on_deliver = [SinkError("no", retry_after=300)]
    bench.commit(draft(1))
    bench.start()
    health = bench.wait_for_failure("ops")
    bench.urgent = True
    bench.advance(0)
    ops.wait_for(lambda: health.next_try_at == bench.clock.monotonic() + 5)
    bench.advance(5)
    ops.wait_for_records(1)


@pytest.mark.parametrize("error", [ZeroDivisionError("oops"), SystemExit(3), KeyError()])
@pytest.mark.parametrize("place", ["on_open", "on_deliver", "on_maintain"])
def test_a_bug_in_a_sink_is_tried_again(
    bench: DispatcherBench, ops: Script, place: str, error: BaseException
) -> None:
    """Any exception of a sink, even an attempt to exit, is a failure that is reported as a bug, and
    the record is tried again.
    """
    setattr(ops, place, [error])
    bench.commit(draft(1))
    bench.start()
    health = bench.dispatcher.health["ops"]
    bench.wait_for_failure("ops")
    assert "a bug in the sink" in str(health.reason)
    bench.advance(1.1)
    assert wait_ok(bench, ops) == "ok"
    assert ops.sequences() == [1]


def test_an_error_of_the_store_is_waited_out(
    bench: DispatcherBench, ops: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a refusal cannot be stored, the record is neither skipped nor delivered again."""
    ops.on_deliver = [SinkRejected("no")]
    bench.commit(draft(1))
    mark_dead, full = bench.outbox.mark_dead, [True]

    def mark_or_not(*place: object, **how: object) -> None:
        if full.pop() if full else False:
            raise StoreError("full")
        mark_dead(*place, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(bench.outbox, "mark_dead", mark_or_not)
    bench.start()
    bench.wait_for_failure("ops")
    assert bench.dispatcher.health["ops"].reason == "full"
    assert bench.outbox.dead.count("ops") == 0
    bench.advance(1.1)
    ops.wait_for(lambda: bench.outbox.dead.count("ops") == 1)
    ops.wait_for_records(1)
    assert [record.type for record in ops.records] == [BRIDGE_DEAD_LETTER]
    assert [dead.attempts for dead in bench.outbox.dead.shown()] == [1]


def test_finish_delivers_what_is_left(bench: DispatcherBench, ops: Script) -> None:
    """`finish` delivers every record, closes the sink and ends its thread."""
    bench.commit(*[draft(n) for n in range(1, 20)])
    bench.start()
    assert bench.finish()
    assert list(range(1, 20)) == ops.sequences()
    assert ops.calls[-1] == "close"
    assert not [thread for thread in ops.threads if thread.is_alive()]


def test_finish_gives_a_waiting_sink_one_try(bench: DispatcherBench, ops: Script) -> None:
    """`finish` makes a waiting sink try at once, and only once."""
    ops.on_deliver = [SinkError("no", retry_after=300), SinkError("still no")]
    bench.commit(draft(1))
    bench.start()
    bench.wait_for_failure("ops", 1)
    assert bench.finish()
    assert ops.calls.count("deliver") == 2
    assert bench.outbox.backlog("ops").records == 1


def test_finish_leaves_a_paused_sink_alone(bench: DispatcherBench, ops: Script) -> None:
    """`finish` does not try a paused sink."""
    ops.on_deliver = [SinkPaused("gone")]
    bench.commit(draft(1))
    bench.start()
    ops.wait_for(lambda: bench.dispatcher.health["ops"].state == "paused")
    assert bench.finish()
    assert ops.calls.count("deliver") == 1


def test_reasons_fit_a_line_and_a_record() -> None:
    """A reason is one line of limited length, without secrets, in valid UTF-8."""

    class Mute(Exception):
        def __str__(self) -> str:
            raise ZeroDivisionError

    def redact(text: str) -> str:
        return text.replace("secret", "*")

    assert reason_of(ValueError("a\n b secret"), redact) == "a b *"
    assert len(reason_of(ValueError("x" * 10_000), redact)) == 501
    assert reason_of(ValueError("half \ud800"), redact) == "half ?"
    assert reason_of(Mute(), redact) == "Mute"
    assert reason_of(KeyError(), redact) == "KeyError"


def test_a_refusal_on_a_good_connection_keeps_it(bench: DispatcherBench, ops: Script) -> None:
    """After an error that `stays_open`, the sink is not closed, and is maintained while it
    waits.
    """
    ops.on_deliver = [SinkError("refused", stays_open=True)] * 2
    bench.commit(draft(1))
    bench.start()
    bench.wait_for_failure("ops", 1)
    ops.wait_for_calls("maintain", 1)
    bench.advance(1.1)
    bench.wait_for_failure("ops", 2)
    ops.wait_for_calls("maintain", 2)
    bench.advance(2.1)
    ops.wait_for_records(1)
    ops.wait_for(lambda: bench.dispatcher.health["ops"].state == "ok")
    assert (ops.calls.count("open"), ops.calls.count("close")) == (1, 0)


def test_a_connection_that_breaks_while_the_sink_waits_is_made_again(
    bench: DispatcherBench, ops: Script
) -> None:
    """A sink whose `maintain` fails during a wait is closed, and opened before the next try of its
    record.
    """
    ops.on_deliver = [SinkError("refused", stays_open=True)]
    ops.on_maintain = [SinkError("the connection is lost")]
    bench.commit(draft(1))
    bench.start()
    ops.wait_for_calls("close", 1)
    bench.advance(1.1)
    ops.wait_for_records(1)
    assert ops.calls.count("open") == 2


def test_a_connection_that_breaks_is_made_again_while_a_record_waits(
    bench: DispatcherBench, ops: Script
) -> None:
    """A connection over which commands come is made again with pauses of its own, however long the
    destination wants the refused record to wait.
    """
    ops.on_open = [None, SinkError("the server is still away")]
    ops.on_deliver = [SinkError("refused", stays_open=True, retry_after=300.0)]
    ops.on_maintain = [SinkError("the connection is lost")]
    bench.commit(draft(1))
    bench.start()
    ops.wait_for_calls("close", 1)
    bench.advance(1.1)
    ops.wait_for_calls("close", 2)
    bench.advance(2.1)
    ops.wait_for_calls("open", 3)
    bench.advance(0.0)
    ops.wait_for_calls("maintain", 2)
    assert ops.sequences() == []
    assert bench.dispatcher.health["ops"].reason == "refused"
    bench.advance(300)
    ops.wait_for_records(1)
    assert ops.calls.count("open") == 3


def test_a_try_that_meets_a_broken_connection_delays_no_commands(
    bench: DispatcherBench, ops: Script
) -> None:
    """If the next try of a refused record cannot open the sink, the connection is made again soon,
    however often the record has failed.
    """
    ops.on_open = [None, SinkError("the server is away")]
    ops.on_deliver = [SinkError("refused", stays_open=True, retry_after=10.0)]
    bench.commit(draft(1))
    bench.start()
    bench.wait_for_failure("ops", 1)
    bench.dispatcher.health["ops"].failures = 6
    ops.on_maintain = [SinkError("the connection is lost")]
    bench.advance(9.5)
    ops.wait_for_calls("close", 1)
    bench.advance(0.6)
    ops.wait_for_calls("close", 2)
    bench.wait_for_failure("ops", 7)
    bench.advance(2.1)
    ops.wait_for_calls("open", 3)
    assert ops.sequences() == []


def test_a_connection_that_is_never_good_is_made_less_and_less_often(
    bench: DispatcherBench, ops: Script
) -> None:
    """A sink that opens and then cannot be maintained is opened after growing pauses, and not
    before the time for which the destination asks.
    """
    ops.on_deliver = [SinkError("refused", stays_open=True, retry_after=300.0)]
    ops.on_maintain = [SinkError("no"), SinkError("no"), SinkError("quiet", retry_after=60.0)]
    bench.commit(draft(1))
    bench.start()
    ops.wait_for_calls("close", 1)
    bench.advance(1.1)
    ops.wait_for_calls("open", 2)
    bench.advance(0.0)
    ops.wait_for_calls("close", 2)
    bench.advance(1.1)
    assert ops.calls.count("open") == 2
    bench.advance(1.0)
    ops.wait_for_calls("open", 3)
    bench.advance(0.0)
    ops.wait_for_calls("close", 3)
    bench.advance(59.0)
    assert ops.calls.count("open") == 3
    bench.advance(1.1)
    ops.wait_for_calls("open", 4)


def test_records_go_out_though_maintaining_fails(bench: DispatcherBench, ops: Script) -> None:
    """Each try delivers before `maintain` is called, so that its errors delay no record."""
    ops.on_maintain = [SinkError("no commands come in")] * 3
    bench.commit(draft(1))
    bench.start()
    bench.wait_for_failure("ops", 1)
    bench.commit(draft(2))
    bench.advance(1.1)
    bench.wait_for_failure("ops", 2)
    assert ops.sequences() == [1, 2]


def test_a_sink_that_hangs_while_it_waits_is_abandoned(bench: DispatcherBench, ops: Script) -> None:
    """A call of `maintain` that hangs is abandoned like any other."""
    release = threading.Event()
    ops.on_deliver = [SinkError("refused", stays_open=True)]
    ops.on_maintain = [lambda: release.wait(PATIENCE) and None]
    bench.commit(draft(1))
    bench.start()
    ops.wait_for_calls("maintain", 1)
    bench.clock.advance(31)
    bench.dispatcher.supervise()
    bench.wait_for_failure("ops", 2)
    release.set()
    bench.advance(130)
    ops.wait_for_records(1)
    assert ops.made == 2
