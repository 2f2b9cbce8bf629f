"""What becomes of a rule's decision: the approval, its receipts, and its limits."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.commands.approval_bench import ApprovalBench, fails
from support.documents.documents import EVENT_ID, OTHER_ID, entry
from support.store_helpers import NOW, bridge_draft, draft, event_row

from bridge.config.approval import Rule
from bridge.store.database import Store
from bridge.store.outbox import Outbox
from bridge.store.recipient import Recipient
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
    """A rule approves a matching event on the poll that first shows it, and the receipts name the
    rule.
    """
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
    """A rule approves a state of an event once, over any number of polls and restarts."""
    bench = benches(MINE)
    bench.imds.starts = False
    bench.announce()
    for _ in range(3):
        bench.poll()
        bench.restart()
    assert bench.imds.posts == [EVENT_ID]
    assert bench.story() == APPROVED


def test_too_many_vms_are_refused_with_one_receipt(benches: Any) -> None:
    """A refusal by max_resources has one receipt for each state of the event, also over
    restarts.
    """
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
    """After the owner raises max_resources and restarts the bridge, the rule approves the pending
    event.
    """
    bench = benches(Rule(name="mine"))
    bench.announce(resources=["web_3", "web_4"])
    bench.rules = [MINE]
    bench.restart()
    bench.poll()
    assert [("rejected", "not_allowed"), *APPROVED] == bench.story()


def test_a_rule_that_is_back_decides_again(benches: Any) -> None:
    """After a run without the rule, in which its approval failed, the first rule that matches
    decides about the pending event.
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
    """A rule is asked at each poll, so that it approves after a later acknowledgement."""
    bench = benches(AFTER)
    record = bench.announce()
    bench.poll()
    assert bench.story() == []
    bench.acknowledged.add(record["id"])
    bench.poll()
    assert bench.story() == APPROVED


def test_time_alone_lets_the_next_vm_act(benches: Any) -> None:
    """The next VM acts after `takeover` although the document does not change."""
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
    """A new order of the VMs makes another VM the leader, without a record."""
    bench = benches(Rule(name="lead", max_resources=2, leader="first"))
    record = bench.announce(resources=["web_4", "web_3"])
    assert bench.imds.posts == []
    bench.change(Resources=["web_3", "web_4"])
    bench.poll()
    assert bench.imds.posts == [EVENT_ID]
    assert bench.record() == record


def test_a_leader_that_no_longer_leads_does_not_act(benches: Any) -> None:
    """A repeated request is sent only if the newest document still names this VM first."""
    bench = benches(Rule(name="lead", max_resources=2, leader="first"))
    bench.imds.failures = [fails("refused")]
    bench.announce(resources=["web_3", "web_4"])
    bench.change(Resources=["web_4", "web_3"])
    bench.poll(after=9)
    assert bench.imds.posts == [EVENT_ID]


def test_no_rule_approves_an_event_that_is_named_twice(benches: Any) -> None:
    """A rule refuses an event with two different lists of VMs once, and approves it when the
    document is clear.
    """
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


def test_a_rule_approves_again_what_was_named_twice_for_a_moment(benches: Any) -> None:
    """An unclear document ends an open approval. It changes neither the revision nor the
    fingerprint of the event, and the rule decides again when the document is clear.
    """
    bench = benches(MINE)
    bench.imds.failures = [fails("refused")]
    bench.announce(resources=["web_3", "web_4"])
    for _ in range(2):
        bench.imds.events_now["twin"] = entry(EVENT_ID.lower(), resources=["web_4", "web_3"])
        bench.poll()
        posts = list(bench.imds.posts)
        bench.imds.failures = [fails("refused")]
        del bench.imds.events_now["twin"]
        bench.poll()
        assert bench.imds.posts == [*posts, EVENT_ID]
    bench.poll(after=9)
    assert bench.story()[-2:] == APPROVED


def test_an_event_that_is_named_twice_alike_is_one(benches: Any) -> None:
    """A repeated entry whose EventId has another case does not prevent an approval."""
    bench = benches(MINE)
    bench.imds.events_now = {EVENT_ID: entry(), "twin": entry(EVENT_ID.lower())}
    bench.poll()
    assert bench.imds.posts == [EVENT_ID]


def test_rules_wait_for_a_good_poll(benches: Any) -> None:
    """An acknowledgement approves nothing while IMDS does not answer."""
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
    """A change of the wall clock does not shorten the leader's time."""
    bench = benches(Rule(name="lead", max_resources=2, leader="first", takeover=60))
    bench.announce(resources=["web_4", "web_3"])
    bench.poll(after=50)
    bench.clock.jump(hours * 3600)
    bench.poll(after=9)
    assert bench.story() == []
    bench.poll(after=1)
    assert bench.story() == APPROVED


def test_a_return_gives_the_leader_its_time_again(benches: Any) -> None:
    """The leader's time begins again when an event returns."""
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
    """After IMDS refused a state, the rule is asked again only about another state."""
    bench = benches(MINE)
    bench.imds.failures = [fails("http_400")]
    bench.announce()
    bench.poll()
    assert bench.story() == [("accepted", None), ("failed", "imds_refused")]
    bench.change(Description="moved")
    bench.poll()
    assert bench.story()[2:] == APPROVED


def test_each_event_is_decided_about_by_itself(benches: Any) -> None:
    """An event that waits does not delay another one."""
    bench = benches(AFTER)
    bench.announce()
    record = bench.announce(OTHER_ID)
    bench.acknowledged.add(record["id"])
    bench.poll()
    assert bench.imds.posts == [OTHER_ID]


def refuses(record_type: str, concerns_this_vm: bool | None) -> bool:
    """A sink that rejects every record."""
    return False


DRAIN = {"drain": Recipient(kind="program"), "ops": Recipient(kind="webhook")}


class TestOutbox:
    """The outbox's answer to `after`: whether a sink has acknowledged the event's newest record."""

    @pytest.fixture
    def outbox(self, store: Store) -> Outbox:
        """Two sinks, and one record of one event."""
        made = Outbox(store)
        made.register(DRAIN)
        (self.record,) = store.commit([draft(1, event_id="E-1")], events=[event_row("E-1")])
        return made

    def deliver(self, outbox: Outbox) -> None:
        while batch := outbox.next("drain", 10):
            outbox.move_past("drain", batch)

    def test_what_waits_is_not_acknowledged(self, outbox: Outbox) -> None:
        """A record is acknowledged once its own sink has delivered it."""
        assert not outbox.has_acknowledged("drain", "e-1")
        self.deliver(outbox)
        assert outbox.has_acknowledged("drain", "e-1")
        assert not outbox.has_acknowledged("ops", "e-1")

    def test_only_the_newest_record_counts(self, store: Store, outbox: Outbox) -> None:
        """An acknowledgement of an older record does not count, also if that was dead and is
        delivered last.
        """
        outbox.mark_dead("drain", self.record.sequence, reason="no", attempts=5, now=NOW)
        store.commit([draft(2, event_id="E-1")])
        self.deliver(outbox)
        assert outbox.has_acknowledged("drain", "e-1")
        assert outbox.retry("drain", None) == 1
        self.deliver(outbox)
        assert outbox.has_acknowledged("drain", "e-1")
        store.commit([draft(3, event_id="E-1")])
        assert not outbox.has_acknowledged("drain", "e-1")

    def test_what_is_dead_is_not_acknowledged(self, outbox: Outbox) -> None:
        """A dead record is not acknowledged until a retry succeeds."""
        outbox.mark_dead("drain", self.record.sequence, reason="no", attempts=5, now=NOW)
        assert not outbox.has_acknowledged("drain", "e-1")
        assert outbox.retry("drain", None) == 1
        assert not outbox.has_acknowledged("drain", "e-1")
        self.deliver(outbox)
        assert outbox.has_acknowledged("drain", "e-1")

    @pytest.mark.parametrize("how", ["a filter", "a drop", "another kind", "another event or sink"])
    def test_what_is_no_acknowledgement(self, outbox: Outbox, how: str) -> None:
        """A record that a filter left out, that a person dropped, or that a sink of another kind
        got is not acknowledged.
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
            assert not outbox.has_acknowledged("drain", "e-2")
            assert not outbox.has_acknowledged("nobody", "e-1")
            return
        assert not outbox.has_acknowledged("drain", "e-1")
        if how == "a filter":
            outbox.register(DRAIN)
            assert not outbox.has_acknowledged("drain", "e-1")

    def test_an_acknowledgement_outlives_a_restart(self, store: Store, outbox: Outbox) -> None:
        """An acknowledgement counts in the next run."""
        self.deliver(outbox)
        again = Outbox(store)
        again.register(DRAIN)
        assert again.has_acknowledged("drain", "e-1")

    def test_an_acknowledgement_outlives_a_full_disk(self, store: Store, outbox: Outbox) -> None:
        """An acknowledgement that could not be written counts once it can be."""
        store.read("PRAGMA query_only=ON")
        self.deliver(outbox)
        assert not outbox.has_acknowledged("drain", "e-1")
        store.read("PRAGMA query_only=OFF")
        assert outbox.has_acknowledged("drain", "e-1")

    def test_there_is_one_for_an_event_and_a_sink(self, store: Store, outbox: Outbox) -> None:
        """Only the newest acknowledgement of each event and sink is stored."""
        store.commit([draft(2, event_id="E-1"), bridge_draft(BRIDGE_STARTED)])
        self.deliver(outbox)
        assert store.read("SELECT event, sink, sequence FROM acknowledged") == [("e-1", "drain", 2)]


def test_nothing_is_remembered_of_events_that_are_over(benches: Any) -> None:
    """Nothing is kept in memory about ended events, because the store has their decisions."""
    bench = benches(MINE)
    bench.announce(resources=["web_3", "web_4"])
    assert list(bench.approvals._rules._pending) == [EVENT_ID.casefold()]
    bench.vanish()
    bench.poll()
    assert bench.approvals._rules._pending == {}


def test_what_is_remembered_of_an_event_does_not_grow_with_its_changes(benches: Any) -> None:
    """A rule decides once about the newest state of an event, and keeps nothing of earlier
    states.
    """
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
