"""The preparation of a VM for each state of an event, over deadlines and restarts."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.commands.preparing_bridge import LEAD, NOTICE, SILENCE, PreparingBridge
from support.documents.documents import (
    EVENT_ID,
    LATER,
    NOT_BEFORE,
    VM,
    ScriptedImds,
    body,
    entry,
)
from support.imds.poller_bench import state_and_poller
from support.store_helpers import bridge_draft

from bridge.approval.approvals import Approvals
from bridge.approval.rule_decisions import RuleDecisions
from bridge.approval.trusted_keys import Trust
from bridge.clock import STOOD_SECONDS
from bridge.config.approval import Rule
from bridge.imds.exchange import WithheldError
from bridge.store.approvals import ApprovalStore
from bridge.store.database import StoreError
from bridge.store.opening import FILE_NAME, open_store
from bridge.store.preparations import Preparation, PreparationRows
from wire.record import BRIDGE_STORE_RESET, PREPARATION, Record


@pytest.fixture
def preparing(tmp_path: Path) -> Iterator[PreparingBridge]:
    """A bridge that has seen an event."""
    made = PreparingBridge(tmp_path)
    assert made.poll(body(entry())) == ["none"]
    yield made
    made.store.close()


def stored(preparing: PreparingBridge) -> list[Preparation]:
    """Return the preparations in the store."""
    return PreparationRows(preparing.store).all()


def test_the_deadline_comes_while_imds_does_not_answer(preparing: PreparingBridge) -> None:
    """The sink is asked at the deadline while IMDS does not answer, until the event may have
    begun.
    """
    assert preparing.poll(SILENCE, after=NOTICE - LEAD - 1) == ["none"]
    assert preparing.poll(SILENCE, after=1) == ["preparing"]


def test_the_deadline_comes_while_a_document_hides_the_event(preparing: PreparingBridge) -> None:
    """The sink is asked at the deadline although an unreadable entry may hide the event."""
    hidden = body({"EventStatus": "Scheduled"}, incarnation=2)
    assert preparing.poll(hidden, after=NOTICE - LEAD) == ["preparing"]


def test_the_deadline_comes_in_a_run_that_imds_does_not_answer(preparing: PreparingBridge) -> None:
    """The sink is asked at the deadline of an event that the previous run has seen."""
    preparing.store.close()
    preparing.begin()
    assert preparing.poll(SILENCE, after=NOTICE - LEAD) == ["preparing"]


def test_what_may_have_begun_unseen_is_not_prepared(preparing: PreparingBridge) -> None:
    """After a suspension past the event's time, the sink is not asked before a document shows the
    event.
    """
    preparing.clock.suspend(NOTICE)
    assert preparing.poll(SILENCE) == ["none"]
    assert preparing.poll(body(entry())) == ["preparing"]


def test_a_deadline_is_known_before_it_comes(preparing: PreparingBridge) -> None:
    """The seconds to the deadline are known, and the sink is asked then without a poll."""
    assert preparing.preparations.seconds_to_deadline() == NOTICE - LEAD
    preparing.clock.advance(NOTICE - LEAD)
    assert preparing.preparations.seconds_to_deadline() == 0
    preparing.preparations.follow()
    assert preparing.states() == ["preparing"]
    assert preparing.preparations.seconds_to_deadline() is None


def test_what_may_have_begun_unseen_has_no_deadline(preparing: PreparingBridge) -> None:
    """An event that may have begun has no deadline, and waits for a poll."""
    preparing.clock.advance(NOTICE)
    assert preparing.preparations.seconds_to_deadline() is None


@pytest.mark.parametrize("restarts", [False, True])
def test_a_clock_that_is_set_back_delays_no_deadline(
    preparing: PreparingBridge, restarts: bool
) -> None:
    """A clock that is set back after the event appeared does not delay the deadline."""
    preparing.clock.jump(-3600.0)
    assert preparing.poll(body(entry()), after=300.0) == ["none"]
    if restarts:
        preparing.store.close()
        preparing.begin()
    assert preparing.preparations.seconds_to_deadline() == NOTICE - LEAD - 300
    assert preparing.poll(body(entry()), after=NOTICE - LEAD - 301) == ["none"]
    assert preparing.poll(body(entry()), after=1) == ["preparing"]


def test_a_clock_that_is_wrong_at_the_start_delays_no_deadline(preparing: PreparingBridge) -> None:
    """A clock that is behind at the start counts as at least the time of the last poll."""
    assert preparing.poll(body(entry()), after=300.0) == ["none"]
    preparing.store.close()
    preparing.clock.jump(-3600.0)
    preparing.begin()
    assert preparing.preparations.seconds_to_deadline() == NOTICE - LEAD - 300.0


def test_a_clock_that_is_set_forward_hastens_a_deadline(preparing: PreparingBridge) -> None:
    """A clock that is set forward makes the deadline come early, because the old time may have been
    the wrong one, but only once it has not been set again for a while.
    """
    preparing.clock.jump(NOTICE - LEAD)
    assert preparing.poll(body(entry())) == ["none"]
    assert preparing.poll(body(entry()), after=STOOD_SECONDS) == ["preparing"]


def test_a_clock_that_is_ahead_at_the_start_hastens_no_deadline(preparing: PreparingBridge) -> None:
    """If the bridge starts with a clock that is ahead and is set right a moment later, the deadline
    does not come early.
    """
    preparing.store.close()
    preparing.clock.jump(NOTICE - LEAD)
    preparing.begin()
    assert preparing.poll(body(entry()), after=3.0) == ["none"]
    preparing.clock.jump(LEAD - NOTICE)
    assert preparing.poll(body(entry()), after=STOOD_SECONDS) == ["none"]
    left = NOTICE - LEAD - 3.0 - STOOD_SECONDS
    assert preparing.preparations.seconds_to_deadline() == left


def test_an_event_that_appears_after_a_clock_was_set_back_has_the_new_time(
    preparing: PreparingBridge,
) -> None:
    """For an event that appears after the clock was set back, the new time counts."""
    preparing.clock.jump(-3600.0)
    assert preparing.poll(body(incarnation=2)) == ["none"]
    assert preparing.poll(body(entry(), incarnation=3)) == ["none"]
    assert preparing.preparations.seconds_to_deadline() == NOTICE + 3600.0 - LEAD


def test_what_was_not_done_is_taken_up_again_in_the_next_run(preparing: PreparingBridge) -> None:
    """A preparation that was not done is asked for again in the next run, for the same cause,
    although IMDS does not answer.
    """
    (known,) = preparing.current.events.values()
    preparing.preparations.ask(known, "command:1")
    preparing.store.close()
    preparing.begin()
    assert preparing.preparations.seconds_to_deadline() == 0
    assert preparing.poll(SILENCE) == ["preparing"]
    assert [each.cause for each in stored(preparing)] == ["command:1"]


def test_there_is_nothing_to_prepare_for_news(preparing: PreparingBridge) -> None:
    """News, such as an Advisory, is never due, so its preparation has no state."""
    preparing.poll(body(entry(status="Advisory"), incarnation=2))
    (known,) = preparing.current.events.values()
    assert preparing.preparations.state_of(known) is None


def test_what_was_not_done_for_another_state_is_not_taken_up_again(
    preparing: PreparingBridge,
) -> None:
    """A preparation for an earlier state of the event is not asked for again."""
    (known,) = preparing.current.events.values()
    preparing.preparations.ask(known, "command:1")
    preparing.store.close()
    preparing.begin()
    assert preparing.poll(body(entry(not_before=LATER), incarnation=2)) == ["none"]


@pytest.mark.parametrize("restarts", [False, True])
def test_an_end_that_could_not_be_committed_is_committed_whole(
    preparing: PreparingBridge, monkeypatch: pytest.MonkeyPatch, restarts: bool
) -> None:
    """If the disk is full when a preparation ends, the first state is prepared again at its
    deadline, because no half of that end is kept.
    """
    (known,) = preparing.current.events.values()
    preparing.preparations.ask(known, "command:1")
    save = PreparationRows.save
    saved = []

    def save_once(self: PreparationRows, *args: Any, **kwargs: Any) -> Any:
        if saved:
            raise StoreError("disk full")
        saved.append(args)
        return save(self, *args, **kwargs)

    monkeypatch.setattr(PreparationRows, "save", save_once)
    preparing.look(body(entry(not_before=LATER), incarnation=2))
    with contextlib.suppress(StoreError):
        preparing.preparations.follow()
    monkeypatch.undo()
    if restarts:
        preparing.store.close()
        preparing.begin()
    preparing.look(body(entry(), incarnation=3))
    preparing.preparations.follow()
    assert preparing.poll(body(entry(), incarnation=3), after=NOTICE - LEAD + 5) == ["preparing"]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_state_that_comes_back_is_still_prepared(
    preparing: PreparingBridge, restarts: bool
) -> None:
    """A state that comes back is still prepared if nothing has brought the VM back in between."""
    (known,) = preparing.current.events.values()
    preparing.preparations.ask(known, "command:1")
    (asked,) = [each for each in preparing.records() if each.type == PREPARATION]
    preparing.preparations.note_prepared(asked)
    assert preparing.poll(body(entry(not_before=LATER), incarnation=2)) == ["none"]
    if restarts:
        preparing.store.close()
        preparing.begin()
    assert preparing.poll(body(entry(), incarnation=3)) == ["prepared"]
    told = [each.data["state"] for each in preparing.records() if each.type == PREPARATION]
    assert told == ["preparing", "prepared"]


@pytest.mark.parametrize(
    ("in_between", "expected"),
    [
        ("prepared", "prepared"),
        ("gave up", "none"),
        ("gave up, and tried again", "none"),
        ("not ended", "none"),
        ("cut off", "none"),
        ("restart", "none"),
    ],
)
def test_a_state_that_comes_back_after_another_one_was_prepared_for(
    preparing: PreparingBridge, in_between: str, expected: str
) -> None:
    """A state that comes back is still prepared if the program ended with 0 for each state in
    between, and no run of it was cut off, or may have been because the bridge ended.
    """

    def ask() -> Record:
        (known,) = preparing.current.events.values()
        preparing.preparations.ask(known, "command:1")
        return [each for each in preparing.records() if each.type == PREPARATION][-1]

    preparing.preparations.note_prepared(ask())
    preparing.poll(body(entry(not_before=LATER), incarnation=2))
    asked = ask()
    if in_between == "restart":
        preparing.store.close()
        preparing.begin()
        asked = ask()
    if in_between == "cut off":
        preparing.preparations.note_cut_off(asked)
    if in_between.startswith("gave up"):
        preparing.preparations.note_gave_up(asked, "no")
    if in_between in ("prepared", "cut off", "restart", "gave up, and tried again"):
        preparing.preparations.note_prepared(asked)
    preparing.store.close()
    preparing.begin()
    assert preparing.poll(body(entry(), incarnation=3)) == [expected]
    last = [each.data for each in preparing.records() if each.type == PREPARATION][-1]
    (known,) = preparing.current.events.values()
    if expected == "prepared":  # for whoever reads records alone
        assert (last["state"], last["evh"]) == ("prepared", known.fingerprint)
    else:
        assert last["evh"] != known.fingerprint
    assert preparing.poll(
        body(entry(not_before="Mon, 02 Mar 2026 10:45:00 GMT"), incarnation=4)
    ) == ["none"]


def test_what_was_prepared_before_a_recovery_does_not_come_back(preparing: PreparingBridge) -> None:
    """No earlier state is prepared any more once the event did not name this VM, also if a state is
    asked for again before the program has recovered.
    """

    def ask() -> Record:
        (known,) = preparing.current.events.values()
        preparing.preparations.ask(known, "command:1")
        return [each for each in preparing.records() if each.type == PREPARATION][-1]

    preparing.preparations.note_prepared(ask())
    preparing.poll(body(entry(not_before=LATER), incarnation=2))
    preparing.preparations.note_prepared(ask())
    preparing.poll(body(entry(resources=("web_9",)), incarnation=3))
    ended = preparing.records()[-1]
    preparing.poll(body(entry(not_before=LATER), incarnation=4))
    asked = ask()
    preparing.preparations.note_recovered(ended)
    preparing.preparations.note_prepared(asked)
    assert preparing.poll(body(entry(), incarnation=5)) == ["none"]


def test_a_state_that_comes_back_after_the_event_left_this_vm_alone_is_not_prepared(
    preparing: PreparingBridge,
) -> None:
    """A state is not prepared any more if the event did not name this VM in between: the program
    brings the VM back.
    """
    (known,) = preparing.current.events.values()
    preparing.preparations.ask(known, "command:1")
    (asked,) = [each for each in preparing.records() if each.type == PREPARATION]
    preparing.preparations.note_prepared(asked)
    assert preparing.poll(body(entry(resources=("web_9",)), incarnation=2)) == [None]
    assert preparing.poll(body(entry(), incarnation=3)) == ["none"]


def test_an_event_that_left_this_vm_between_two_looks_is_not_prepared(
    preparing: PreparingBridge,
) -> None:
    """An event that named only another VM between two followed polls is not prepared any more."""
    (known,) = preparing.current.events.values()
    preparing.preparations.ask(known, "command:1")
    preparing.preparations.note_prepared(preparing.records()[-1])
    preparing.leave_and_return()
    preparing.preparations.follow()
    assert preparing.states() == ["none"]


def test_no_post_goes_out_for_an_event_that_went_on_without_this_vm_meanwhile(
    preparing: PreparingBridge,
) -> None:
    """No POST is sent for an accepted approval if the event has gone on without this VM, because
    the program brings the VM back.
    """
    posts: list[str] = []

    class Starting(ScriptedImds):
        def start(self, event_id: str, *, may_send: Callable[[], bool]) -> None:
            if not may_send():
                raise WithheldError
            posts.append(event_id)

    clock = preparing.clock
    approval_store = ApprovalStore(preparing.store, clock.now())
    rules = (Rule(name="any"),)
    decisions = RuleDecisions(
        rules, approval_store, clock, vm_name=lambda: VM.name, acknowledged=lambda *_: True
    )
    approvals = Approvals(
        preparing.current,
        approval_store,
        Starting(),  # type: ignore[arg-type]  # it answers as a client does
        clock,
        rules=decisions,
        trust=Trust(None),
        preparations=preparing.preparations,
    )
    preparing.current.preparation = preparing.preparations.state_of
    approvals.note_poll()
    while approvals.act_once():
        pass
    assert preparing.states() == ["preparing"]
    preparing.preparations.note_prepared(preparing.records()[-1])
    preparing.leave_and_return()
    for _ in range(2):
        approvals.act_once()
    assert posts == []
    assert preparing.states() == ["preparing"]
    preparing.preparations.note_prepared(preparing.records()[-1])
    approvals.act_once()
    assert posts == [EVENT_ID]


def test_what_changed_before_the_program_ran_is_not_run_for_the_earlier_state(
    preparing: PreparingBridge,
) -> None:
    """A change of the event before the program ran cancels that run, so that no unseen state counts
    as prepared.
    """
    (known,) = preparing.current.events.values()
    preparing.preparations.ask(known, "command:1")
    asked = preparing.records()[-1]
    preparing.look(body(entry(not_before=LATER), incarnation=2))
    assert preparing.preparations.event_of(asked) is None
    told = [each.data for each in preparing.records() if each.type == PREPARATION]
    assert [each["reason"] for each in told] == [None, "event_changed"]
    preparing.look(body(entry(), incarnation=3))
    assert preparing.states() == ["none"]


def test_what_another_kind_has_prepared_does_not_count(preparing: PreparingBridge) -> None:
    """A preparation by a sink of another kind does not count; that kind gets the end when it is
    back.
    """
    (known,) = preparing.current.events.values()
    preparing.preparations.ask(known, "command:1")
    preparing.preparations.note_prepared(preparing.records()[-1])
    assert preparing.states() == ["prepared"]
    preparing.change_kind("kubernetes")
    assert preparing.poll(body(entry())) == ["none"]
    preparing.poll(body(incarnation=2))
    ended = preparing.records()[-1]
    assert not preparing.preparations.wants(ended)
    preparing.change_kind("program")
    batch = preparing.outbox.next("drain", 10)
    assert batch is not None
    assert [each.id for each in batch.records if preparing.preparations.wants(each)] == [ended.id]
    preparing.preparations.note_recovered(ended)
    assert preparing.records()[-1].data["state"] == "recovered"
    assert stored(preparing) == []


def test_what_was_prepared_before_the_sink_got_all_records_is_prepared_again(
    preparing: PreparingBridge,
) -> None:
    """A sink that has prepared, then gets records in its plain role, and prepares again may have
    undone it: it is asked again.
    """
    (known,) = preparing.current.events.values()
    preparing.preparations.ask(known, "command:1")
    preparing.preparations.note_prepared(preparing.records()[-1])
    assert preparing.states() == ["prepared"]
    preparing.prepare_no_more()
    preparing.change_kind("program")
    assert preparing.poll(body(entry())) == ["none"]
    assert preparing.poll(body(entry()), after=NOTICE - LEAD) == ["preparing"]


def test_an_earlier_end_that_a_person_has_tried_again_undoes_no_later_preparation(
    preparing: PreparingBridge,
) -> None:
    """A retried end from before the event's return does not reach the program after a new
    preparation.
    """
    (known,) = preparing.current.events.values()
    preparing.preparations.ask(known, "command:1")
    preparing.preparations.note_prepared(preparing.records()[-1])
    preparing.poll(body(incarnation=2))
    (ended,) = [each for each in preparing.records() if each.type == "seb.event.ended.v1"]
    assert preparing.preparations.wants(ended)
    preparing.preparations.note_recovered(ended, "the node does not answer")
    preparing.poll(body(entry(not_before=NOT_BEFORE), incarnation=3))
    (back,) = preparing.current.events.values()
    preparing.preparations.ask(back, "command:2")
    asked = preparing.records()[-1]
    assert preparing.preparations.wants(ended)  # the program prepares after it
    preparing.preparations.note_prepared(asked)
    assert not preparing.preparations.wants(ended)
    assert preparing.states() == ["prepared"]


def test_what_another_kind_has_not_done_is_taken_up(preparing: PreparingBridge) -> None:
    """A preparation that a sink of another kind has not done is asked of the new one, for the same
    cause.
    """
    (known,) = preparing.current.events.values()
    preparing.preparations.ask(known, "command:1")
    preparing.change_kind("kubernetes")
    assert preparing.poll(body(entry())) == ["preparing"]
    told = [each.data for each in preparing.records() if each.type == PREPARATION]
    assert [(each["state"], each["cause"]) for each in told] == [("preparing", "command:1")] * 2
    preparing.preparations.note_prepared(preparing.records()[-1])
    preparing.change_kind("program")
    assert preparing.poll(body(entry())) == ["none"]
    preparing.poll(body(incarnation=2))
    assert preparing.preparations.wants(preparing.records()[-1])


def test_what_a_lost_store_may_have_prepared_gets_its_end(
    preparing: PreparingBridge, tmp_path: Path
) -> None:
    """After a loss of the store, the program gets the end of each event that the first document
    names this VM in, and of no later one.
    """
    preparing.lose(tmp_path)
    preparing.poll(body(entry(status="Started"), entry("E-9", resources=("web_9",))))
    preparing.poll(body(entry("E-2"), incarnation=2))
    preparing.poll(body(incarnation=3))
    told = [each for each in preparing.records() if preparing.preparations.wants(each)]
    assert [(each.type, each.event_id) for each in told] == [
        ("seb.event.started.v1", EVENT_ID),
        ("seb.event.ended.v1", EVENT_ID),
    ]
    for record in told:
        preparing.preparations.note_recovered(record)
    (recovered,) = [each for each in preparing.records() if each.type == PREPARATION]
    assert (recovered.data["evt"], recovered.data["state"]) == (EVENT_ID, "recovered")
    assert stored(preparing) == []


def test_a_loss_is_not_forgotten_by_a_run_without_a_sink_that_prepares(
    preparing: PreparingBridge, tmp_path: Path
) -> None:
    """A loss counts although the first run of the new store had no sink that prepares."""
    preparing.store.close()
    (tmp_path / FILE_NAME).unlink()
    preparing.store, _ = open_store(tmp_path, preparing.clock.now())
    preparing.current, poller = state_and_poller(preparing.store, preparing.imds, preparing.clock)
    assert poller.run()
    preparing.store.close()
    preparing.begin()
    assert [each.event_id for each in stored(preparing)] == [EVENT_ID]


def test_a_loss_ends_with_the_first_document(preparing: PreparingBridge, tmp_path: Path) -> None:
    """Only the events of the first document count as possibly prepared, also without a document
    number.
    """
    preparing.lose(tmp_path)
    preparing.poll(b'{"Events": []}')
    preparing.poll(body(entry()))
    assert stored(preparing) == []


def test_a_loss_is_not_forgotten_by_a_run_that_ends_at_once(
    preparing: PreparingBridge, tmp_path: Path
) -> None:
    """A loss counts although the run that reported it was killed before IMDS answered."""
    preparing.lose(tmp_path)
    preparing.store.commit([bridge_draft(BRIDGE_STORE_RESET)])
    preparing.store.close()
    preparing.begin()
    preparing.poll(body(entry(status="Started")))
    assert [each.event_id for each in stored(preparing)] == [EVENT_ID]


def test_what_the_first_document_of_a_new_bridge_shows_was_not_prepared(
    preparing: PreparingBridge,
) -> None:
    """Without an earlier store no event counts as prepared."""
    assert stored(preparing) == []


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (body(entry(not_before=LATER), incarnation=2), "event_changed"),
        (body(incarnation=2), "unknown_event"),
    ],
    ids=["changed", "over"],
)
def test_what_was_not_done_ends_in_the_records_too(
    preparing: PreparingBridge, document: bytes, reason: str
) -> None:
    """A preparation that is not continued after a restart has its end in the records."""
    (known,) = preparing.current.events.values()
    preparing.preparations.ask(known, "command:1")
    for _ in range(2):
        preparing.store.close()
        preparing.begin()
        preparing.poll(document)
    told = [each.data for each in preparing.records() if each.type == PREPARATION]
    assert [(each["state"], each["reason"]) for each in told] == [
        ("preparing", None),
        ("failed", reason),
    ]
