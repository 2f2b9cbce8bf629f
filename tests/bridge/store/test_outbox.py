"""The outbox: each sink gets every record in order, and refused records are listed as dead."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.store_helpers import NOW, bridge_draft, draft, event_row, opened, recipients, sequences

from bridge.store import retention
from bridge.store.batch import Batch
from bridge.store.database import Store, StoreError
from bridge.store.outbox import Outbox
from bridge.store.recipient import Accepts, Recipient
from sinks.record_choice import RecordChoice
from wire.record import (
    BRIDGE_DEAD_LETTER,
    BRIDGE_HEARTBEAT,
    BRIDGE_STARTED,
    EVENT_ENDED,
    EVENT_SCHEDULED,
    EVENT_STARTED,
    EVENT_UPDATED,
    Record,
)


@pytest.fixture
def outbox(store: Store) -> Outbox:
    """An outbox with one sink, `ops`."""
    made = Outbox(store)
    made.register(recipients("ops"))
    return made


def accept(outbox: Outbox, accepts: Accepts) -> None:
    """Make `ops` accept only these records from now on."""
    outbox.register({"ops": Recipient(kind="test", accepts=accepts)})


def drain(outbox: Outbox, sink: str = "ops", *, limit: int = 10) -> list[Record]:
    """Deliver everything; return the records in order."""
    got: list[Record] = []
    while batch := outbox.next(sink, limit):
        got.extend(batch.records)
        outbox.move_past(sink, batch)
    return got


def commit(store: Store, *numbers: int) -> list[Record]:
    """Commit a record for each number."""
    return store.commit([draft(number) for number in numbers])


def damage(store: Store, sequence: int, change: str) -> None:
    """Change a stored record without the outbox."""
    with store.transaction() as connection:
        connection.execute(f"UPDATE records SET {change} WHERE sequence = ?", (sequence,))


@pytest.mark.parametrize("limit", [1, 3, 100])
def test_every_record_once_and_in_order(store: Store, outbox: Outbox, limit: int) -> None:
    """Every record is delivered once and in order with its committed bytes, whatever the size of a
    batch.
    """
    committed = commit(store, *range(1, 11))
    assert committed == drain(outbox, limit=limit)
    assert outbox.next("ops", 1) is None


def test_a_record_comes_again_until_it_is_delivered(store: Store, outbox: Outbox) -> None:
    """Reading does not move the cursor; delivering a part of a batch moves it past that part."""
    commit(store, 1, 2, 3)
    batch = outbox.next("ops", 10)
    assert batch == outbox.next("ops", 10)
    assert batch is not None
    outbox.move_past("ops", batch, 0)
    outbox.move_past("ops", batch, 2)
    assert sequences(drain(outbox)) == [3]


def test_progress_outlives_the_process(tmp_path: Path) -> None:
    """A sink continues at its cursor after a restart."""
    with opened(tmp_path) as store:
        outbox = Outbox(store)
        outbox.register(recipients("ops", "slow"))
        commit(store, 1, 2, 3)
        drain(outbox)
    with opened(tmp_path) as store:
        outbox = Outbox(store)
        assert outbox.register(recipients("ops", "slow")) == {"ops": 3, "slow": 0}
        assert (sequences(drain(outbox)), sequences(drain(outbox, "slow"))) == ([], [1, 2, 3])


def test_a_new_sink_begins_with_what_is_pending(store: Store, outbox: Outbox) -> None:
    """A new sink gets the newest record of each pending event, and no ended one."""
    store.commit([draft(1, event_id="Coming")], events=[event_row("Coming")])
    store.commit([draft(2, event_id="over")], events=[event_row("over", pending=False)])
    store.commit([draft(3, event_id="Coming", record_type=EVENT_STARTED)])
    store.commit([draft(4, event_id="over")])
    drain(outbox)
    outbox.register(recipients("ops", "new"))
    assert outbox.backlog("new").records == 1
    assert sequences(drain(outbox, "new")) == [3]


def test_a_new_sink_with_nothing_pending_begins_now(store: Store, outbox: Outbox) -> None:
    """Without a pending event a new sink gets only later records."""
    commit(store, 1, 2)
    outbox.register(recipients("ops", "new"))
    commit(store, 3)
    assert sequences(drain(outbox, "new")) == [3]


def test_a_sink_that_is_configured_again(store: Store, outbox: Outbox) -> None:
    """A sink that is configured again gets its backlog, the ends of the events that it knows and
    the newest record of each pending event; and never an event that came and went in between.
    """
    store.commit(
        [draft(1, event_id="known"), draft(2, event_id="waits")],
        events=[event_row("known"), event_row("waits")],
    )
    drain(outbox, limit=1)
    store.commit([draft(3, event_id="waits")])
    outbox.register(recipients("other"))
    assert outbox.backlog("ops").records == 1
    store.commit([draft(4, event_id="past")], events=[event_row("past")])
    for number, event in enumerate(("known", "past", "waits"), 5):
        store.commit([draft(number, event_id=event)], events=[event_row(event, pending=False)])
    store.commit([draft(8, event_id="new"), draft(9, event_id="new")], events=[event_row("new")])
    assert outbox.known_sinks() == {"ops": False, "other": True}
    for _ in range(2):
        outbox.register(recipients("ops", "other"))
    commit(store, 10)
    assert outbox.backlog("ops").records == 5
    assert sequences(drain(outbox)) == [3, 5, 7, 9, 10]


def test_what_a_sink_that_is_away_waits_for_is_kept(
    store: Store, outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ends of the events that a removed sink knows are kept, and no other record is kept for
    it.
    """
    monkeypatch.setattr(retention, "KEEP_DELIVERED", 10)
    store.commit([draft(1, event_id="known")], events=[event_row("known")])
    drain(outbox)
    outbox.register(recipients("other"))
    ended = draft(2, event_id="known", record_type=EVENT_ENDED)
    store.commit([ended], events=[event_row("known", pending=False)])
    store.commit(forgotten={"known": 2})
    for number in range(3, 300):
        commit(store, number)
        drain(outbox, "other")
        store.prune()
    ((kept,),) = store.read("SELECT count(*) FROM records")
    assert kept <= 10 + retention.PRUNE_EVERY + 2
    outbox.register(recipients("ops", "other"))
    assert sequences(drain(outbox)) == [2]


def test_a_sink_may_be_taken_out_twice_without_a_record_in_between(
    store: Store, outbox: Outbox
) -> None:
    """A sink that is put back and removed again, without a record in between, keeps its backlog."""
    commit(store, 1)
    for _ in range(2):
        outbox.register(recipients("other"))
        outbox.register(recipients("ops", "other"))
    outbox.register(recipients("other"))
    commit(store, 2)
    outbox.register(recipients("ops", "other"))
    assert sequences(drain(outbox)) == [1]


def test_a_sink_that_leaves_out_other_vms_gets_the_ends_that_it_needs(
    store: Store, outbox: Outbox
) -> None:
    """A sink that leaves out other VMs from now on gets the ends of those events of other VMs that
    it got before.
    """
    others = {"resources": ("web_4",)}
    store.commit([draft(1, event_id="known", **others)], events=[event_row("known")])
    drain(outbox)
    accept(outbox, lambda kind, concerns: concerns is not False)
    store.commit([draft(2, event_id="unknown", **others)], events=[event_row("unknown")])
    for number, event in enumerate(("known", "unknown"), 3):
        store.commit([draft(number, event_id=event, record_type=EVENT_ENDED, **others)])
    assert sequences(drain(outbox)) == [3]


def test_unwanted_records_are_passed_over(store: Store, outbox: Outbox) -> None:
    """A sink gets what it accepts, and its cursor moves past the rest."""
    store.commit(
        [
            draft(number) if number % 500 == 0 else bridge_draft(BRIDGE_STARTED)
            for number in range(1, 2001)
        ]
    )
    accept(outbox, lambda kind, concerns: concerns is not None)
    wanted = []
    while batch := outbox.next("ops", 3):
        wanted += sequences(batch.records)
        outbox.move_past("ops", batch)
    assert wanted == [500, 1000, 1500, 2000]


EVENTS: Accepts = lambda kind, _: kind.startswith("seb.event.")  # noqa: E731
NO_EVENTS: Accepts = lambda kind, _: not kind.startswith("seb.event.")  # noqa: E731
OURS: Accepts = lambda kind, concerns: concerns is not False  # noqa: E731


def choose(outbox: Outbox, accepts: Accepts, choice: str) -> None:
    """Begin a run in which `ops` accepts other records."""
    outbox.register({"ops": Recipient(kind="test", accepts=accepts, choice=choice)})


def commit_to_all(store: Store, outbox: Outbox) -> None:
    """Commit a record that `ops` always accepts, so that its cursor passes all before it."""
    outbox.recipients = {
        "ops": Recipient(kind="test", accepts=lambda kind, _: kind == BRIDGE_STARTED)
    }
    store.commit([bridge_draft(BRIDGE_STARTED)])
    drain(outbox)


@pytest.mark.parametrize("ended", [False, True])
def test_a_sink_that_chooses_otherwise_gets_what_it_left_out(
    store: Store, outbox: Outbox, *, ended: bool
) -> None:
    """A sink that accepts more gets the newest record of each pending event and the ends of known
    ones, each once.
    """
    choose(outbox, EVENTS if ended else NO_EVENTS, "then")
    (shown,) = store.commit([draft(1, event_id="event-1")], events=[event_row("event-1")])
    assert drain(outbox) == ([shown] if ended else [])
    if ended:
        choose(outbox, NO_EVENTS, "meanwhile")
        newest = draft(2, event_id="event-1", record_type=EVENT_ENDED)
        (shown,) = store.commit([newest], events=[event_row("event-1", pending=False)])
    # Of what came and went it gets nothing.
    store.commit([draft(3, event_id="event-3")], events=[event_row("event-3", pending=False)])
    (last,) = store.commit([bridge_draft(BRIDGE_STARTED)])
    assert drain(outbox) == [last]
    choose(outbox, EVENTS, "now")
    assert drain(outbox) == [shown]
    choose(outbox, lambda *_: True, "later")
    assert drain(outbox) == []


def test_a_sink_that_chooses_otherwise_gets_no_dead_record_again(
    store: Store, outbox: Outbox
) -> None:
    """A sink that accepts more gets no dead record, which only a person can retry."""
    choose(outbox, EVENTS, "then")
    (shown,) = store.commit([draft(1, event_id="event-1")], events=[event_row("event-1")])
    outbox.mark_dead("ops", shown.sequence, reason="no", attempts=1, now=NOW)
    choose(outbox, lambda *_: True, "now")
    assert drain(outbox) == []


def test_a_sink_that_chooses_twice_gets_what_it_left_out_at_first(
    store: Store, outbox: Outbox
) -> None:
    """A sink whose filter changed twice gets what the first one left out, also if it delivered
    nothing in between.
    """
    others = {"event_id": "event-2", "resources": ("web_4",)}
    store.commit(
        [draft(1, event_id="event-1"), draft(2, **others)],
        events=[event_row("event-1"), event_row("event-2")],
    )
    choose(outbox, EVENTS, "then")
    assert sequences(drain(outbox, limit=1)) == [1, 2]
    choose(outbox, NO_EVENTS, "meanwhile")
    updated = draft(3, event_id="event-1", record_type=EVENT_UPDATED)
    ended = draft(4, record_type=EVENT_ENDED, **others)
    store.commit([updated, ended], events=[event_row("event-2", pending=False)])
    commit_to_all(store, outbox)
    choose(outbox, lambda kind, concerns: kind == EVENT_UPDATED, "updates")
    choose(outbox, EVENTS, "now")
    assert sequences(drain(outbox)) == [3, 4]


@pytest.mark.parametrize("meanwhile", [OURS, lambda kind, _: kind == EVENT_SCHEDULED])
def test_a_sink_that_chooses_otherwise_gets_the_end_of_what_may_have_arrived(
    store: Store, outbox: Outbox, meanwhile: Accepts
) -> None:
    """A sink gets the end of an event whose first record it may have got, though its answer was not
    heard, and though it leaves out other VMs or other types from then on.
    """
    choose(outbox, EVENTS, "then")
    others = {"event_id": "event-1", "resources": ("web_4",)}
    started = draft(1, record_type=EVENT_STARTED, **others)
    store.commit([started], events=[event_row("event-1")])
    assert outbox.next("ops", 1) is not None  # it is sent, and no answer is heard
    choose(outbox, meanwhile, "meanwhile")
    ended = draft(2, record_type=EVENT_ENDED, **others)
    store.commit([ended], events=[event_row("event-1", pending=False)])
    got = drain(outbox)
    commit_to_all(store, outbox)
    choose(outbox, EVENTS, "now")
    assert sequences(got + drain(outbox)) == [2]


@pytest.mark.parametrize("how", ["other types", "removed", "prepares"])
def test_a_sink_gets_no_end_of_what_it_never_took(store: Store, outbox: Outbox, how: str) -> None:
    """A sink that leaves out events of other VMs gets no end of one, although their records stood
    behind its cursor on disk when its settings changed, or while it was out of the settings.
    """
    before = RecordChoice(types=["seb.event.*"], affects_this_vm_only=True)
    now = RecordChoice(types=["seb.event.*", "seb.approval.*"], affects_this_vm_only=True)
    choose(outbox, before.accepts, before.text)
    others = {"event_id": "event-2", "resources": ("web_4",)}
    store.commit([draft(1, event_id="event-1")], events=[event_row("event-1")])
    assert sequences(drain(outbox)) == [1]
    store.commit([draft(2, **others)], events=[event_row("event-2")])
    assert drain(outbox) == []
    if how == "removed":
        outbox.register(recipients("another"))
    if how == "prepares":
        outbox.register({"ops": Recipient(kind="test", prepares=True, accepts=lambda *_: False)})
    choose(outbox, now.accepts, now.text)
    ended = draft(3, record_type=EVENT_ENDED, **others)
    store.commit([ended], events=[event_row("event-2", pending=False)])
    assert [each for each in drain(outbox) if each.sequence > 1] == []


def test_a_sink_that_was_away_gets_the_end_of_what_it_left_out(
    store: Store, outbox: Outbox
) -> None:
    """A sink that left out an event's end gets it after an absence in which the event came back and
    ended again.
    """
    choose(outbox, EVENTS, "then")
    store.commit([draft(1, event_id="event-1")], events=[event_row("event-1")])
    drain(outbox)
    choose(outbox, NO_EVENTS, "meanwhile")
    over = event_row("event-1", pending=False)
    store.commit([draft(2, event_id="event-1", record_type=EVENT_ENDED)], events=[over])
    commit_to_all(store, outbox)
    outbox.register(recipients("other"))
    store.commit([draft(4, event_id="event-1")], events=[event_row("event-1")])
    store.commit([draft(5, event_id="event-1", record_type=EVENT_ENDED)], events=[over])
    choose(outbox, EVENTS, "now")
    assert sequences(drain(outbox))[-1] == 5


def test_a_dead_record_that_is_tried_again_has_the_end_behind_it(
    store: Store, outbox: Outbox
) -> None:
    """Behind a dead record that is retried comes the event's end, which the sink left out before
    and accepts now.
    """
    choose(outbox, lambda kind, concerns: kind == EVENT_SCHEDULED, "then")
    store.commit([draft(1, event_id="event-1")], events=[event_row("event-1")])
    outbox.mark_dead("ops", 1, reason="no", attempts=1, now=NOW)
    ended = draft(2, event_id="event-1", record_type=EVENT_ENDED)
    store.commit([ended], events=[event_row("event-1", pending=False)])
    commit_to_all(store, outbox)
    outbox.retry("ops", None)
    choose(outbox, EVENTS, "now")
    assert sequences(drain(outbox)) == [1, 2]


@pytest.mark.parametrize("end", ["delivered", "refused", "dropped"])
def test_what_an_older_record_may_undo_is_not_acknowledged(
    store: Store, outbox: Outbox, end: str
) -> None:
    """Behind an older record that is retried, the newest record of the event counts as acknowledged
    once the sink has acknowledged it again.
    """
    row = event_row("event-1")
    store.commit([draft(1, event_id="event-1")], events=[row])
    outbox.mark_dead("ops", 1, reason="no", attempts=1, now=NOW)
    store.commit([draft(2, event_id="event-1")], events=[row])
    drain(outbox)
    assert outbox.has_acknowledged("ops", "event-1")
    outbox.retry("ops", None)
    assert not outbox.has_acknowledged("ops", "event-1")
    batch = outbox.next("ops", 1)
    assert batch is not None
    outbox.move_past("ops", batch)
    assert not outbox.has_acknowledged("ops", "event-1")
    if end == "delivered":
        drain(outbox)
    else:
        outbox.mark_dead("ops", 2, reason="no", attempts=1, now=NOW, again=True)
    if end == "dropped":
        outbox.dead.drop("ops", None)
    assert outbox.has_acknowledged("ops", "event-1") is (end == "delivered")


def test_a_catch_up_record_does_not_come_behind_a_newer_one_that_is_tried_again(
    store: Store, outbox: Outbox
) -> None:
    """A sink that accepts ends again is to get one that it left out; a newer record of the event,
    which it had refused, is tried again before that: the end does not follow it.
    """
    choose(outbox, lambda kind, concerns: kind == EVENT_SCHEDULED, "then")
    store.commit([draft(1, event_id="event-1")], events=[event_row("event-1")])
    drain(outbox)
    ended = draft(2, event_id="event-1", record_type=EVENT_ENDED)
    store.commit([ended, draft(3, event_id="event-1")], events=[event_row("event-1")])
    outbox.mark_dead("ops", 3, reason="no", attempts=1, now=NOW)
    choose(outbox, EVENTS, "now")
    outbox.retry("ops", None)
    assert sequences(drain(outbox)) == [3]
    assert outbox.has_acknowledged("ops", "event-1")


def test_what_is_refused_again_holds_up_nothing_that_came_back(
    store: Store, outbox: Outbox
) -> None:
    """A retried record that is refused again does not block an older record that the sink accepts
    now.
    """
    choose(outbox, lambda kind, concerns: kind == EVENT_SCHEDULED, "then")
    store.commit([draft(1, event_id="event-1")], events=[event_row("event-1")])
    drain(outbox)
    ended = draft(2, event_id="event-1", record_type=EVENT_ENDED)
    store.commit([ended, draft(3)], events=[event_row("event-1", pending=False)])
    outbox.mark_dead("ops", 3, reason="no", attempts=1, now=NOW)
    outbox.retry("ops", None)
    choose(outbox, EVENTS, "now")
    batch = outbox.next("ops", 1)
    assert batch is not None
    assert (batch.again, sequences(batch.records)) == (True, [3])
    outbox.mark_dead("ops", 3, reason="no", attempts=1, now=NOW, again=batch.again)
    assert sequences(drain(outbox)) == [2]
    assert [dead.sequence for dead in outbox.dead.shown()] == [3]


def test_a_sink_that_wants_nothing_holds_nothing_back(store: Store, outbox: Outbox) -> None:
    """The cursor of a sink that accepts nothing is stored from time to time, so that records can be
    deleted.
    """
    commit(store, *range(1, 1001))
    accept(outbox, lambda kind, concerns: False)
    assert outbox.next("ops", 1) is None
    assert store.read("SELECT cursor FROM sinks WHERE name = 'ops'") == [(1000,)]


def test_a_filter_gets_whether_this_vm_is_concerned(store: Store, outbox: Outbox) -> None:
    """A filter gets whether a record concerns this VM: True, False, or None for a record without an
    event.
    """
    store.commit([draft(1), draft(2, resources=("other",)), bridge_draft(BRIDGE_STARTED)])
    asked: list[bool | None] = []

    def accepts(kind: str, concerns: bool | None) -> bool:
        asked.append(concerns)
        return True

    accept(outbox, accepts)
    outbox.next("ops", 10)
    assert asked == [True, False, None]


def test_the_newest_heartbeat_alone_waits(store: Store, outbox: Outbox) -> None:
    """A backlog has only the newest heartbeat, in its order."""
    for _ in range(50):
        store.commit([bridge_draft(BRIDGE_HEARTBEAT)])
    commit(store, 51)
    assert outbox.backlog("ops").records == 2
    assert sequences(drain(outbox)) == [50, 51]


def test_a_heartbeat_that_is_replaced_during_delivery(store: Store, outbox: Outbox) -> None:
    """Acknowledging or refusing a heartbeat that was replaced has no effect."""
    store.commit([bridge_draft(BRIDGE_HEARTBEAT)])
    batch = outbox.next("ops", 1)
    assert batch is not None
    store.commit([bridge_draft(BRIDGE_HEARTBEAT)])
    outbox.mark_dead("ops", 1, reason="no", attempts=1, now=NOW)
    outbox.move_past("ops", batch)
    assert outbox.dead.shown() == []
    assert sequences(drain(outbox)) == [2]


def test_a_dead_record_is_shown_with_its_reason(store: Store, outbox: Outbox) -> None:
    """A refused record is listed with its reason, its dead letter is committed with it, and the
    sink continues.
    """
    (record, _) = commit(store, 1, 2)
    notice = bridge_draft(BRIDGE_DEAD_LETTER)
    outbox.mark_dead("ops", 1, reason="too large", attempts=5, now=NOW, notice=notice)
    (dead,) = outbox.dead.shown("ops")
    assert ("ops", 1, record.id, record.type, "too large", 5) == (
        dead.sink,
        dead.sequence,
        dead.record_id,
        dead.record_type,
        dead.reason,
        dead.attempts,
    )
    assert outbox.dead.shown("other") == []
    assert sequences(drain(outbox)) == [2, 3]


def test_refused_heartbeats_do_not_pile_up(store: Store, outbox: Outbox) -> None:
    """Of each sink's refused heartbeats only the newest is kept, and every other dead record."""
    commit(store, 1)
    outbox.mark_dead("ops", 1, reason="no", attempts=1, now=NOW)
    for sequence in range(2, 12):
        store.commit([bridge_draft(BRIDGE_HEARTBEAT)])
        outbox.mark_dead("ops", sequence, reason="no", attempts=1, now=NOW)
    commit(store, 12)
    outbox.mark_dead("ops", 12, reason="no", attempts=1, now=NOW)
    assert [dead.sequence for dead in outbox.dead.shown()] == [1, 11, 12]


def test_dead_records_are_tried_again_first(store: Store, outbox: Outbox) -> None:
    """Dead records that a person retries are delivered before new ones, and are not dead any more
    after that.
    """
    committed = commit(store, 1, 2, 3)
    for sequence in (1, 2):
        outbox.mark_dead("ops", sequence, reason="no", attempts=1, now=NOW)
    assert outbox.retry("ops", [2, 99]) == 1
    batch = outbox.next("ops", 10)
    assert batch == Batch(records=(committed[1],), cursor=0, again=True)
    assert sequences(drain(outbox)) == [2, 3]
    assert [dead.sequence for dead in outbox.dead.shown()] == [1]
    assert outbox.retry("ops", None) == 1
    assert sequences(drain(outbox)) == [1]
    assert outbox.dead.shown() == []


def test_what_is_tried_again_is_not_the_last_that_a_sink_hears_of_an_event(
    store: Store, outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a retried record the newest record of the same event is delivered again, such as its
    end.
    """
    monkeypatch.setattr(retention, "KEEP_DELIVERED", 3)
    store.commit([draft(1, event_id="E-1"), draft(2, event_id="E-2"), draft(3, event_id="E-1")])
    for sequence in (1, 2):
        outbox.mark_dead("ops", sequence, reason="no", attempts=1, now=NOW)
    ended = draft(4, event_id="E-1", record_type=EVENT_ENDED)
    store.commit([ended, *(draft(number, event_id="E-3") for number in range(5, 15))])
    drain(outbox)
    for _ in range(3):
        store._until_prune = 0
        store.prune()
    assert outbox.retry("ops", None) == 2
    assert sequences(drain(outbox)) == [1, 2, 4]
    assert outbox.dead.shown() == []
    assert outbox.next("ops", 1) is None


def test_what_was_in_flight_at_a_retry_follows_too(store: Store, outbox: Outbox) -> None:
    """The end of an event that a sink acknowledges after a person has let its beginning be tried
    again is delivered once more after that.
    """
    store.commit([draft(1, event_id="E-1")], events=[event_row("E-1")])
    outbox.mark_dead("ops", 1, reason="no", attempts=1, now=NOW)
    store.commit([draft(2, event_id="E-1", record_type=EVENT_ENDED)])
    in_flight = outbox.next("ops", 1)
    assert in_flight is not None
    assert outbox.retry("ops", None) == 1
    outbox.move_past("ops", in_flight)
    assert sequences(drain(outbox)) == [1, 2]
    assert outbox.has_acknowledged("ops", "e-1")
    assert outbox.next("ops", 1) is None


def test_a_retried_record_in_flight_at_another_retry_follows_too(
    store: Store, outbox: Outbox
) -> None:
    """The end of an event is being tried again when a person lets its beginning, which was refused
    once more, be tried again too: the end is delivered after that.
    """
    store.commit([draft(1, event_id="E-1")], events=[event_row("E-1")])
    store.commit([draft(2, event_id="E-1", record_type=EVENT_ENDED)])
    for sequence in (1, 2):
        outbox.mark_dead("ops", sequence, reason="no", attempts=1, now=NOW)
    outbox.retry("ops", None)
    first = outbox.next("ops", 1)
    assert first is not None
    outbox.mark_dead("ops", 1, reason="no", attempts=2, now=NOW, again=first.again)
    in_flight = outbox.next("ops", 1)
    assert in_flight is not None
    assert sequences(in_flight.records) == [2]
    outbox.retry("ops", None)
    outbox.move_past("ops", in_flight)
    assert sequences(drain(outbox)) == [1, 2]
    assert outbox.dead.shown() == []


def test_a_retried_record_goes_to_another_kind_with_its_end(store: Store, outbox: Outbox) -> None:
    """A sink becomes another kind before a retried beginning reaches it: the new one gets the end
    after it, though the former one wanted no ends.
    """
    choose(outbox, lambda kind, concerns: kind == EVENT_SCHEDULED, "then")
    store.commit([draft(1, event_id="E-1")], events=[event_row("E-1")])
    outbox.mark_dead("ops", 1, reason="no", attempts=1, now=NOW)
    ended = draft(2, event_id="E-1", record_type=EVENT_ENDED)
    store.commit([ended, draft(3)], events=[event_row("E-1", pending=False)])
    drain(outbox)
    outbox.retry("ops", None)
    outbox.register({"ops": Recipient(kind="another", accepts=EVENTS, choice="now")})
    assert sequences(drain(outbox))[:2] == [1, 2]


def test_what_a_sink_had_as_another_kind_follows_too(store: Store, outbox: Outbox) -> None:
    """A sink that is another kind now gets the end after a retried beginning, though only the
    former kind has had it.
    """
    store.commit([draft(1, event_id="E-1")], events=[event_row("E-1")])
    outbox.mark_dead("ops", 1, reason="no", attempts=1, now=NOW)
    store.commit([draft(2, event_id="E-1", record_type=EVENT_ENDED)])
    drain(outbox)
    outbox.register({"ops": replace(outbox.recipients["ops"], kind="another")})
    drain(outbox)
    assert outbox.retry("ops", None) == 1
    assert sequences(drain(outbox)) == [1, 2]


def test_an_end_that_a_sink_did_not_want_follows_a_retried_beginning(
    store: Store, outbox: Outbox
) -> None:
    """A sink that refused the beginning of an event of another VM, and leaves such events out now,
    gets the end after the beginning all the same. One that wants no ends gets none.
    """
    store.commit([draft(1, event_id="E-1", resources=("another",))], events=[event_row("E-1")])
    outbox.mark_dead("ops", 1, reason="no", attempts=1, now=NOW)
    own = replace(outbox.recipients["ops"], accepts=lambda _, concerns: concerns is not False)
    outbox.register({"ops": own})
    store.commit([draft(2, event_id="E-1", record_type=EVENT_ENDED, resources=("another",))])
    assert sequences(drain(outbox)) == []
    no_ends = replace(own, accepts=lambda kind, _: kind != EVENT_ENDED)
    for recipient, expected in ((no_ends, [1]), (own, [1, 2])):
        outbox.recipients = {"ops": recipient}
        assert outbox.retry("ops", None) == 1
        assert sequences(drain(outbox)) == expected
        outbox.mark_dead("ops", 1, reason="no", attempts=1, now=NOW)


def test_a_retry_without_a_running_bridge_lets_the_end_follow_too(
    store: Store, outbox: Outbox
) -> None:
    """An outbox that no bridge has opened knows how far the sink has come: the end that the sink
    left out follows the retried beginning.
    """
    store.commit([draft(1, event_id="E-1", resources=("another",))], events=[event_row("E-1")])
    outbox.mark_dead("ops", 1, reason="no", attempts=1, now=NOW)
    own = {"ops": Recipient(kind="test", accepts=lambda _, concerns: concerns is not False)}
    outbox.register(own)
    ended = draft(2, event_id="E-1", record_type=EVENT_ENDED, resources=("another",))
    store.commit([ended, draft(3)])
    assert sequences(drain(outbox)) == [3]
    assert Outbox(store, own).retry("ops", None) == 1
    outbox.register(own)
    assert sequences(drain(outbox)) == [1, 2]


def work(store: Store, act: Callable[[], object]) -> int:
    """Do this; return how much SQLite worked for it, in tens of its instructions."""
    done = 0

    def note() -> None:
        nonlocal done
        done += 1

    store._connection.set_progress_handler(note, 10)
    act()
    store._connection.set_progress_handler(None, 0)
    return done


def work_of_retry(directory: Path, count: int) -> tuple[int, int]:
    """Have so many dead records tried again, whose ends the sink has had; return how much SQLite
    works for that, and for the first delivery after it.
    """
    with opened(directory) as store:
        outbox = Outbox(store)
        outbox.register(recipients("ops"))
        events = [f"E-{number}" for number in range(count)]
        store.commit([draft(event_id=event) for event in events])
        for sequence in range(1, count + 1):
            outbox.mark_dead("ops", sequence, reason="no", attempts=1, now=NOW)
        store.commit([draft(event_id=event, record_type=EVENT_ENDED) for event in events])
        assert len(drain(outbox, limit=count)) == count
        retry = work(store, lambda: outbox.retry("ops", None))
        batch = outbox.next("ops", 1)
        assert batch is not None
        delivery = work(store, lambda: outbox.move_past("ops", batch))
        assert len(drain(outbox, limit=count)) == 2 * count - 1
    return retry, delivery


def test_a_retry_works_in_proportion_to_the_dead_records(tmp_path: Path) -> None:
    """A retry of four times as many dead records works four times as much, and the deliveries after
    it work no more than before: meanwhile no other sink and no poll gets at the store.
    """
    retry, delivery = work_of_retry(tmp_path / "few", 50)
    retry_of_many, delivery_of_many = work_of_retry(tmp_path / "many", 200)
    assert retry_of_many < 5 * retry
    assert delivery_of_many < 1.5 * delivery


def work_of_flapping(directory: Path, count: int) -> int:
    """Have so many dead records of one event tried again, which has ended and come back as often;
    return how much SQLite works for that.
    """
    with opened(directory) as store:
        outbox = Outbox(store)
        outbox.register(recipients("ops"))
        for number in range(count):
            store.commit([draft(event_id="E-1"), draft(event_id="E-1", record_type=EVENT_ENDED)])
            outbox.mark_dead("ops", 2 * number + 1, reason="no", attempts=1, now=NOW)
        drain(outbox, limit=count)
        return work(store, lambda: outbox.retry("ops", None))


def test_a_retry_of_one_event_works_in_proportion_to_its_records(tmp_path: Path) -> None:
    """An event that ends and comes back again and again makes a retry work no more for each of its
    dead records.
    """
    few = work_of_flapping(tmp_path / "few", 25)
    assert work_of_flapping(tmp_path / "many", 100) < 6 * few


def test_a_record_that_follows_a_retried_one_is_not_dead(store: Store, outbox: Outbox) -> None:
    """A record that the sink gets again after a retried one is in its backlog, and not dead: it is
    not listed, and not dropped, whether the older one has been delivered or not.
    """
    store.commit([draft(1, event_id="E-1")], events=[event_row("E-1")])
    outbox.mark_dead("ops", 1, reason="no", attempts=1, now=NOW)
    store.commit([draft(2, event_id="E-1", record_type=EVENT_ENDED)])
    drain(outbox)
    assert outbox.retry("ops", None) == 1
    assert (outbox.backlog("ops").records, outbox.backlog("ops").dead) == (1, 1)
    batch = outbox.next("ops", 1)
    assert batch is not None
    outbox.move_past("ops", batch)
    backlog = outbox.backlog("ops")
    assert (backlog.records, backlog.oldest, backlog.dead) == (1, "2026-03-01T12:00:00.000Z", 0)
    assert outbox.dead.shown() == []
    assert outbox.dead.drop("ops", None) == outbox.dead.drop("ops", [2]) == 0
    assert outbox.retry("ops", None) == 0
    assert sequences(drain(outbox)) == [2]
    assert outbox.has_acknowledged("ops", "e-1")
    assert outbox.backlog("ops").records == 0


def test_a_record_that_is_refused_again_is_dead_again(store: Store, outbox: Outbox) -> None:
    """A retried record that is refused is dead again, and is not tried by itself."""
    commit(store, 1)
    outbox.mark_dead("ops", 1, reason="first", attempts=1, now=NOW)
    outbox.retry("ops", None)
    outbox.mark_dead("ops", 1, reason="second", attempts=1, now=NOW, again=True)
    assert [dead.reason for dead in outbox.dead.shown()] == ["second"]
    assert outbox.next("ops", 1) is None


def test_a_store_that_cannot_be_read_forgets_no_retry(
    store: Store, outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A retry is carried out once the store can be read again, without a restart."""
    commit(store, 1)
    outbox.mark_dead("ops", 1, reason="no", attempts=1, now=NOW)
    outbox.retry("ops", None)

    def fail(*_: object) -> None:
        raise StoreError("the disk does not read")

    with monkeypatch.context() as patch:
        patch.setattr(store, "read", fail)
        with pytest.raises(StoreError):
            outbox.next("ops", 1)
    assert sequences(drain(outbox)) == [1]


def test_what_a_person_asked_for_outlives_the_process(tmp_path: Path) -> None:
    """A retry that was not carried out before the end is carried out after the next start."""
    with opened(tmp_path) as store:
        outbox = Outbox(store)
        outbox.register(recipients("ops"))
        commit(store, 1)
        outbox.mark_dead("ops", 1, reason="no", attempts=1, now=NOW)
        outbox.retry("ops", None)
    with opened(tmp_path) as store:
        outbox = Outbox(store)
        outbox.register(recipients("ops"))
        assert sequences(drain(outbox)) == [1]


def test_dropped_records_are_gone(store: Store, outbox: Outbox) -> None:
    """Dropping removes dead records of one sink, all or those named."""
    commit(store, 1, 2, 3)
    for sequence in (1, 2, 3):
        outbox.mark_dead("ops", sequence, reason="no", attempts=1, now=NOW)
    assert outbox.dead.drop("ops", [2]) == 1
    assert outbox.dead.drop("other", None) == 0
    assert [dead.sequence for dead in outbox.dead.shown()] == [1, 3]
    assert outbox.dead.drop("ops", None) == 2
    assert outbox.dead.count("ops") == 0


@pytest.mark.parametrize(
    "change",
    ["body = X'00'", "body = 'text'", "crc = 7", "body = replace(body, 'Freeze', 'Reboot')"],
)
def test_a_damaged_record_comes_alone(store: Store, outbox: Outbox, change: str) -> None:
    """A damaged record is a batch of its own with its problem, and the records around it are
    delivered.
    """
    committed = commit(store, 1, 2, 3)
    damage(store, 2, change)
    first = outbox.next("ops", 10)
    assert first == Batch(records=(committed[0],), cursor=1)
    outbox.move_past("ops", first)
    second = outbox.next("ops", 10)
    assert second is not None
    assert (committed[1].id, 2) == (second.records[0].id, second.records[0].sequence)
    assert second.damaged
    outbox.mark_dead("ops", 2, reason=second.damaged, attempts=0, now=NOW)
    assert sequences(drain(outbox)) == [3]
    assert [committed[1].id] == [dead.record_id for dead in outbox.dead.shown()]


def test_a_damaged_record_is_not_delivered_on_retry(store: Store, outbox: Outbox) -> None:
    """A retry of a damaged record gives the same problem again."""
    commit(store, 1)
    damage(store, 1, "body = X'00'")
    outbox.mark_dead("ops", 1, reason="damaged", attempts=0, now=NOW)
    outbox.retry("ops", None)
    batch = outbox.next("ops", 1)
    assert batch is not None
    assert (batch.again, batch.damaged is not None) == (True, True)


def test_a_column_that_is_no_text_stops_nothing(store: Store, outbox: Outbox) -> None:
    """Damaged bytes in a type are shown with a replacement character."""
    commit(store, 1)
    damage(store, 1, "type = CAST(X'ff' AS TEXT)")
    assert sequences(drain(outbox)) == [1]


def test_a_disk_that_takes_nothing_repeats_nothing(store: Store, outbox: Outbox) -> None:
    """Progress that cannot be written is kept in memory, and written later."""
    commit(store, 1, 2, 3)
    outbox.mark_dead("ops", 1, reason="no", attempts=1, now=NOW)
    outbox.retry("ops", None)
    store.read("PRAGMA query_only=ON")
    assert sequences(drain(outbox)) == [1, 2, 3]
    assert outbox.next("ops", 1) is None
    store.read("PRAGMA query_only=OFF")
    commit(store, 4)
    assert sequences(drain(outbox)) == [4]
    assert store.read("SELECT cursor FROM sinks") == [(4,)]


def test_a_refusal_after_a_full_disk_forgets_no_acknowledgement(
    store: Store, outbox: Outbox
) -> None:
    """What a sink acknowledged while the disk took nothing is written with the next refused record,
    which moves the cursor past it.
    """
    store.commit([draft(1, event_id="E-1"), draft(2, event_id="E-2")], events=[event_row("E-1")])
    store.read("PRAGMA query_only=ON")
    batch = outbox.next("ops", 1)
    assert batch is not None
    outbox.move_past("ops", batch)
    store.read("PRAGMA query_only=OFF")
    outbox.mark_dead("ops", 2, reason="no", attempts=1, now=NOW)
    after = Outbox(store)
    after.register(recipients("ops"))
    assert after.has_acknowledged("ops", "e-1")


def test_a_retried_record_that_a_full_disk_forgot_is_not_delivered_later(
    store: Store, outbox: Outbox
) -> None:
    """A retried beginning was delivered while the disk took nothing. That is written with the end,
    so that the next run does not deliver the beginning after it.
    """
    store.commit([draft(1, event_id="E-1")], events=[event_row("E-1")])
    outbox.mark_dead("ops", 1, reason="no", attempts=1, now=NOW)
    outbox.retry("ops", None)
    store.read("PRAGMA query_only=ON")
    assert sequences(drain(outbox)) == [1]
    store.read("PRAGMA query_only=OFF")
    store.commit([draft(2, event_id="E-1", record_type=EVENT_ENDED)])
    assert sequences(drain(outbox)) == [2]
    after = Outbox(store)
    after.register(recipients("ops"))
    assert after.dead.shown() == []
    assert after.next("ops", 9) is None


def test_what_was_in_flight_at_a_retry_follows_after_a_full_disk(
    store: Store, outbox: Outbox
) -> None:
    """While the disk takes nothing, a sink acknowledges an event's end, and then its beginning,
    which is tried again. Once the disk takes it, the end is delivered once more.
    """
    store.commit([draft(1, event_id="E-1")], events=[event_row("E-1")])
    outbox.mark_dead("ops", 1, reason="no", attempts=1, now=NOW)
    store.commit([draft(2, event_id="E-1", record_type=EVENT_ENDED)])
    in_flight = outbox.next("ops", 1)
    assert in_flight is not None
    outbox.retry("ops", None)
    store.read("PRAGMA query_only=ON")
    outbox.move_past("ops", in_flight)
    assert sequences(drain(outbox)) == [1]
    store.read("PRAGMA query_only=OFF")
    assert not outbox.has_acknowledged("ops", "e-1")
    assert sequences(drain(outbox)) == [2]
    assert outbox.has_acknowledged("ops", "e-1")


def test_what_is_written_with_a_refusal_is_written_once(store: Store, outbox: Outbox) -> None:
    """An event's end, acknowledged on a full disk, is written with a refusal while the beginning is
    tried again. After the beginning it does not count before it is delivered again.
    """
    store.commit([draft(1, event_id="E-1")], events=[event_row("E-1")])
    outbox.mark_dead("ops", 1, reason="no", attempts=1, now=NOW)
    store.commit([draft(2, event_id="E-1", record_type=EVENT_ENDED), draft(3, event_id="E-2")])
    in_flight = outbox.next("ops", 1)
    assert in_flight is not None
    outbox.retry("ops", None)
    store.read("PRAGMA query_only=ON")
    outbox.move_past("ops", in_flight)
    store.read("PRAGMA query_only=OFF")
    outbox.mark_dead("ops", 3, reason="no", attempts=1, now=NOW)
    batch = outbox.next("ops", 1)
    assert batch is not None
    assert sequences(batch.records) == [1]
    outbox.move_past("ops", batch)
    assert not outbox.has_acknowledged("ops", "e-1")
    assert sequences(drain(outbox)) == [2]
    assert outbox.has_acknowledged("ops", "e-1")


def test_what_one_sink_did_on_a_full_disk_is_written_with_another_ones(
    store: Store, outbox: Outbox
) -> None:
    """What a sink acknowledged while the disk took nothing comes to disk together with its cursor,
    also by what another sink does.
    """
    outbox.register(recipients("ops", "other"))
    store.commit([draft(1, event_id="E-1"), draft(2, event_id="E-1", record_type=EVENT_ENDED)])
    store.read("PRAGMA query_only=ON")
    drain(outbox)
    store.read("PRAGMA query_only=OFF")
    drain(outbox, "other", limit=1)
    assert store.read("SELECT sequence FROM acknowledged WHERE sink = 'ops'") == [(2,)]
    assert store.read("SELECT cursor FROM sinks WHERE name = 'ops'") == [(2,)]


def test_the_backlog_is_counted_by_what_is_wanted(store: Store, outbox: Outbox) -> None:
    """The backlog has the number of accepted records, the oldest one's time and the dead ones; also
    of a removed sink.
    """
    store.commit([bridge_draft(BRIDGE_STARTED), draft(2), draft(3)])
    accept(outbox, lambda kind, concerns: concerns is not None)
    backlog = outbox.backlog("ops")
    assert (backlog.records, backlog.dead) == (2, 0)
    assert backlog.oldest == "2026-03-01T12:00:00.000Z"
    accept(outbox, lambda kind, concerns: False)
    assert ((empty := outbox.backlog("ops")).records, empty.oldest) == (0, None)
    outbox.register(recipients())
    assert Outbox(store).backlog("ops").records == 3
    only = Recipient(kind="test", accepts=lambda kind, concerns: concerns is None)
    assert Outbox(store, {"ops": only}).backlog("ops").records == 1


def test_the_backlog_counts_the_ends_that_a_sink_still_gets(store: Store, outbox: Outbox) -> None:
    """The end of an event of another VM, which the sink got before it was to leave such events out,
    is in the backlog until it is delivered.
    """
    others = {"resources": ("web_4",)}
    store.commit([draft(1, event_id="known", **others)], events=[event_row("known")])
    drain(outbox)
    accept(outbox, lambda kind, concerns: concerns is not False)
    store.commit([draft(2, event_id="unknown", **others)], events=[event_row("unknown")])
    for number, event in enumerate(("known", "unknown"), 3):
        store.commit([draft(number, event_id=event, record_type=EVENT_ENDED, **others)])
    backlog = outbox.backlog("ops")
    assert (backlog.records, backlog.oldest) == (1, "2026-03-01T12:00:00.000Z")
    drain(outbox)
    assert (outbox.backlog("ops").records, outbox.backlog("ops").oldest) == (0, None)


@pytest.mark.parametrize("away", [False, True])
def test_a_sink_of_another_kind_gets_what_is_pending(
    store: Store, outbox: Outbox, *, away: bool
) -> None:
    """A sink whose kind changed gets the newest record of each pending event, and its backlog."""
    store.commit([draft(1, event_id="E-1"), draft(2, event_id="E-2")])
    store.commit([draft(3, event_id="E-1")], events=[event_row("E-1")])
    assert sequences(drain(outbox)) == [1, 2, 3]
    store.commit([draft(4, event_id="E-3")], events=[event_row("E-3")])
    if away:
        outbox.register(recipients("another"))
    outbox.register({"ops": Recipient(kind="file")})
    store.commit([draft(5, event_id="E-1")])
    assert sequences(drain(outbox)) == [3, 4, 5]
    outbox.register({"ops": Recipient(kind="file")})
    assert outbox.next("ops", 9) is None


def test_a_kind_that_comes_back_gets_the_ends_that_it_missed(store: Store, outbox: Outbox) -> None:
    """A kind that comes back gets the ends of its events from the time of another kind; the other
    kind gets no event that it did not know.
    """
    store.commit([draft(1, event_id="E-1")], events=[event_row("E-1")])
    assert sequences(drain(outbox)) == [1]
    outbox.register({"ops": Recipient(kind="file")})
    ended = draft(2, event_id="E-1", record_type=EVENT_ENDED)
    store.commit([ended], events=[event_row("E-1", pending=False)])
    assert sequences(drain(outbox)) == [1, 2]
    outbox.register(recipients("another"))
    outbox.register({"ops": Recipient(kind="test")})
    assert sequences(drain(outbox)) == [2]
    outbox.register({"ops": Recipient(kind="file")})
    assert outbox.next("ops", 9) is None


def test_a_sink_that_begins_to_prepare_gets_the_end_of_what_it_had_in_hand(
    store: Store, outbox: Outbox
) -> None:
    """A sink that had a record in hand when the bridge ended, behind one that it never gets, begins
    to prepare: it is owed the end of that event.
    """
    for number, event in enumerate(("E-1", "E-0", "E-2"), 1):
        store.commit([draft(number, event_id=event)], events=[event_row(event)])
    over = draft(4, event_id="E-0", record_type=EVENT_ENDED)
    store.commit([over], events=[event_row("E-0", pending=False)])
    outbox.register(recipients("ops", "new"))
    first = outbox.next("new", 1)
    assert first is not None
    outbox.move_past("new", first)
    in_hand = outbox.next("new", 1)
    assert in_hand is not None
    assert sequences(in_hand.records) == [3]
    outbox.register({"new": Recipient(kind="test", prepares=True)})
    assert outbox.events_known_before("new") == ["e-1", "e-2"]


def test_a_kind_gets_the_end_that_another_one_left_aside(store: Store, outbox: Outbox) -> None:
    """A kind gets the ends of its events although its name came back with another kind first."""
    store.commit([draft(1, event_id="E-1")], events=[event_row("E-1")])
    assert sequences(drain(outbox)) == [1]
    outbox.register(recipients("another"))
    ended = draft(2, event_id="E-1", record_type=EVENT_ENDED)
    store.commit([ended, draft(3, event_id="E-2")], events=[event_row("E-1", pending=False)])
    outbox.register({"ops": Recipient(kind="file")})
    outbox.register({"ops": Recipient(kind="test")})
    assert sequences(drain(outbox)) == [2]


def test_another_kind_gets_the_end_of_what_waits_for_its_name(store: Store, outbox: Outbox) -> None:
    """A new kind gets the end of an event that still waits for its name, which was removed when the
    event ended.
    """
    store.commit([draft(1, event_id="E-1")], events=[event_row("E-1")])
    outbox.register(recipients("another"))
    ended = draft(2, event_id="E-1", record_type=EVENT_ENDED)
    store.commit([ended, draft(3, event_id="E-2")], events=[event_row("E-1", pending=False)])
    outbox.register({"ops": Recipient(kind="file")})
    assert sequences(drain(outbox)) == [1, 2]


def test_a_large_backlog_is_read_quickly(store: Store, outbox: Outbox) -> None:
    """The backlog is read by an index, and without the records' bodies."""
    for query in (
        "SELECT sequence, type, affects FROM records INDEXED BY waiting WHERE sequence > 1 LIMIT 9",
        "SELECT type, count(*) FROM records INDEXED BY waiting WHERE sequence > 1 GROUP BY type",
    ):
        plan = " ".join(str(row[3]) for row in store.read(f"EXPLAIN QUERY PLAN {query}"))
        assert "USING COVERING INDEX waiting" in plan


@pytest.mark.parametrize("refused", [False, True])
def test_what_is_dropped_while_it_is_tried_again_stays_dropped(
    store: Store, outbox: Outbox, *, refused: bool
) -> None:
    """A dead record that is dropped during its retry stays dropped, whatever the result of the
    retry.
    """
    commit(store, 1, 2)
    outbox.mark_dead("ops", 1, reason="no", attempts=1, now=NOW)
    assert outbox.retry("ops", None) == 1
    again = outbox.next("ops", 9)
    assert again is not None
    assert outbox.dead.drop("ops", None) == 1
    if refused:
        outbox.mark_dead("ops", 1, reason="no", attempts=1, now=NOW, again=True)
    else:
        outbox.move_past("ops", again)
    assert outbox.dead.shown() == []
    assert sequences(drain(outbox)) == [2]
