from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.commands.approving import ApprovalBench, fails
from support.documents.documents import EVENT_ID, OTHER_ID, entry
from support.store_helpers import NOW, bridge_draft, draft, event_row

from bridge.config.approval import Rule
from bridge.store.database import Store
from bridge.store.outbox import Outbox, Recipient
from wire.record import BRIDGE_STARTED

MINE = Rule(name="mine", max_resources=2)
AFTER = Rule(name="after", after=("drain",))
APPROVED = [("accepted", None), ("posted", None)]


@pytest.fixture
def benches(tmp_path: Path) -> Iterator[Any]:
    """Makes benches, one directory each; all are closed."""
    made: list[ApprovalBench] = []

    def make(*rules: Rule) -> ApprovalBench:
        made.append(ApprovalBench(tmp_path / str(len(made)), *rules))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_a_rule_approves_with_its_name_in_the_receipt(benches: Any) -> None:
    """What matches is approved on the poll that sees it, and the receipts name the rule."""
    bench = benches(MINE)
    bench.announce(resources=["web_3", "web_4"])
    assert bench.imds.posts == [EVENT_ID]
    assert bench.story() == APPROVED
    first = bench.receipts()[0]
    assert (first["actor"], first["issuer"], first["evt"]) == ("rule:mine", None, EVENT_ID)
    assert first["resources"] == ["web_3", "web_4"]
    bench.poll()
    assert [*APPROVED, ("confirmed", None)] == bench.story()
    assert len({each["jti"] for each in bench.receipts()}) == 1


def test_a_rule_decides_once_about_one_state(benches: Any) -> None:
    """However often IMDS is looked at, and over restarts, there is one approval."""
    bench = benches(MINE)
    bench.imds.starts = False
    bench.announce()
    for _ in range(3):
        bench.poll()
        bench.restart()
    assert bench.imds.posts == [EVENT_ID]
    assert bench.story() == APPROVED


def test_too_many_vms_are_refused_with_one_receipt(benches: Any) -> None:
    """A refusal by max_resources is told once for each state of the event, over restarts too."""
    bench = benches(MINE)
    bench.announce(resources=["web_3", "web_4", "web_5"])
    bench.poll()
    bench.restart()
    bench.poll()
    assert bench.story() == [("rejected", "not_allowed")]
    assert bench.receipts()[0]["resources"] == ["web_3", "web_4", "web_5"]
    bench.change(Resources=["web_3", "web_4"])
    bench.poll()
    assert [("rejected", "not_allowed"), *APPROVED] == bench.story()


def test_a_rule_that_allows_more_approves_what_it_refused(benches: Any) -> None:
    """The owner raises max_resources and starts the bridge again: the pending event is approved."""
    bench = benches(Rule(name="mine"))
    bench.announce(resources=["web_3", "web_4"])
    bench.rules = [MINE]
    bench.restart()
    bench.poll()
    assert [("rejected", "not_allowed"), *APPROVED] == bench.story()


def test_a_rule_that_is_back_decides_again(benches: Any) -> None:
    """It was out of the settings for a run in which the event waited: what it had accepted failed,
    and the first rule that matches decides.
    """
    bench = benches(MINE)
    bench.imds.failures = [fails("refused")] * 2
    bench.announce()
    bench.poll()
    bench.rules = []
    bench.restart()
    bench.poll()
    assert bench.story() == [("accepted", None), ("failed", "not_allowed")]
    bench.rules = [MINE]
    for _ in range(2):
        bench.restart()
        bench.poll()
    assert bench.story()[2:] == [*APPROVED, ("confirmed", None)]


def test_an_acknowledgement_turns_waiting_into_approval(benches: Any) -> None:
    """The rule is asked at each look, so that an acknowledgement that comes later counts."""
    bench = benches(AFTER)
    record = bench.announce()
    bench.poll()
    assert bench.story() == []
    bench.acknowledged.add(record["id"])
    bench.poll()
    assert bench.story() == APPROVED


def test_time_alone_lets_the_next_vm_act(benches: Any) -> None:
    """While nothing changes at IMDS, the takeover comes with the clock."""
    bench = benches(Rule(name="lead", max_resources=2, leader="first", takeover=60))
    bench.announce(resources=["web_4", "WEB_3"])
    bench.poll(after=59)
    assert bench.story() == []
    bench.poll(after=1)
    assert bench.story() == APPROVED


@pytest.mark.parametrize("wrong", [-30 * 365 * 24 * 3600, -3600, 0, 3600])
def test_a_clock_that_was_wrong_at_boot_brings_no_turn_closer(benches: Any, wrong: int) -> None:
    """After a boot, the time of the leader is what this run has measured, whatever the wall clock
    said before or says now.
    """
    bench = benches(Rule(name="lead", max_resources=2, leader="first", takeover=60))
    bench.clock.jump(wrong)
    bench.announce(resources=["web_4", "web_3"])
    bench.poll(after=50)
    bench.clock.jump(-wrong)
    bench.clock.boot()
    bench.restart()
    bench.poll()
    bench.poll(after=59)
    assert bench.story() == []
    bench.poll(after=1)
    assert bench.story() == APPROVED


@pytest.mark.parametrize("wrong", [-3600, 0, 3600])
def test_a_restart_of_the_bridge_does_not_prolong_a_takeover(benches: Any, wrong: int) -> None:
    """The machine's uptime says how long the event has been seen, also if the clock was set."""
    bench = benches(Rule(name="lead", max_resources=2, leader="first", takeover=60))
    bench.announce(resources=["web_4", "web_3"])
    for _ in range(4):
        bench.clock.advance(13)
        bench.clock.jump(wrong)
        bench.restart()
        bench.poll()
    bench.poll(after=3)
    assert bench.story() == []
    bench.poll(after=1)
    assert bench.story() == APPROVED


def test_the_leader_is_the_first_of_the_newest_document(benches: Any) -> None:
    """An order alone is no change, and yet it says who leads: no record, and the other VM acts."""
    bench = benches(Rule(name="lead", max_resources=2, leader="first"))
    record = bench.announce(resources=["web_4", "web_3"])
    assert bench.imds.posts == []
    bench.change(Resources=["web_3", "web_4"])
    bench.poll()
    assert bench.imds.posts == [EVENT_ID]
    assert bench.record() == record


def test_a_leader_that_no_longer_leads_does_not_act(benches: Any) -> None:
    """A try that is repeated asks the newest document again who leads."""
    bench = benches(Rule(name="lead", max_resources=2, leader="first"))
    bench.imds.failures = [fails("refused")]
    bench.announce(resources=["web_3", "web_4"])
    bench.change(Resources=["web_4", "web_3"])
    bench.poll(after=9)
    assert bench.imds.posts == [EVENT_ID]


def test_no_rule_approves_an_event_that_is_named_twice(benches: Any) -> None:
    """One EventId with two lists of VMs: the rule refuses, once, and approves once it is clear."""
    bench = benches(MINE)
    twin = entry(EVENT_ID.lower(), resources=["web_3", "web_4", "web_5"])
    bench.imds.events_now = {EVENT_ID: entry(), "twin": twin}
    bench.poll()
    bench.poll()
    assert bench.imds.posts == []
    assert bench.story() == [("rejected", "not_approvable")]
    del bench.imds.events_now["twin"]
    bench.poll()
    assert bench.imds.posts == [EVENT_ID]


def test_an_event_that_is_named_twice_alike_is_one(benches: Any) -> None:
    """The same entry again, its EventId in another case, leaves nothing unclear."""
    bench = benches(MINE)
    bench.imds.events_now = {EVENT_ID: entry(), "twin": entry(EVENT_ID.lower())}
    bench.poll()
    assert bench.imds.posts == [EVENT_ID]


def test_rules_wait_for_a_good_poll(benches: Any) -> None:
    """What a sink acknowledges while IMDS does not answer approves nothing until it answers."""
    bench = benches(AFTER)
    record = bench.announce()
    bench.fail()
    bench.acknowledged.add(record["id"])
    bench.fail()
    assert bench.story() == []
    bench.poll()
    assert bench.story() == APPROVED


@pytest.mark.parametrize("hours", [1, -1, 30 * 365 * 24])
def test_a_clock_that_is_set_brings_no_turn_closer(benches: Any, hours: int) -> None:
    """Somebody sets the wall clock, or the first time sync comes: the leader keeps its time."""
    bench = benches(Rule(name="lead", max_resources=2, leader="first", takeover=60))
    bench.announce(resources=["web_4", "web_3"])
    bench.poll(after=50)
    bench.clock.jump(hours * 3600)
    bench.poll(after=9)
    assert bench.story() == []
    bench.poll(after=1)
    assert bench.story() == APPROVED


def test_a_return_gives_the_leader_its_time_again(benches: Any) -> None:
    """What was waited for an event in a former life does not count in its next one."""
    bench = benches(Rule(name="lead", max_resources=2, leader="first", takeover=60))
    bench.announce(resources=["web_4", "web_3"])
    bench.poll(after=50)
    bench.vanish()
    bench.poll(after=100)
    bench.announce(resources=["web_4", "web_3"])
    bench.poll(after=59)
    assert bench.story() == []
    bench.poll(after=1)
    assert bench.story() == APPROVED


def test_a_rule_that_failed_is_asked_again_about_the_next_state(benches: Any) -> None:
    """What IMDS refused is not tried again, until the event is another one."""
    bench = benches(MINE)
    bench.imds.failures = [fails("http_400")]
    bench.announce()
    bench.poll()
    assert bench.story() == [("accepted", None), ("failed", "imds_refused")]
    bench.change(Description="moved")
    bench.poll()
    assert bench.story()[2:] == APPROVED


def test_each_event_is_decided_about_by_itself(benches: Any) -> None:
    """One event that waits holds up no other one."""
    bench = benches(AFTER)
    bench.announce()
    record = bench.announce(OTHER_ID)
    bench.acknowledged.add(record["id"])
    bench.poll()
    assert bench.imds.posts == [OTHER_ID]


def refuses(record_type: str, affects_this_vm: bool | None) -> bool:
    """A sink that takes nothing."""
    return False


DRAIN = {"drain": Recipient(kind="program"), "ops": Recipient(kind="webhook")}


class TestOutbox:
    """What `after` asks the real outbox: whether a sink acknowledged the event's newest record."""

    @pytest.fixture
    def outbox(self, store: Store) -> Outbox:
        """Two sinks, and one record of one event."""
        made = Outbox(store)
        made.register(DRAIN)
        (self.record,) = store.commit([draft(1, event_id="E-1")], events=[event_row("E-1")])
        return made

    def deliver(self, outbox: Outbox) -> None:
        while batch := outbox.next("drain", 10):
            outbox.delivered("drain", batch)

    def test_what_waits_is_not_acknowledged(self, outbox: Outbox) -> None:
        """A record is acknowledged once it is delivered, and by no other sink's delivery."""
        assert not outbox.acknowledged("drain", "e-1")
        self.deliver(outbox)
        assert outbox.acknowledged("drain", "e-1")
        assert not outbox.acknowledged("ops", "e-1")

    def test_only_the_newest_record_counts(self, store: Store, outbox: Outbox) -> None:
        """What was acknowledged of an event before is nothing once there is more of it, also where
        an older record that was dead is delivered last.
        """
        outbox.mark_dead("drain", self.record.sequence, reason="no", attempts=5, now=NOW)
        store.commit([draft(2, event_id="E-1")])
        self.deliver(outbox)
        assert outbox.acknowledged("drain", "e-1")
        assert outbox.dead.retry("drain", None) == 1
        self.deliver(outbox)
        assert outbox.acknowledged("drain", "e-1")
        store.commit([draft(3, event_id="E-1")])
        assert not outbox.acknowledged("drain", "e-1")

    def test_what_is_dead_is_not_acknowledged(self, outbox: Outbox) -> None:
        """A failed preparation never approves, until somebody has it tried again and it works."""
        outbox.mark_dead("drain", self.record.sequence, reason="no", attempts=5, now=NOW)
        assert not outbox.acknowledged("drain", "e-1")
        assert outbox.dead.retry("drain", None) == 1
        assert not outbox.acknowledged("drain", "e-1")
        self.deliver(outbox)
        assert outbox.acknowledged("drain", "e-1")

    @pytest.mark.parametrize("how", ["a filter", "a drop", "another kind", "another event or sink"])
    def test_what_is_no_acknowledgement(self, outbox: Outbox, how: str) -> None:
        """A sink that did not take such records has prepared nothing, nor has it when its filter
        takes them later, when a person forgets them, or when it replaces one of another kind.
        """
        if how == "a drop":
            outbox.mark_dead("drain", self.record.sequence, reason="exit 65", attempts=1, now=NOW)
            assert outbox.dead.drop("drain", None) == 1
        if how == "a filter":
            outbox.register({"drain": Recipient(kind="program", accepts=refuses)})
        self.deliver(outbox)
        if how == "another kind":
            outbox.register(DRAIN | {"drain": Recipient(kind="webhook")})
        if how == "another event or sink":
            assert not outbox.acknowledged("drain", "e-2")
            assert not outbox.acknowledged("nobody", "e-1")
            return
        assert not outbox.acknowledged("drain", "e-1")
        if how == "a filter":
            outbox.register(DRAIN)
            assert not outbox.acknowledged("drain", "e-1")

    def test_an_acknowledgement_outlives_a_restart(self, store: Store, outbox: Outbox) -> None:
        """What was delivered before is acknowledged in the next run."""
        self.deliver(outbox)
        again = Outbox(store)
        again.register(DRAIN)
        assert again.acknowledged("drain", "e-1")

    def test_an_acknowledgement_outlives_a_full_disk(self, store: Store, outbox: Outbox) -> None:
        """What could not be written when the sink said it counts once it can be."""
        store.read("PRAGMA query_only=ON")
        self.deliver(outbox)
        assert not outbox.acknowledged("drain", "e-1")
        store.read("PRAGMA query_only=OFF")
        assert outbox.acknowledged("drain", "e-1")

    def test_there_is_one_for_an_event_and_a_sink(self, store: Store, outbox: Outbox) -> None:
        """The newest, however many records of the event were delivered."""
        store.commit([draft(2, event_id="E-1"), bridge_draft(BRIDGE_STARTED)])
        self.deliver(outbox)
        assert store.read("SELECT event, sink, sequence FROM acknowledged") == [("e-1", "drain", 2)]


def test_nothing_is_remembered_of_events_that_are_over(benches: Any) -> None:
    """However many there were: the ledger knows what was decided about them."""
    bench = benches(MINE)
    bench.announce(resources=["web_3", "web_4"])
    assert list(bench.approvals._rules._pending) == [EVENT_ID.casefold()]
    bench.vanish()
    bench.poll()
    assert bench.approvals._rules._pending == {}


def test_what_is_remembered_of_an_event_does_not_grow_with_its_changes(benches: Any) -> None:
    """The newest state is decided about once, and no earlier one comes back."""
    bench = benches(MINE.model_copy(update={"max_resources": 1}))
    bench.announce(resources=["web_3", "web_4"])
    bench.poll()
    kept = bench.approvals._rules._pending[EVENT_ID.casefold()]
    for seconds in (10, 20, 30):
        bench.change(DurationInSeconds=seconds)
        bench.poll()
        bench.poll()
        assert kept.decided is not None
        assert kept.decided.count("rule\n") == 1
    assert bench.story() == [("rejected", "not_allowed")] * 4
