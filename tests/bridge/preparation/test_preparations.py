from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.documents.documents import (
    EVENT_ID,
    LATER,
    NOT_BEFORE,
    VM,
    FakeClock,
    ScriptedImds,
    body,
    entry,
)
from support.imds.polling import state_and_poller
from support.store_helpers import bridge_draft

from bridge.approval.approvals import Approvals
from bridge.approval.ledger import Ledger
from bridge.approval.rule_decisions import RuleDecisions
from bridge.approval.trusted_keys import Trust
from bridge.config.approval import Rule
from bridge.imds.client import ImdsError
from bridge.imds.exchange import WithheldError
from bridge.preparation.preparations import Preparations, PreparingSpec
from bridge.store.opening import FILE_NAME, open_store
from bridge.store.outbox import Outbox, Recipient
from wire.record import BRIDGE_STORE_RESET, PREPARATION, Record, read_record

LEAD = 120.0
NOTICE = 900.0
"""Seconds from the first poll until NOT_BEFORE."""
SILENCE = ImdsError("no: http_503", reason="http_503")


class Preparing:
    """A bridge with a sink that prepares, whose polls move by hand."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.clock = FakeClock()
        self.imds = ScriptedImds(body(entry(not_before=NOT_BEFORE)))
        self.begin()

    def begin(self, kind: str = "program") -> None:
        """A run with a sink of that kind."""
        self.store, _ = open_store(self._directory, self.clock.now())
        self.current, self._poller = state_and_poller(self.store, self.imds, self.clock)
        self.outbox = Outbox(self.store)
        self.outbox.register({"drain": Recipient(kind=kind, prepares=True)})
        spec = PreparingSpec(sink="drain", kind=kind, lead=LEAD)
        self.preparations = Preparations(spec, self.store, self.current, self.clock)
        self.preparations.adopt(self.outbox)

    def lose(self, directory: Path) -> None:
        """The store is gone, and a run begins."""
        self.store.close()
        (directory / FILE_NAME).unlink()
        self.begin()

    def change_kind(self, kind: str) -> None:
        """Another run, with a sink of another kind under the same name."""
        self.store.close()
        self.begin(kind)

    def records(self) -> list[Record]:
        """All records of the store."""
        rows = self.store.read("SELECT body FROM records ORDER BY sequence")
        return [read_record(row[0]) for row in rows]

    def poll(self, said: bytes | Exception, *, after: float = 0.0) -> list[str | None]:
        """How far each event is prepared after a poll so many seconds later that is answered so."""
        self.clock.advance(after)
        self.look(said)
        self.preparations.follow()
        return self.states()

    def look(self, said: bytes | Exception) -> None:
        """A poll that is answered so, and that is not followed yet."""
        self.imds.said = said
        self._poller.run()

    def leave_and_return(self) -> None:
        """Two such polls: the event names another VM, and then this one again."""
        self.look(body(entry(resources=("web_9",)), incarnation=2))
        self.look(body(entry(), incarnation=3))

    def states(self) -> list[str | None]:
        """How far each event is prepared."""
        return [self.preparations.state_of(each) for each in self.current.events.values()]


@pytest.fixture
def preparing(tmp_path: Path) -> Iterator[Preparing]:
    """A bridge that has seen an event."""
    made = Preparing(tmp_path)
    assert made.poll(body(entry())) == ["none"]
    yield made
    made.store.close()


def test_the_deadline_comes_while_imds_does_not_answer(preparing: Preparing) -> None:
    """What was seen last counts until the event may have begun: Azure does not wait for IMDS."""
    assert preparing.poll(SILENCE, after=NOTICE - LEAD - 1) == ["none"]
    assert preparing.poll(SILENCE, after=1) == ["preparing"]


def test_the_deadline_comes_while_a_document_hides_the_event(preparing: Preparing) -> None:
    """An entry that cannot be read may be the event, which is not over then."""
    hidden = body({"EventStatus": "Scheduled"}, incarnation=2)
    assert preparing.poll(hidden, after=NOTICE - LEAD) == ["preparing"]


def test_the_deadline_comes_in_a_run_that_imds_does_not_answer(preparing: Preparing) -> None:
    """What the run before has seen counts as much."""
    preparing.store.close()
    preparing.begin()
    assert preparing.poll(SILENCE, after=NOTICE - LEAD) == ["preparing"]


def test_what_may_have_begun_unseen_is_not_prepared(preparing: Preparing) -> None:
    """A machine that slept past the event's time waits for the document that shows it."""
    preparing.clock.suspend(NOTICE)
    assert preparing.poll(SILENCE) == ["none"]
    assert preparing.poll(body(entry())) == ["preparing"]


def test_a_deadline_is_known_before_it_comes(preparing: Preparing) -> None:
    """Whatever polls do, the VM is prepared at that moment; then no deadline is left."""
    assert preparing.preparations.seconds_to_deadline() == NOTICE - LEAD
    preparing.clock.advance(NOTICE - LEAD)
    assert preparing.preparations.seconds_to_deadline() == 0
    preparing.preparations.follow()
    assert preparing.states() == ["preparing"]
    assert preparing.preparations.seconds_to_deadline() is None


def test_what_may_have_begun_unseen_has_no_deadline(preparing: Preparing) -> None:
    """It waits for a poll."""
    preparing.clock.advance(NOTICE)
    assert preparing.preparations.seconds_to_deadline() is None


@pytest.mark.parametrize("restarts", [False, True])
def test_a_clock_that_is_set_back_delays_no_deadline(preparing: Preparing, restarts: bool) -> None:
    """Azure's clock is another one: what has passed since the event appeared has passed there."""
    preparing.clock.jump(-3600.0)
    assert preparing.poll(body(entry()), after=300.0) == ["none"]
    if restarts:
        preparing.store.close()
        preparing.begin()
    assert preparing.preparations.seconds_to_deadline() == NOTICE - LEAD - 300
    assert preparing.poll(body(entry()), after=NOTICE - LEAD - 301) == ["none"]
    assert preparing.poll(body(entry()), after=1) == ["preparing"]


def test_a_clock_that_is_wrong_at_the_start_delays_no_deadline(preparing: Preparing) -> None:
    """At the last poll of the run before, it was this late already."""
    assert preparing.poll(body(entry()), after=300.0) == ["none"]
    preparing.store.close()
    preparing.clock.jump(-3600.0)
    preparing.begin()
    assert preparing.preparations.seconds_to_deadline() == NOTICE - LEAD - 300.0


def test_a_clock_that_is_set_forward_hastens_a_deadline(preparing: Preparing) -> None:
    """Rather too early than never: the old time may have been the wrong one."""
    preparing.clock.jump(NOTICE - LEAD)
    assert preparing.poll(body(entry())) == ["preparing"]


def test_an_event_that_appears_after_a_clock_was_set_back_has_the_new_time(
    preparing: Preparing,
) -> None:
    """A clock that was wrong at the boot hastens only what appeared meanwhile."""
    preparing.clock.jump(-3600.0)
    assert preparing.poll(body(incarnation=2)) == ["none"]
    assert preparing.poll(body(entry(), incarnation=3)) == ["none"]
    assert preparing.preparations.seconds_to_deadline() == NOTICE + 3600.0 - LEAD


def test_what_was_not_done_is_taken_up_again_in_the_next_run(preparing: Preparing) -> None:
    """Long before the deadline, although IMDS does not answer, and for the same cause."""
    (known,) = preparing.current.events.values()
    preparing.preparations.ask(known, "command:1")
    preparing.store.close()
    preparing.begin()
    assert preparing.preparations.seconds_to_deadline() == 0
    assert preparing.poll(SILENCE) == ["preparing"]
    assert [each.cause for each in preparing.preparations.all()] == ["command:1"]


def test_what_was_not_done_for_another_state_is_not_taken_up_again(preparing: Preparing) -> None:
    """The event has changed since, and no wish is about what it is now."""
    (known,) = preparing.current.events.values()
    preparing.preparations.ask(known, "command:1")
    preparing.store.close()
    preparing.begin()
    assert preparing.poll(body(entry(not_before=LATER), incarnation=2)) == ["none"]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_state_that_comes_back_is_still_prepared(preparing: Preparing, restarts: bool) -> None:
    """The program has done it once, and nothing has brought the VM back since."""
    (known,) = preparing.current.events.values()
    preparing.preparations.ask(known, "command:1")
    (asked,) = [each for each in preparing.records() if each.type == PREPARATION]
    preparing.preparations.prepared(asked)
    assert preparing.poll(body(entry(not_before=LATER), incarnation=2)) == ["none"]
    if restarts:
        preparing.store.close()
        preparing.begin()
    assert preparing.poll(body(entry(), incarnation=3)) == ["prepared"]
    told = [each.data["state"] for each in preparing.records() if each.type == PREPARATION]
    assert told == ["preparing", "prepared"]


def test_a_state_that_comes_back_after_the_event_left_this_vm_alone_is_not_prepared(
    preparing: Preparing,
) -> None:
    """The program is told to bring the VM back meanwhile."""
    (known,) = preparing.current.events.values()
    preparing.preparations.ask(known, "command:1")
    (asked,) = [each for each in preparing.records() if each.type == PREPARATION]
    preparing.preparations.prepared(asked)
    assert preparing.poll(body(entry(resources=("web_9",)), incarnation=2)) == [None]
    assert preparing.poll(body(entry(), incarnation=3)) == ["none"]


def test_an_event_that_left_this_vm_between_two_looks_is_not_prepared(
    preparing: Preparing,
) -> None:
    """Nobody looked while it named another VM only, and the program will be told of that."""
    (known,) = preparing.current.events.values()
    preparing.preparations.ask(known, "command:1")
    preparing.preparations.prepared(preparing.records()[-1])
    preparing.leave_and_return()
    preparing.preparations.follow()
    assert preparing.states() == ["none"]


def test_no_post_goes_out_for_an_event_that_left_this_vm_since_the_last_look(
    preparing: Preparing,
) -> None:
    """The approval was accepted and the VM prepared; the program brings the VM back now."""
    posts: list[str] = []

    class Starting(ScriptedImds):
        def start(self, event_id: str, *, may_send: Callable[[], bool]) -> None:
            if not may_send():
                raise WithheldError
            posts.append(event_id)

    clock = preparing.clock
    ledger = Ledger(preparing.store, clock.now())
    rules = (Rule(name="any"),)
    decisions = RuleDecisions(rules, ledger, clock, vm_name=VM.name, acknowledged=lambda *_: True)
    approvals = Approvals(
        preparing.current,
        ledger,
        Starting(),  # type: ignore[arg-type]  # it answers as a client does
        clock,
        rules=decisions,
        trust=Trust(None),
        preparations=preparing.preparations,
    )
    preparing.current.preparation = preparing.preparations.state_of
    approvals.polled()
    while approvals.step():
        pass
    assert preparing.states() == ["preparing"]
    preparing.preparations.prepared(preparing.records()[-1])
    preparing.leave_and_return()
    for _ in range(2):
        approvals.step()
    assert posts == []
    assert preparing.states() == ["preparing"]
    preparing.preparations.prepared(preparing.records()[-1])
    approvals.step()
    assert posts == [EVENT_ID]


def test_what_changed_before_the_program_ran_is_not_run_for_the_earlier_state(
    preparing: Preparing,
) -> None:
    """Else it would count as prepared for a state that the program has not seen."""
    (known,) = preparing.current.events.values()
    preparing.preparations.ask(known, "command:1")
    asked = preparing.records()[-1]
    preparing.look(body(entry(not_before=LATER), incarnation=2))
    assert preparing.preparations.event_of(asked) is None
    told = [each.data for each in preparing.records() if each.type == PREPARATION]
    assert [each["reason"] for each in told] == [None, "event_changed"]
    preparing.look(body(entry(), incarnation=3))
    assert preparing.states() == ["none"]


def test_what_another_kind_has_prepared_does_not_count(preparing: Preparing) -> None:
    """The sink that prepares now was asked nothing, and hears nothing of the end; the one that was
    asked gets the end when it is back.
    """
    (known,) = preparing.current.events.values()
    preparing.preparations.ask(known, "command:1")
    preparing.preparations.prepared(preparing.records()[-1])
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
    preparing.preparations.recovered(ended)
    assert preparing.records()[-1].data["state"] == "recovered"
    assert preparing.preparations.all() == []


def test_an_earlier_end_that_a_person_has_tried_again_undoes_no_later_preparation(
    preparing: Preparing,
) -> None:
    """The program refused the end of the event; the event is back and the VM prepared again: the
    old end is not for it any more.
    """
    (known,) = preparing.current.events.values()
    preparing.preparations.ask(known, "command:1")
    preparing.preparations.prepared(preparing.records()[-1])
    preparing.poll(body(incarnation=2))
    (ended,) = [each for each in preparing.records() if each.type == "seb.event.ended.v1"]
    assert preparing.preparations.wants(ended)
    preparing.preparations.recovered(ended, "the node does not answer")
    preparing.poll(body(entry(not_before=NOT_BEFORE), incarnation=3))
    (back,) = preparing.current.events.values()
    preparing.preparations.ask(back, "command:2")
    asked = preparing.records()[-1]
    assert preparing.preparations.wants(ended)  # the program prepares after it
    preparing.preparations.prepared(asked)
    assert not preparing.preparations.wants(ended)
    assert preparing.states() == ["prepared"]


def test_what_another_kind_has_not_done_is_taken_up(preparing: Preparing) -> None:
    """For the same cause, in the run in which the kind has changed."""
    (known,) = preparing.current.events.values()
    preparing.preparations.ask(known, "command:1")
    preparing.change_kind("kubernetes")
    assert preparing.poll(body(entry())) == ["preparing"]
    told = [each.data for each in preparing.records() if each.type == PREPARATION]
    assert [(each["state"], each["cause"]) for each in told] == [("preparing", "command:1")] * 2
    preparing.preparations.prepared(preparing.records()[-1])
    preparing.change_kind("program")
    assert preparing.poll(body(entry())) == ["none"]
    preparing.poll(body(incarnation=2))
    assert preparing.preparations.wants(preparing.records()[-1])


def test_what_a_lost_store_may_have_prepared_gets_its_end(
    preparing: Preparing, tmp_path: Path
) -> None:
    """The first document of the new store names the VM: whoever counts its turn hears the end too.
    What comes later was not prepared.
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
        preparing.preparations.recovered(record)
    (recovered,) = [each for each in preparing.records() if each.type == PREPARATION]
    assert (recovered.data["evt"], recovered.data["state"]) == (EVENT_ID, "recovered")
    assert preparing.preparations.all() == []


def test_a_loss_is_not_forgotten_by_a_run_without_a_sink_that_prepares(
    preparing: Preparing, tmp_path: Path
) -> None:
    """The sink was out of the settings in the first run of the new store."""
    preparing.store.close()
    (tmp_path / FILE_NAME).unlink()
    preparing.store, _ = open_store(tmp_path, preparing.clock.now())
    preparing.current, poller = state_and_poller(preparing.store, preparing.imds, preparing.clock)
    assert poller.run()
    preparing.store.close()
    preparing.begin()
    assert [each.event_id for each in preparing.preparations.all()] == [EVENT_ID]


def test_a_loss_ends_with_the_first_document(preparing: Preparing, tmp_path: Path) -> None:
    """Also where IMDS numbers no documents: what comes later was not prepared."""
    preparing.lose(tmp_path)
    preparing.poll(b'{"Events": []}')
    preparing.poll(body(entry()))
    assert preparing.preparations.all() == []


def test_a_loss_is_not_forgotten_by_a_run_that_ends_at_once(
    preparing: Preparing, tmp_path: Path
) -> None:
    """The run that found the store gone reported it, and was killed before IMDS answered it."""
    preparing.lose(tmp_path)
    preparing.store.commit([bridge_draft(BRIDGE_STORE_RESET)])
    preparing.store.close()
    preparing.begin()
    preparing.poll(body(entry(status="Started")))
    assert [each.event_id for each in preparing.preparations.all()] == [EVENT_ID]


def test_what_the_first_document_of_a_new_bridge_shows_was_not_prepared(
    preparing: Preparing,
) -> None:
    """There was no store before."""
    assert preparing.preparations.all() == []


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (body(entry(not_before=LATER), incarnation=2), "event_changed"),
        (body(incarnation=2), "unknown_event"),
    ],
    ids=["changed", "over"],
)
def test_what_was_not_done_ends_in_the_records_too(
    preparing: Preparing, document: bytes, reason: str
) -> None:
    """Whoever follows the records learns once that it does not go on, as if the bridge had run."""
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
