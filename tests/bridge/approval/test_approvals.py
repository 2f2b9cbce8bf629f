"""Approvals from the command to the receipts, with an IMDS that fails in every way."""

import itertools
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import jsonschema
import pytest
from support.commands.approving import (
    ApprovalBench,
    approval_worker_of,
    fails,
    has_work,
    populate,
    run_once,
    scene,
    tell_poll,
)
from support.commands.control_plane import IssuerKey
from support.commands.forged_claims import FORGERIES
from support.documents.documents import EVENT_ID, LATER, OTHER_ID, VM, entry

from bridge.approval import open_approvals, refusals
from bridge.approval.open_approvals import ENDS_AT_ONCE, MAX_RETRY_SECONDS
from bridge.approval.verification import MAX_COMMANDS, SKEW_SECONDS
from bridge.config.approval import Rule
from bridge.store.approvals import Approval, ApprovalStore
from bridge.store.database import RESET_KEY, StoreError
from bridge.store.opening import FILE_NAME
from sinks.base import CommandMessage
from wire.record import Record, RecordDraft
from wire.schema import schema

GOOD = [("accepted", None), ("posted", None), ("confirmed", None)]


FEW = 5
"""Refusals a minute; the bridge's own limit would only take longer."""


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApprovalBench]:
    """A bridge that has seen nothing yet, and no rule."""
    monkeypatch.setattr(refusals, "REFUSALS_A_MINUTE", FEW)
    made = ApprovalBench(tmp_path)
    yield made
    made.close()


def test_a_command_is_carried_out(bench: ApprovalBench) -> None:
    """A command is accepted, posted and confirmed; each step is a receipt with the sender and the
    released VMs.
    """
    record = bench.announce()
    bench.send(bench.approve(jti="one"))
    assert (bench.imds.posts, bench.settled) == ([EVENT_ID], 1)
    bench.poll()
    assert bench.story() == GOOD
    vm = bench.receipts()[0]["vm"]["vmId"]
    expected = {
        "jti": "one",
        "evt": EVENT_ID,
        "reason": None,
        "actor": "operator@control.example",
        "issuer": "https://control.example",
        "resources": record["data"]["event"]["resources"],
    }
    for receipt in bench.receipts():
        assert expected == {name: receipt[name] for name in expected}
        assert vm == VM.vm_id


def test_it_is_stored_before_imds_hears_of_it(bench: ApprovalBench) -> None:
    """When the POST is sent, its cause is on disk and the message is settled."""
    seen: list[Any] = []

    def look_at_disk(event_id: str) -> None:
        seen.extend([bench.story(), len(bench.entries()), bench.settled])

    bench.announce()
    bench.imds.failures = [look_at_disk]
    bench.send(bench.approve())
    assert seen == [[("accepted", None)], 1, 1]


def test_nothing_forged_causes_a_post(bench: ApprovalBench) -> None:
    """No forgery causes a POST; each is counted under its reason, and one with a valid signature
    gets one receipt.
    """
    populate(bench)
    told, at = [], scene(bench)
    for forgery in FORGERIES:
        bench.clock.advance(60)
        head = bench.store.head
        bench.send(forgery.make(replace(at, now=bench.seconds)), retained=forgery.retained)
        told.append(bench.story(after=head))
    assert [
        [("rejected", forgery.reason)] if forgery.answered else [] for forgery in FORGERIES
    ] == told
    assert (bench.imds.posts, bench.entries()) == ([], [])
    assert Counter(forgery.reason for forgery in FORGERIES) == bench.refused()
    assert len(FORGERIES) == bench.settled
    right = jsonschema.Draft202012Validator(schema())
    for (body,) in bench.store.read("SELECT body FROM records WHERE type = 'seb.approval.v1'"):
        right.validate(json.loads(body))


def test_without_rule_and_trust_nothing_causes_a_post(bench: ApprovalBench) -> None:
    """Without rules and a trust file, no command is followed and no poll approves."""
    populate(bench)
    bench.trust_file = None
    bench.restart()
    at = scene(bench)
    for token in (at.approve(), at.other.approve(at.soon), *(f.make(at) for f in FORGERIES)):
        bench.send(token)
        bench.poll()
    assert (bench.imds.posts, bench.story()) == ([], [])
    assert not {"expired", "replayed", "not_allowed"} & bench.refused().keys()


@pytest.mark.parametrize(
    "again",
    [
        lambda bench, token: bench.send(token),
        lambda bench, token: bench.send(token, channel="pull"),
        lambda bench, token: (bench.restart(), bench.send(token)),
    ],
    ids=["the same channel", "another channel", "after a restart"],
)
@pytest.mark.parametrize("later", [0.0, 1.0])
def test_a_token_acts_once(
    bench: ApprovalBench, again: Callable[[ApprovalBench, bytes], object], later: float
) -> None:
    """A second copy of a token is rejected as replayed, over any channel, and also when its event
    has started.
    """
    bench.announce()
    token = bench.approve()
    bench.send(token)
    if later:
        bench.poll(after=later)
    again(bench, token)
    bench.poll()
    assert bench.imds.posts == [EVENT_ID]
    assert bench.story().count(("rejected", "replayed")) == 1
    assert [each for each in bench.story() if each[0] != "rejected"] == GOOD


def test_a_jti_is_its_issuers_own(bench: ApprovalBench) -> None:
    """Two issuers may use the same jti; one issuer may not use it twice, with any of its keys."""
    bench.announce()
    bench.imds.starts = False
    bench.send(bench.approve(jti="one"))
    bench.send(bench.other.approve(bench.record(), now=bench.seconds, jti="one"))
    bench.send(bench.curve.approve(bench.record(), now=bench.seconds, jti="one"))
    assert [state for state, _ in bench.story()] == [
        "accepted",
        "posted",
        "accepted",
        "posted",
        "rejected",
    ]
    assert bench.imds.effective == [EVENT_ID]


def test_a_token_from_before_a_lost_store_is_replayed(bench: ApprovalBench) -> None:
    """After the store was lost, every token from before that counts as used."""
    bench.announce()
    bench.imds.starts = False
    token = bench.approve()
    bench.send(token)
    bench.clock.advance(2)
    bench.close()
    for file in bench.directory.glob(f"{FILE_NAME}*"):
        file.unlink()
    bench.begin()
    assert bench.store.meta(RESET_KEY) is not None
    bench.poll()
    bench.send(token)
    assert bench.imds.posts == [EVENT_ID]
    assert bench.story() == [("rejected", "replayed")]
    bench.poll(after=SKEW_SECONDS)
    bench.send(bench.approve())
    assert bench.imds.posts == [EVENT_ID, EVENT_ID]


def test_a_message_that_the_channel_hands_over_again_is_not_answered_again(
    bench: ApprovalBench,
) -> None:
    """A message that a broker repeats after a lost acknowledgement gets no second receipt."""
    bench.announce()
    token = bench.approve()
    bench.send(token)
    bench.send(token, redelivered=True)
    assert bench.settled == 2
    bench.poll()
    assert bench.story() == GOOD
    assert bench.refused() == {"replayed": 1}


def test_a_message_that_was_never_taken_counts_when_it_comes_again(bench: ApprovalBench) -> None:
    """A repeated message that was not stored the first time is carried out."""
    bench.announce()
    bench.send(bench.approve(), redelivered=True)
    assert bench.imds.posts == [EVENT_ID]


def test_good_commands_have_a_rate(bench: ApprovalBench) -> None:
    """The 31st valid command within a minute is rejected as rate_limited, is not used up, and is
    accepted later.
    """
    bench.announce()
    bench.imds.starts = False
    tokens = [bench.approve(exp=bench.seconds + 900) for _ in range(MAX_COMMANDS + 1)]
    for token in tokens:
        bench.send(token)
    assert bench.story()[-1] == ("rejected", "rate_limited")
    assert len(bench.imds.posts) == MAX_COMMANDS == 30
    bench.poll(after=60)
    bench.send(tokens[-1])
    assert bench.story()[-1] == ("posted", None)


def test_many_refused_tokens_are_not_all_answered(bench: ApprovalBench) -> None:
    """The number of receipts for refused tokens within a minute is limited."""
    bench.announce()
    for number in range(FEW + 50):
        bench.send(bench.approve(jti=f"old-{number}", exp=bench.seconds))
    assert len(bench.receipts()) == FEW
    bench.clock.advance(60)
    bench.send(bench.approve(jti="old-0", exp=bench.seconds))
    assert len(bench.receipts()) == FEW + 1


def test_a_token_that_comes_again_is_refused_once_a_minute(bench: ApprovalBench) -> None:
    """One token that is published again and again causes one receipt a minute for each reason, so
    it does not delay events at a slow sink.
    """
    bench.announce()
    old = bench.approve(jti="old", exp=bench.seconds)
    for _ in range(FEW + 1):
        bench.send(old)
    bench.send(bench.approve(jti="other", exp=bench.seconds))
    assert bench.story() == [("rejected", "expired"), ("rejected", "expired")]
    bench.clock.advance(60)
    bench.send(old)
    assert len(bench.receipts()) == 3


def test_refusals_are_logged_within_limits(
    bench: ApprovalBench, caplog: pytest.LogCaptureFixture
) -> None:
    """A flood of one token or of many makes few lines of the log, and no line contains a token."""
    bench.announce()
    token = bench.approve(iss="https://elsewhere.example")
    with caplog.at_level(logging.WARNING):
        for _ in range(FEW + 50):
            bench.send(token)
        for number in range(FEW + 50):
            bench.send(b"junk %d" % number)
            bench.send(bench.approve(jti=f"other-{number}", iss="https://elsewhere.example"))
    lines = [each for each in caplog.records if getattr(each, "action", "") == "command_refused"]
    assert len(lines) == 2 * FEW
    assert not [each for each in lines if token.decode()[-40:] in str(each.__dict__)]


def test_a_flood_without_a_signature_holds_up_no_answer(bench: ApprovalBench) -> None:
    """A flood of unsigned messages does not use up the receipts for signed ones."""
    bench.announce()
    for number in range(FEW + 10):
        bench.send(b"junk %d" % number)
    bench.send(bench.approve(exp=bench.seconds))
    assert bench.story() == [("rejected", "expired")]


def test_trouble_with_the_trusted_keys_is_logged_once(
    bench: ApprovalBench, caplog: pytest.LogCaptureFixture
) -> None:
    """A broken trust file is logged once when a command needs it, and once when it can be read
    again.
    """
    assert bench.trust_file is not None
    bench.announce()
    good = bench.trust_file.read_text()
    bench.trust_file.write_text("{")
    with caplog.at_level(logging.WARNING):
        bench.send(bench.approve())
        bench.send(bench.approve())
        bench.trust_file.write_text(good)
        bench.send(bench.approve())
    actions = [getattr(each, "action", "") for each in caplog.records]
    assert [actions.count(each) for each in ("trust_trouble", "trust_ok")] == [1, 1]
    assert bench.refused() == {"unknown_key": 2}
    assert bench.imds.posts == [EVENT_ID]


@pytest.mark.parametrize(
    "reason",
    [
        "http_429",
        "http_500",
        "http_503",
        "http_404",
        "http_410",
        "http_401",
        "timeout",
        "connection",
        "refused",
        "unreachable",
    ],
)
def test_imds_is_asked_again(bench: ApprovalBench, reason: str) -> None:
    """A request whose failure may pass is repeated with growing pauses until IMDS accepts it."""
    bench.announce()
    bench.imds.failures = [fails(reason)] * 3
    bench.send(bench.approve())
    assert bench.story() == [("accepted", None)]
    for _ in range(8):
        bench.poll()
    assert bench.imds.posts == [EVENT_ID] * 4
    assert bench.story() == GOOD


def test_pauses_grow_to_a_limit_and_honour_what_imds_asks(bench: ApprovalBench) -> None:
    """The pauses are 1, 2, 4, 5, 5 seconds, or longer if IMDS asks for that."""
    bench.announce()
    bench.imds.failures = [fails("http_500")] * 6 + [fails("http_429", retry_after=9)]
    times: list[float] = []
    bench.send(bench.approve())
    for _ in range(90):
        before = len(bench.imds.posts)
        bench.poll(after=0.5)
        times += [bench.clock.monotonic()] * (len(bench.imds.posts) - before)
    pauses = [after - before for before, after in itertools.pairwise(times)]
    assert pauses == [2.0, 4.0, MAX_RETRY_SECONDS, MAX_RETRY_SECONDS, MAX_RETRY_SECONDS, 9.0]


FAILED, UNREACHABLE = ("failed", "imds_refused"), ("failed", "imds_unreachable")


@pytest.mark.parametrize(
    ("answers", "then", "end"),
    [
        # IMDS took it, its answer was lost, and the event starts, or is over.
        ("lost", "starts", GOOD[2]),
        ("lost http_400", "is gone", GOOD[2]),
        # An answer that was lost once is never taken for certainly in vain, whatever follows it.
        ("lost refused", "starts", GOOD[2]),
        ("refused lost", "starts", GOOD[2]),
        ("http_500 lost" + " http_500" * 9, "is gone", GOOD[2]),
        # Where the event still stands after a refusal, and is refused again, IMDS means it.
        ("lost http_400 http_400", "stays", FAILED),
        ("http_400", "stays", FAILED),
        ("http_405", "stays", FAILED),
        # An error of a server may have had its effect; that an event is gone does not show it.
        ("http_500 " * 9, "starts", GOOD[2]),
        ("http_500 " * 9, "is gone", FAILED),
        ("http_503 " * 9, "is gone", FAILED),
        # Where IMDS could not be reached for sure, a start is none of ours.
        ("refused " * 9, "starts", UNREACHABLE),
        # A change does not show whether the request was taken; one that was not sent was not.
        ("lost", "changes", UNREACHABLE),
        ("http_500", "changes", UNREACHABLE),
        ("refused", "changes", ("failed", "event_changed")),
    ],
)
@pytest.mark.parametrize("restart", [False, True])
def test_the_end_of_a_post(
    bench: ApprovalBench, answers: str, then: str, end: tuple[str, str | None], *, restart: bool
) -> None:
    """Each approval has one end, which says no more than what is known."""
    bench.announce()
    bench.imds.starts = False
    bench.imds.failures = [
        bench.imds.lose_answer if each == "lost" else fails(each) for each in answers.split()
    ]
    bench.send(bench.approve())
    for _ in answers.split()[1:]:
        bench.poll(after=5)
    if restart:
        bench.restart()
    if then == "starts":
        bench.change(EventStatus="Started", NotBefore="")
    if then == "is gone":
        bench.vanish()
    if then == "changes":
        bench.change(NotBefore=LATER)
    bench.poll()
    assert bench.story() == [("accepted", None), end]


@pytest.mark.parametrize("restart", [False, True])
def test_a_rule_decides_about_what_is_planned_again_after_its_post(
    bench: ApprovalBench, *, restart: bool
) -> None:
    """If IMDS accepts a POST and starts nothing, the rule approves the next state of the event
    once.
    """
    bench.decide_by(Rule(name="any"))
    bench.imds.starts = False
    bench.announce()
    bench.change(NotBefore=LATER)
    if restart:
        bench.restart()
    bench.poll()
    bench.poll()
    assert len(bench.imds.posts) == 2
    assert bench.story() == [("accepted", None), ("posted", None)] * 2
    bench.change(EventStatus="Started", NotBefore="")
    bench.poll()
    assert bench.story()[4:] == [("confirmed", None)] * 2


@pytest.mark.parametrize("restarts", ["never", "while it is changed", "before approval looks"])
def test_a_rule_decides_about_a_state_that_comes_back(
    bench: ApprovalBench, *, restarts: str
) -> None:
    """If IMDS accepts a POST and starts nothing, the rule approves the same state again after it
    has changed and returned.
    """
    bench.decide_by(Rule(name="any"))
    bench.imds.starts = False
    before = bench.announce()["data"]["event"]["durationInSeconds"]
    bench.change(DurationInSeconds=before + 1)
    bench.poll()
    if restarts == "while it is changed":
        bench.restart()
    bench.change(DurationInSeconds=before)
    if restarts == "before approval looks":
        bench.clock.advance(1)
        assert bench.poller.run()
        bench.restart()
    bench.poll()
    bench.poll()
    assert len(bench.imds.posts) == 3


def test_an_approval_says_nothing_about_the_end_of_what_returned(bench: ApprovalBench) -> None:
    """An approved event that ended and returned ends as Canceled if Azure cancels it."""
    bench.announce()
    bench.send(bench.approve())
    bench.poll()
    bench.vanish()
    bench.poll()
    bench.announce()
    bench.vanish()
    bench.poll()
    assert bench.record()["data"]["event"]["eventStatus"] == "Canceled"


def test_a_rule_decides_again_about_a_state_that_comes_back(bench: ApprovalBench) -> None:
    """A rule approves a state again that came back, because its first approval started nothing."""
    bench.decide_by(Rule(name="any"))
    bench.imds.starts = False
    before = bench.announce()["data"]["raw"]["NotBefore"]
    for moment in (LATER, before):
        bench.change(NotBefore=moment)
        bench.poll()
    bench.poll()
    assert len(bench.imds.posts) == 3


def test_a_change_meanwhile_ends_the_trying(bench: ApprovalBench) -> None:
    """A change of the event ends its approval, which was for the earlier state. An error of a
    server may have had its effect.
    """
    bench.announce()
    bench.imds.failures = [fails("http_500")] * 9
    bench.send(bench.approve())
    bench.change(Resources=["web_3", "web_4"])
    bench.poll()
    assert bench.story() == [("accepted", None), UNREACHABLE]
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


def test_an_event_that_returned_is_not_started_by_an_approval_from_before(
    bench: ApprovalBench,
) -> None:
    """The bridge was killed while a POST hung, and the event had ended and returned meanwhile."""
    bench.announce()
    bench.imds.starts = False
    bench.imds.failures = [fails("timeout")]
    bench.send(bench.approve())
    bench.vanish()
    assert bench.poller.run()
    bench.imds.events_now[EVENT_ID] = entry(EVENT_ID)
    bench.clock.advance(1)
    assert bench.poller.run()
    posts = list(bench.imds.posts)
    bench.restart()
    bench.poll(after=9)
    assert bench.imds.posts == posts
    assert bench.story() == [("accepted", None), ("confirmed", None)]


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


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("answers", ["", "refused", "refused http_404"])
def test_an_expired_command_is_not_posted(
    bench: ApprovalBench, answers: str, *, restart: bool
) -> None:
    """An expired command fails if no request can have worked: after failed polls, failed requests,
    and a restart.
    """
    bench.announce()
    bench.imds.failures = [fails(each) for each in answers.split()]
    if not answers:
        bench.fail()
    bench.send(bench.approve(exp=bench.seconds + 20))
    for _ in answers.split()[1:]:
        bench.poll(after=2)
    posts = list(bench.imds.posts)
    bench.clock.advance(20)
    if restart:
        bench.restart()
    bench.poll()
    assert bench.imds.posts == posts == [EVENT_ID] * len(answers.split())
    assert bench.story() == [("accepted", None), ("failed", "expired")]


@pytest.mark.parametrize("restart", [False, True])
def test_a_clock_that_is_set_back_gives_a_command_no_more_time(
    bench: ApprovalBench, *, restart: bool
) -> None:
    """A clock that is set back does not extend a command's life, also over a restart."""
    bench.announce()
    bench.fail()
    bench.send(bench.approve(exp=bench.seconds + 20))
    bench.clock.jump(-3600)
    bench.clock.suspend(10)
    bench.fail()
    if restart:
        bench.restart()
    bench.fail()
    bench.clock.advance(10)
    bench.poll()
    assert bench.imds.posts == []
    assert bench.story() == [("accepted", None), ("failed", "expired")]


@pytest.mark.parametrize("restart", [False, True])
def test_a_clock_that_is_set_back_makes_no_expired_command_valid(
    bench: ApprovalBench, *, restart: bool
) -> None:
    """A command that comes after its end is refused although the clock was set back meanwhile; one
    that is signed with more time than that is carried out.
    """
    bench.announce()
    late = bench.approve(jti="late", exp=bench.seconds + 15)
    bench.poll(after=26)
    bench.clock.jump(-20)
    if restart:
        bench.restart()
        bench.poll()
    bench.send(late)
    assert (bench.imds.posts, bench.story()) == ([], [("rejected", "expired")])
    bench.send(bench.approve(jti="new", exp=bench.seconds + 60))
    assert bench.imds.posts == [EVENT_ID]


def test_a_boot_that_leaves_the_clock_behind_gives_a_command_no_more_time(
    bench: ApprovalBench,
) -> None:
    """After a boot with the clock behind, the time until the last good poll counts as passed."""
    bench.announce()
    bench.imds.failures = [fails("refused")] * 9
    bench.send(bench.approve(exp=bench.seconds + 300))
    bench.poll(after=250)
    posts = list(bench.imds.posts)
    bench.close()
    bench.clock.boot()
    bench.clock.jump(-240)
    bench.begin()
    bench.fail(after=49)
    assert bench.story() == [("accepted", None)]
    bench.poll(after=1)
    assert bench.imds.posts == posts
    assert bench.story() == [("accepted", None), ("failed", "expired")]


def test_a_command_that_expires_while_its_post_connects_is_not_posted(
    bench: ApprovalBench,
) -> None:
    """The expiry is checked again once there is a connection, which may take seconds."""
    bench.announce()
    bench.imds.connecting = lambda: bench.clock.advance(20)
    bench.send(bench.approve(exp=bench.seconds + 20))
    bench.poll()
    assert bench.imds.posts == []
    assert bench.story() == [("accepted", None), ("failed", "expired")]


def test_a_vm_that_is_brought_back_while_a_post_connects_is_not_started(
    bench: ApprovalBench,
) -> None:
    """The preparation is checked again once there is a connection, which may take seconds."""
    bench.announce()
    preparation = ["prepared"]
    bench.current.preparation = lambda _: preparation[-1]
    bench.imds.connecting = lambda: preparation.append("none")
    bench.send(bench.approve())
    assert bench.imds.posts == []
    assert bench.story() == [("accepted", None)]


def test_a_command_expires_while_imds_does_not_answer(bench: ApprovalBench) -> None:
    """A command fails at its expiry although IMDS does not answer."""
    bench.announce()
    bench.fail()
    bench.send(bench.approve(exp=bench.seconds + 20))
    bench.fail(after=19)
    assert bench.story() == [("accepted", None)]
    bench.fail()
    assert bench.story() == [("accepted", None), ("failed", "expired")]


@pytest.mark.parametrize(("answer", "end"), [("http_500", FAILED), ("timeout", GOOD[2])])
@pytest.mark.parametrize("restart", [False, True])
def test_a_try_that_may_have_worked_is_followed_past_its_time(
    bench: ApprovalBench, answer: str, end: tuple[str, str | None], *, restart: bool
) -> None:
    """A request that may have worked is not repeated after the expiry, and its approval ends with
    the event.
    """
    bench.announce()
    bench.imds.starts = False
    bench.imds.failures = [fails(answer)]
    bench.send(bench.approve(exp=bench.seconds + 20))
    bench.clock.advance(20)
    if restart:
        bench.restart()
    bench.poll()
    bench.poll()
    assert (bench.imds.posts, bench.story()) == ([EVENT_ID], [("accepted", None)])
    bench.vanish()
    bench.poll()
    assert bench.story() == [("accepted", None), end]


def test_an_approval_of_an_earlier_version_is_not_posted(bench: ApprovalBench) -> None:
    """A command of 0.2.0, which kept no key and no expiry, fails unless a request may have
    worked.
    """
    bench.announce()
    bench.fail()
    bench.send(bench.approve())
    with bench.store.transaction() as connection:
        connection.execute("UPDATE approvals SET key = NULL, expires = NULL, asked = 'in vain'")
    bench.restart()
    bench.poll()
    assert (bench.imds.posts, bench.story()[1:]) == ([], [("failed", "not_allowed")])


def test_a_post_waits_for_the_next_good_poll(bench: ApprovalBench) -> None:
    """After a failed poll, no POST is sent before the next good one."""
    bench.announce()
    token = bench.approve()
    bench.fail()
    bench.send(token)
    bench.person()
    assert bench.imds.posts == []
    bench.change(Resources=["web_3", "web_4", "web_5", "web_6", "web_7"])
    bench.fail()
    bench.poll()
    assert bench.imds.posts == []
    ends = [(each["state"], each["reason"]) for each in bench.receipts()]
    assert ends.count(("failed", "event_changed")) == 2


def test_a_poll_that_hangs_makes_the_document_old(bench: ApprovalBench) -> None:
    """If the next poll is overdue, no POST is sent before it has succeeded."""
    bench.announce()
    token = bench.approve()
    bench.clock.advance(2.5)
    bench.send(token)
    assert bench.imds.posts == []
    bench.poll()
    assert bench.imds.posts == [EVENT_ID]


def test_what_the_document_may_hide_is_not_posted(bench: ApprovalBench) -> None:
    """An event that is missing beside an entry without an EventId continues, and is not posted
    until a document shows it.
    """
    bench.announce()
    hidden = bench.imds.events_now.pop(EVENT_ID)
    bench.imds.events_now["odd"] = {"EventStatus": "Scheduled"}
    bench.poll()
    bench.send(bench.approve())
    assert (bench.imds.posts, bench.story()) == ([], [("accepted", None)])
    bench.imds.events_now = {EVENT_ID: hidden}
    bench.poll()
    assert bench.imds.posts == [EVENT_ID]


def test_an_event_that_is_named_twice_cannot_be_approved(bench: ApprovalBench) -> None:
    """Neither a command nor a person can approve an event with two different entries, and an
    approval that was accepted before fails.
    """
    bench.announce()
    bench.fail()
    bench.send(bench.approve(jti="before"))
    bench.imds.events_now["twin"] = entry(EVENT_ID.lower(), resources=["web_3", "web_4", "web_5"])
    bench.poll()
    bench.send(bench.approve())
    with pytest.raises(LookupError, match="not_approvable"):
        bench.person()
    assert bench.imds.posts == []
    assert bench.story()[1:] == [("failed", "not_approvable"), ("rejected", "not_approvable")]
    data = bench.record()["data"]
    assert data["transition"] == "updated"
    assert sorted(data["event"]["resources"]) == ["web_3", "web_4", "web_5"]


def test_what_is_only_news_cannot_be_approved(bench: ApprovalBench) -> None:
    """Only an event with the status Scheduled can be approved, so Advisory and unknown words are
    rejected.
    """
    bench.announce(status="Advisory", event_type="SpotRebalanceRecommendation")
    bench.send(bench.approve())
    with pytest.raises(LookupError, match="not_approvable"):
        bench.person()
    assert (bench.imds.posts, bench.story()) == ([], [("rejected", "not_approvable")])


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


def test_an_event_that_ended_and_returned_during_a_post_is_a_new_one(bench: ApprovalBench) -> None:
    """A POST for an event that ended and returned does not keep a rule from approving it again."""
    bench.decide_by(Rule(name="mine"))
    bench.imds.starts = False
    bench.announce()

    def slow(event_id: str) -> None:
        told = bench.imds.events_now.pop(EVENT_ID)
        bench.poller.run()
        bench.imds.events_now[EVENT_ID] = told
        bench.clock.advance(1)
        bench.poller.run()

    bench.imds.failures = [slow]
    bench.announce(OTHER_ID)
    assert bench.imds.posts == [EVENT_ID, OTHER_ID]
    bench.poll()
    assert bench.imds.posts == [EVENT_ID, OTHER_ID, EVENT_ID]
    about = [each["state"] for each in bench.receipts() if each["evt"] == EVENT_ID]
    assert about == ["accepted", "posted", "confirmed", "accepted", "posted"]


@pytest.mark.parametrize("resources", [[], ["web_3", 7], ["web_3", ""], None])
def test_an_event_that_does_not_name_its_vms_cannot_be_approved(
    bench: ApprovalBench, resources: Any
) -> None:
    """Neither a command nor a person can approve an event whose VMs are not all named."""
    bench.announce()
    bench.change(Resources=resources)
    bench.poll()
    bench.send(bench.approve())
    with pytest.raises(LookupError, match="not_allowed"):
        bench.person()
    assert (bench.imds.posts, bench.story()) == ([], [("rejected", "not_allowed")])


@pytest.mark.parametrize("restarts", [False, True])
def test_an_event_that_goes_on_without_this_vm_confirms_nothing(
    bench: ApprovalBench, *, restarts: bool
) -> None:
    """With SEB_SCOPE=self, an event that stops naming this VM ends here, and does not confirm its
    approval.
    """
    bench.scope_self = True
    bench.restart()
    bench.announce(resources=["web_3", "web_4"])
    bench.imds.starts = False
    bench.person()
    assert bench.story()[-1] == ("posted", None)
    bench.change(Resources=["web_4"])
    if restarts:
        assert bench.poller.run()
        bench.restart()
    bench.poll()
    assert bench.story()[-1] == ("failed", "event_changed")


def test_posted_is_not_confirmed_before_it_is_seen(bench: ApprovalBench) -> None:
    """Only the event's own status confirms an approval, because IMDS answers 200 to any request."""
    bench.announce()
    bench.imds.starts = False
    bench.send(bench.approve())
    bench.poll()
    bench.change(NotBefore="Mon, 02 Mar 2026 11:00:00 GMT")
    bench.poll()
    assert GOOD[:2] == bench.story()
    bench.vanish()
    bench.poll()
    assert bench.story() == GOOD


@pytest.mark.parametrize("approve", [False, True])
def test_an_approved_event_that_vanishes_need_not_be_cancelled(
    bench: ApprovalBench, *, approve: bool
) -> None:
    """An approved event that disappears ends as Unknown, because it may have started and ended
    between two polls.
    """
    bench.announce()
    if approve:
        bench.send(bench.approve())
    bench.vanish()
    bench.poll()
    status = bench.record()["data"]["event"]["eventStatus"]
    assert status == ("Unknown" if approve else "Canceled")


def test_without_a_good_poll_no_post_is_sent(bench: ApprovalBench) -> None:
    """While IMDS does not answer, a command waits, and the next poll decides about it."""
    bench.announce()
    token = bench.approve()
    bench.clock.advance(60)
    bench.send(token)
    assert (bench.imds.posts, bench.story()) == ([], [("accepted", None)])
    bench.poll()
    bench.poll()
    assert (bench.imds.posts, bench.story()) == ([EVENT_ID], GOOD)


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


def test_a_command_is_accepted_while_requests_hang(bench: ApprovalBench) -> None:
    """Between the POSTs of two rules a command is verified, because one step sends one request."""
    bench.decide_by(Rule(name="mine"))
    bench.imds.starts = False
    bench.imds.failures = [fails("timeout")] * 9
    bench.announce()
    bench.announce(OTHER_ID)
    bench.announce("E-3", event_type="Reboot", resources=["web_3", "web_4"])
    bench.clock.advance(9)
    bench.poller.run()
    bench.approvals.note_poll()
    del bench.imds.posts[:]
    assert bench.approvals.act_once()
    assert bench.imds.posts == [EVENT_ID]
    token = bench.approve(bench.record("E-3"), jti="one")
    bench.approvals.command(CommandMessage(token=token, channel="mqtt"))
    assert [each["state"] for each in bench.receipts() if each["jti"] == "one"] == ["accepted"]
    assert bench.imds.posts == [EVENT_ID]
    bench.go_on()
    assert bench.imds.posts == [EVENT_ID, OTHER_ID, "E-3"]


def test_a_request_that_always_fails_does_not_starve_another(bench: ApprovalBench) -> None:
    """The request that has been due for the longest time is sent next."""
    bench.imds.starts = False
    bench.announce()
    bench.announce(OTHER_ID)
    bench.imds.failures = [fails("timeout")] * 99
    for each in (EVENT_ID, OTHER_ID):
        bench.approvals.local(each, user="anna")
    for _ in range(20):
        bench.clock.advance(9)
        bench.poller.run()
        bench.approvals.note_poll()
        bench.approvals.act_once()
    assert Counter(bench.imds.posts) == {EVENT_ID: 10, OTHER_ID: 10}


def test_a_poll_counts_until_the_next_one_is_overdue(bench: ApprovalBench) -> None:
    """At any interval, a poll counts until the next one is overdue."""
    bench.interval = 600.0
    bench.restart()
    bench.announce()
    bench.clock.advance(599)
    bench.send(bench.approve())
    assert bench.imds.posts == [EVENT_ID]


def test_rule_and_command_at_once_have_one_effect(bench: ApprovalBench) -> None:
    """An event with a rule and a command is posted once, and both approvals have their own end."""
    bench.decide_by(Rule(name="mine"))
    bench.imds.starts = False
    bench.announce()
    bench.send(bench.approve())
    assert bench.imds.effective == [EVENT_ID]
    bench.change(EventStatus="Started", NotBefore="")
    bench.poll()
    finals = Counter(each["jti"] for each in bench.receipts() if each["state"] == "confirmed")
    assert sorted(finals.values()) == [1, 1]


def test_every_receipt_says_why(bench: ApprovalBench, caplog: pytest.LogCaptureFixture) -> None:
    """The reason of a person or a command is in each receipt and in the log, also over a restart
    and for a refused command; without one it is null.
    """
    caplog.set_level(logging.INFO, logger=open_approvals.__name__)
    bench.announce()
    bench.imds.starts = False
    bench.person(why="CHG0012345")
    bench.restart()
    bench.vanish()
    bench.poll()
    bench.announce(OTHER_ID)
    bench.send(bench.approve(bench.record(OTHER_ID), jti="two", rsn="drained"))
    bench.send(bench.approve(bench.record(OTHER_ID), jti="two", rsn="drained"))
    bench.announce("E-3")
    bench.person("E-3")
    told = [(each["state"], each["rsn"]) for each in bench.receipts()]
    assert told == [
        ("accepted", "CHG0012345"),
        ("posted", "CHG0012345"),
        ("confirmed", "CHG0012345"),
        ("accepted", "drained"),
        ("posted", "drained"),
        ("rejected", "drained"),
        ("accepted", None),
        ("posted", None),
    ]
    right = jsonschema.Draft202012Validator(schema())
    for (body,) in bench.store.read("SELECT body FROM records WHERE type = 'seb.approval.v1'"):
        right.validate(json.loads(body))
    logged = [vars(each).get("why") for each in caplog.records if hasattr(each, "actor")]
    assert logged == [why for state, why in told if state != "rejected"]


@pytest.mark.parametrize("user", ["a\nb", "\ud800", "x" * 1000])
def test_a_user_name_cannot_break_a_receipt(bench: ApprovalBench, user: str) -> None:
    """Any user name of a machine gives a valid receipt."""
    bench.announce()
    bench.person(user=user)
    assert len(bench.receipts()[0]["actor"]) <= len("local:") + 100
    assert bench.receipts()[0]["actor"].isprintable()


def test_a_person_gets_the_reason_of_a_refusal(bench: ApprovalBench) -> None:
    """A person who asks for an unknown or started event gets the reason."""
    with pytest.raises(LookupError, match="unknown_event"):
        bench.person("E-1")
    bench.announce(status="Started", not_before="")
    with pytest.raises(LookupError, match="already_started"):
        bench.person()
    assert (bench.imds.posts, bench.story()) == ([], [])


class TestFullDisk:
    """Nothing is done unless it is written, and nothing is done twice, while the store cannot be
    written.
    """

    def full(self, bench: ApprovalBench, *, full: bool) -> None:
        bench.store.read(f"PRAGMA query_only={'ON' if full else 'OFF'}")

    def test_before_it_is_accepted(self, bench: ApprovalBench) -> None:
        """Nothing is done or settled, and the same message is accepted later."""
        bench.announce()
        token = bench.approve()
        self.full(bench, full=True)
        with pytest.raises(StoreError):
            bench.send(token)
        assert (bench.imds.posts, bench.settled) == ([], 0)
        self.full(bench, full=False)
        bench.send(token)
        assert (bench.imds.posts, bench.settled) == ([EVENT_ID], 1)

    def test_after_imds_has_taken_it(self, bench: ApprovalBench) -> None:
        """A POST is not repeated because its result could not be written."""
        bench.announce()
        bench.imds.starts = False

        def fill(event_id: str) -> None:
            bench.imds.take(event_id)
            self.full(bench, full=True)

        bench.imds.failures = [fill]
        bench.send(bench.approve())
        for _ in range(3):
            bench.clock.advance(1)
            with pytest.raises(StoreError):
                bench.approvals.note_poll()
        self.full(bench, full=False)
        bench.poll()
        assert ([EVENT_ID], GOOD[:2]) == (bench.imds.posts, bench.story())

    def test_while_imds_cannot_be_reached(self, bench: ApprovalBench) -> None:
        """A result that could not be written is written at the next try, and not at each poll."""
        bench.announce()

        def fill(event_id: str) -> None:
            self.full(bench, full=True)
            fails("refused")(event_id)

        bench.imds.failures = [fill]
        bench.send(bench.approve())
        self.full(bench, full=False)
        bench.poll()
        bench.poll()
        assert bench.imds.posts == [EVENT_ID] * 2
        assert bench.story() == GOOD

    def test_a_refusal_that_cannot_be_answered(self, bench: ApprovalBench) -> None:
        """A refused message is not settled, so that its receipt comes later."""
        bench.announce()
        token = bench.approve(aud="x")
        self.full(bench, full=True)
        with pytest.raises(StoreError):
            bench.send(token)
        self.full(bench, full=False)
        bench.send(token)
        assert (bench.story(), bench.settled) == ([("rejected", "wrong_audience")], 1)

    def test_a_command_that_is_not_stored_counts_once(self, bench: ApprovalBench) -> None:
        """A command that is tried several times on a full disk counts once against the rate
        limit.
        """
        bench.announce()
        token = bench.approve()
        self.full(bench, full=True)
        for _ in range(MAX_COMMANDS + 1):
            with pytest.raises(StoreError):
                bench.send(token)
        self.full(bench, full=False)
        bench.send(token)
        assert bench.story()[:1] == [("accepted", None)]


def test_only_one_module_asks_imds_to_start_an_event() -> None:
    """Only one module sends POSTs to IMDS."""
    sources = Path(open_approvals.__file__).parents[1].rglob("*.py")
    asking = [each.name for each in sources if "imds.start(" in each.read_text(encoding="utf-8")]
    assert asking == ["open_approvals.py"]


def test_many_approvals_that_end_at_once_take_turns(bench: ApprovalBench) -> None:
    """While thousands of approvals of one event end, commands are accepted in between."""
    many = 3 * ENDS_AT_ONCE
    bench.imds.starts = False
    bench.decide_by(Rule(name="any"))
    bench.announce()
    for number in range(1, many):
        bench.change(DurationInSeconds=number)
        bench.poll()
    assert len(bench.imds.posts) == many
    bench.decide_by()
    bench.announce("E-2")
    worker = approval_worker_of(bench.approvals, bench.clock)
    bench.change(EventStatus="Started", NotBefore="")
    bench.clock.advance(1)
    assert bench.poller.run()
    tell_poll(worker, answered=True)
    token = bench.approve(bench.record("E-2"))
    taken: list[bool] = []
    assert worker.command(
        CommandMessage(token=token, channel="mqtt", on_settled=lambda: taken.append(True))
    )
    run_once(worker)
    assert taken == [True]
    assert bench.story().count(("confirmed", None)) == 2 * ENDS_AT_ONCE
    while has_work(worker):
        run_once(worker)
    assert bench.story().count(("confirmed", None)) == many
