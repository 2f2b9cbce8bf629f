"""What changes after an approval was accepted, and before IMDS is asked."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import pytest
from support.commands.approval_bench import (
    ApprovalBench,
    fails,
)
from support.commands.control_plane import IssuerKey
from support.documents.documents import EVENT_ID, OTHER_ID, entry

from bridge.config.approval import Rule
from bridge.store.approvals import Approval, ApprovalStore
from wire.record import Record, RecordDraft


def test_a_change_meanwhile_ends_the_trying(bench: ApprovalBench) -> None:
    """A change of the event ends its approval, which was for the earlier state. An error of a
    server may have had its effect.
    """
    bench.announce()
    bench.imds.failures = [fails("http_500")] * 9
    bench.send(bench.approve())
    bench.change(Resources=["web_3", "web_4"])
    bench.poll()
    assert bench.story() == [("accepted", None), ("failed", "imds_unreachable")]
    assert len(bench.imds.posts) == 1


def during_a_post(bench: ApprovalBench, event_id: str, **fields: Any) -> Callable[[str], None]:
    """Return a POST that lasts until a poll has seen a new description of an event."""

    def take(posted: str) -> None:
        bench.imds.take(posted)
        bench.change(event_id, **fields)
        bench.clock.advance(1)
        assert bench.poller.run()

    return take


@pytest.mark.parametrize(
    "fields", [{"Resources": ["web_3", "web_4", "web_5"]}, {"EventStatus": "Started"}]
)
def test_a_rule_decides_on_what_is_recorded_when_it_posts(
    bench: ApprovalBench, fields: dict[str, Any]
) -> None:
    """The rule is asked about the state that was recorded during another event's POST, and the
    receipt names that state.
    """
    bench.decide_by(Rule(name="mine"))
    bench.imds.events_now = {EVENT_ID: entry(), OTHER_ID: entry(OTHER_ID)}
    bench.imds.failures = [during_a_post(bench, OTHER_ID, **fields)]
    bench.poll()
    assert bench.imds.posts == [EVENT_ID]
    others = [each for each in bench.receipts() if each["evt"] == OTHER_ID]
    refused = [("rejected", fields["Resources"])] if "Resources" in fields else []
    assert refused == [(each["state"], each["resources"]) for each in others]


class SlowApprovalStore(ApprovalStore):
    """A store of approvals that lets the bridge poll while an acceptance is written."""

    bench: ApprovalBench
    meanwhile: dict[str, Any]

    def save(self, approval: Approval, *args: Any, **how: Any) -> None:
        super().save(approval, *args, **how)
        if approval.state == "accepted" and self.meanwhile:
            self.bench.change(**self.meanwhile)
            self.meanwhile = {}
            assert self.bench.poller.run()


@pytest.mark.parametrize("how", ["rule", "command", "person"])
@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"Resources": ["web_3", "web_4"]}, "event_changed"),
        ({"EventStatus": "Started"}, "already_started"),
        ({"EventStatus": "Advisory"}, "not_approvable"),
        ({"Resources": ["web_3", 7]}, "not_allowed"),
    ],
)
def test_what_changes_while_it_is_written_down_is_not_posted(
    bench: ApprovalBench, how: str, fields: dict[str, Any], reason: str
) -> None:
    """The newest recorded state is checked again after the decision is on disk, and before the
    POST.
    """
    bench.announce()
    bench.rules = [Rule(name="mine")] if how == "rule" else []
    SlowApprovalStore.bench, SlowApprovalStore.meanwhile = bench, fields
    bench.make_approval_store = lambda store: SlowApprovalStore(store, bench.clock.now())  # type: ignore[method-assign]
    bench.restart()
    if how == "rule":
        bench.poll()
    else:
        bench.poller.run()
    if how == "command":
        bench.send(bench.approve())
    if how == "person":
        bench.person()
    assert bench.imds.posts == []
    assert bench.story()[:2] == [("accepted", None), ("failed", reason)]


def test_a_change_that_is_recorded_counts_before_its_poll_has_ended(bench: ApprovalBench) -> None:
    """A state counts as the newest from its commit on."""
    bench.announce()
    token = bench.approve()
    commit = bench.store.commit

    def slow(drafts: Sequence[RecordDraft] = (), **how: Any) -> list[Record]:
        bench.store.commit = commit  # type: ignore[method-assign]
        committed = commit(drafts, **how)
        bench.send(token)
        return committed

    bench.store.commit = slow  # type: ignore[method-assign]
    bench.change(Resources=["web_3", "web_4"])
    bench.poll()
    assert bench.imds.posts == []
    assert bench.story() == [("rejected", "event_changed")]


class WaitingApprovalStore(ApprovalStore):
    """A store of approvals whose first read of the newest record takes time, in which something
    happens.
    """

    meanwhile: ClassVar[list[Callable[[], object]]] = []

    def newest_record(self, event: str) -> str | None:
        answer = super().newest_record(event)
        while self.meanwhile:
            self.meanwhile.pop()()
        return answer


@pytest.fixture
def waiting(bench: ApprovalBench) -> ApprovalBench:
    """A bridge with this approval_store, and a rule that approves while this VM is the first."""
    bench.make_approval_store = lambda store: WaitingApprovalStore(store, bench.clock.now())  # type: ignore[method-assign]
    WaitingApprovalStore.meanwhile.clear()
    bench.decide_by(Rule(name="lead", leader="first", max_resources=2))
    return bench


def test_a_poll_that_fails_before_the_post_holds_it(waiting: ApprovalBench) -> None:
    """A poll that fails during the wait for the store holds the POST."""

    def fail() -> None:
        waiting.imds.silent = True
        assert not waiting.poller.run()
        waiting.imds.silent = False

    WaitingApprovalStore.meanwhile.append(fail)
    waiting.announce()
    assert (waiting.imds.posts, waiting.story()) == ([], [("accepted", None)])
    waiting.poll()
    assert waiting.imds.posts == [EVENT_ID]


def test_another_order_before_the_post_counts(waiting: ApprovalBench) -> None:
    """A new order of the VMs, which has no record, changes the leader before the POST."""

    def reorder() -> None:
        waiting.change(Resources=["web_4", "web_3"])
        assert waiting.poller.run()

    WaitingApprovalStore.meanwhile.append(reorder)
    waiting.announce(resources=("web_3", "web_4"))
    waiting.poll()
    assert waiting.imds.posts == []
    assert waiting.story() == [("accepted", None)]


def test_a_key_that_is_taken_out_before_the_post_counts(waiting: ApprovalBench) -> None:
    """The trust file is read after the store, so that a removed key holds the POST."""
    waiting.announce(resources=("web_4", "web_3"))
    WaitingApprovalStore.meanwhile.append(lambda: waiting.trust(waiting.other))
    waiting.send(waiting.approve())
    waiting.poll()
    assert waiting.imds.posts == []
    assert waiting.story() == [("accepted", None), ("failed", "not_allowed")]


def test_a_command_that_expires_before_the_post_counts(waiting: ApprovalBench) -> None:
    """The expiry of a command is checked after the store was read."""
    waiting.announce(resources=("web_4", "web_3"))
    WaitingApprovalStore.meanwhile.append(lambda: waiting.clock.advance(1))
    waiting.send(waiting.approve(exp=waiting.seconds + 1))
    assert waiting.imds.posts == []
    waiting.poll()
    assert waiting.story() == [("accepted", None), ("failed", "expired")]


def test_a_retry_needs_its_rule_still(bench: ApprovalBench) -> None:
    """A repeated request is not sent if the owner has removed its rule."""
    bench.decide_by(Rule(name="mine"))
    bench.imds.failures = [fails("refused")]
    bench.announce()
    bench.rules = []
    bench.restart()
    bench.poll(after=9)
    assert bench.imds.posts == [EVENT_ID]
    assert bench.story() == [("accepted", None), ("failed", "not_allowed")]


@pytest.mark.parametrize("decided", ["by a rule", "by a key"])
def test_an_approval_that_is_withdrawn_leaves_the_event_to_the_rules(
    bench: ApprovalBench, decided: str
) -> None:
    """An approval whose answer was lost stays open after its rule or key is removed, and another
    rule may approve the event.
    """
    if decided == "by a rule":
        bench.decide_by(Rule(name="mine"))
    bench.imds.starts = False
    bench.imds.failures = [fails("timeout")]
    bench.announce()
    if decided == "by a key":
        bench.send(bench.approve())
        bench.trust(bench.curve)
    assert bench.imds.posts == [EVENT_ID]
    bench.decide_by(Rule(name="other"))
    bench.poll(after=9)
    bench.poll()
    assert bench.imds.posts == [EVENT_ID] * 2
    assert bench.story() == [("accepted", None), ("accepted", None), ("posted", None)]


def test_a_command_whose_keys_cannot_be_read_leaves_the_event_to_the_rules(
    bench: ApprovalBench,
) -> None:
    """While a command waits for its keys, possibly until it has expired, a rule that matches may
    approve the event.
    """
    bench.decide_by(Rule(name="after", after=("drain",)))
    bench.imds.starts = False
    bench.imds.failures = [fails("http_503")]
    record = bench.announce()
    bench.send(bench.approve())
    assert bench.trust_file is not None
    bench.trust_file.write_text('{"keys": [')
    bench.acknowledged.add(record["id"])
    bench.poll(after=9)
    bench.poll()
    assert bench.imds.posts == [EVENT_ID] * 2
    assert bench.story() == [("accepted", None), ("accepted", None), ("posted", None)]


def test_a_retry_needs_the_acknowledgement_of_the_newest_record(bench: ApprovalBench) -> None:
    """A repeated request waits until the sink has acknowledged the newest record, also if the
    fingerprint is the same.
    """
    bench.decide_by(Rule(name="after", after=("drain",)))
    bench.imds.failures = [fails("refused")]
    bench.acknowledged.add(bench.announce()["id"])
    bench.poll()
    assert bench.imds.posts == [EVENT_ID]
    bench.change(Description="moved")
    bench.poll(after=9)
    assert bench.imds.posts == [EVENT_ID]
    bench.acknowledged.add(bench.record()["id"])
    bench.poll()
    assert bench.imds.posts == [EVENT_ID] * 2


@pytest.mark.parametrize("instead", ["another key", "another key of that name", "another issuer"])
def test_a_retry_needs_the_key_that_signed_it(bench: ApprovalBench, instead: str) -> None:
    """A command is not posted after its key is removed, although its issuer has other keys or
    another key has the same id.
    """
    bench.announce()
    bench.fail()
    bench.send(bench.approve())
    assert bench.story() == [("accepted", None)]
    bench.trust(
        {
            "another key": bench.curve,
            "another key of that name": IssuerKey(bench.signer.kid),
            "another issuer": IssuerKey(bench.signer.kid, issuer="https://other.example"),
        }[instead]
    )
    bench.poll()
    assert bench.imds.posts == []
    assert bench.story() == [("accepted", None), ("failed", "not_allowed")]


def test_a_key_that_is_taken_out_after_a_lost_answer_hides_no_start(bench: ApprovalBench) -> None:
    """After the key is removed nothing more is posted, and the event's status shows whether the
    lost request started it.
    """
    bench.announce()
    bench.imds.failures = [fails("timeout")] * 3
    bench.send(bench.approve())
    posts = list(bench.imds.posts)
    bench.trust(bench.curve)
    bench.poll()
    assert bench.imds.posts == posts
    bench.vanish()
    bench.poll()
    assert bench.record()["data"]["event"]["eventStatus"] == "Unknown"
    assert bench.story()[-1] == ("confirmed", None)


def test_a_retry_needs_an_issuer_that_is_trusted_still(bench: ApprovalBench) -> None:
    """A command is not posted after its issuer is removed; while the trust file cannot be read,
    nothing is decided.
    """
    assert bench.trust_file is not None
    bench.announce()
    bench.imds.failures = [fails("refused")]
    bench.send(bench.approve())
    bench.trust_file.write_text("{")
    bench.poll(after=9)
    assert bench.story() == [("accepted", None)]
    bench.trust(bench.other)
    bench.poll(after=9)
    assert bench.imds.posts == [EVENT_ID]
    assert bench.story() == [("accepted", None), ("failed", "not_allowed")]


@pytest.mark.parametrize(
    ("fields", "end"),
    [
        ({"Resources": ["web_3", "web_4"]}, ("failed", "event_changed")),
        ({"EventStatus": "Started", "NotBefore": ""}, ("failed", "already_started")),
    ],
)
def test_what_changed_while_nobody_looked_is_not_approved(
    bench: ApprovalBench, fields: dict[str, Any], end: tuple[str, str]
) -> None:
    """A waiting approval fails if the next poll finds another state of the event."""
    bench.announce()
    token = bench.approve()
    bench.clock.advance(60)
    bench.send(token)
    bench.change(**fields)
    bench.poll()
    assert (bench.imds.posts, bench.story()) == ([], [("accepted", None), end])
