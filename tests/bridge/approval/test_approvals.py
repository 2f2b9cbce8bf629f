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
from support.commands.approving import Court, fails, populate, scene
from support.commands.control_plane import Signer
from support.commands.forged_claims import FORGERIES
from support.documents.documents import EVENT_ID, OTHER_ID, VM, entry

from bridge.approval import approvals, refusals
from bridge.approval.approvals import MAX_RETRY_SECONDS
from bridge.approval.ledger import Ledger
from bridge.approval.verification import MAX_COMMANDS, SKEW_SECONDS
from bridge.config.approval import Rule
from bridge.store.approvals import Approval
from bridge.store.database import RESET_KEY, StoreError
from bridge.store.opening import FILE_NAME
from sinks.base import CommandMessage
from wire.record import Record, RecordDraft
from wire.schema import schema

GOOD = [("accepted", None), ("posted", None), ("confirmed", None)]


FEW = 5
"""Refusals a minute; the bridge's own limit would only take longer."""


@pytest.fixture
def court(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Court]:
    """A bridge that has seen nothing yet, and no rule."""
    monkeypatch.setattr(refusals, "REFUSALS_A_MINUTE", FEW)
    made = Court(tmp_path)
    yield made
    made.close()


def test_a_command_is_carried_out(court: Court) -> None:
    """Accepted, posted, confirmed: each step is told, and names who asked and who is released."""
    record = court.announce()
    court.send(court.approve(jti="one"))
    assert (court.imds.posts, court.settled) == ([EVENT_ID], 1)
    court.look()
    assert court.story() == GOOD
    vm = court.receipts()[0]["vm"]["vmId"]
    expected = {
        "jti": "one",
        "evt": EVENT_ID,
        "reason": None,
        "actor": "operator@control.example",
        "issuer": "https://control.example",
        "resources": record["data"]["event"]["resources"],
    }
    for receipt in court.receipts():
        assert expected == {name: receipt[name] for name in expected}
        assert vm == VM.vm_id


def test_it_is_stored_before_imds_hears_of_it(court: Court) -> None:
    """When the POST goes out, its cause is on disk and the message settled."""
    seen: list[Any] = []

    def look_at_disk(event_id: str) -> None:
        seen.extend([court.story(), len(court.entries()), court.settled])

    court.announce()
    court.imds.failures = [look_at_disk]
    court.send(court.approve())
    assert seen == [[("accepted", None)], 1, 1]


def test_nothing_forged_causes_a_post(court: Court) -> None:
    """Of all forgeries none is posted, each is counted under its reason, and each one with a good
    signature gets that one receipt.
    """
    populate(court)
    told, at = [], scene(court)
    for forgery in FORGERIES:
        court.clock.advance(60)
        head = court.store.head
        court.send(forgery.make(replace(at, now=court.seconds)), retained=forgery.retained)
        told.append(court.story(after=head))
    assert [
        [("rejected", forgery.reason)] if forgery.answered else [] for forgery in FORGERIES
    ] == told
    assert (court.imds.posts, court.entries()) == ([], [])
    assert Counter(forgery.reason for forgery in FORGERIES) == court.refused()
    assert len(FORGERIES) == court.settled
    right = jsonschema.Draft202012Validator(schema())
    for (body,) in court.store.read("SELECT body FROM records WHERE type = 'seb.approval.v1'"):
        right.validate(json.loads(body))


def test_without_rule_and_trust_nothing_causes_a_post(court: Court) -> None:
    """With no rule and no trust file no command counts, good or forged, and no poll approves."""
    populate(court)
    court.trust_file = None
    court.restart()
    at = scene(court)
    for token in (at.approve(), at.other.approve(at.soon), *(f.make(at) for f in FORGERIES)):
        court.send(token)
        court.look()
    assert (court.imds.posts, court.story()) == ([], [])
    assert not {"expired", "replayed", "not_allowed"} & court.refused().keys()


@pytest.mark.parametrize(
    "again",
    [
        lambda court, token: court.send(token),
        lambda court, token: court.send(token, channel="pull"),
        lambda court, token: (court.restart(), court.send(token)),
    ],
    ids=["the same channel", "another channel", "after a restart"],
)
@pytest.mark.parametrize("later", [0.0, 1.0])
def test_a_token_acts_once(
    court: Court, again: Callable[[Court, bytes], object], later: float
) -> None:
    """The same token, wherever it comes from, is replayed; also when its event has started."""
    court.announce()
    token = court.approve()
    court.send(token)
    if later:
        court.look(after=later)
    again(court, token)
    court.look()
    assert court.imds.posts == [EVENT_ID]
    assert court.story().count(("rejected", "replayed")) == 1
    assert [each for each in court.story() if each[0] != "rejected"] == GOOD


def test_a_jti_is_its_issuers_own(court: Court) -> None:
    """Two issuers may use one jti; one issuer may not, with whichever of its keys."""
    court.announce()
    court.imds.starts = False
    court.send(court.approve(jti="one"))
    court.send(court.other.approve(court.record(), now=court.seconds, jti="one"))
    court.send(court.curve.approve(court.record(), now=court.seconds, jti="one"))
    assert [state for state, _ in court.story()] == [
        "accepted",
        "posted",
        "accepted",
        "posted",
        "rejected",
    ]
    assert court.imds.effective == [EVENT_ID]


def test_a_token_from_before_a_lost_store_is_replayed(court: Court) -> None:
    """With the store, the memory of used tokens is lost; so all from before count as used."""
    court.announce()
    court.imds.starts = False
    token = court.approve()
    court.send(token)
    court.clock.advance(2)
    court.close()
    for file in court.directory.glob(f"{FILE_NAME}*"):
        file.unlink()
    court.begin()
    assert court.store.remembered(RESET_KEY) is not None
    court.look()
    court.send(token)
    assert court.imds.posts == [EVENT_ID]
    assert court.story() == [("rejected", "replayed")]
    court.look(after=SKEW_SECONDS)
    court.send(court.approve())
    assert court.imds.posts == [EVENT_ID, EVENT_ID]


def test_a_message_that_the_channel_hands_over_again_is_not_answered_again(court: Court) -> None:
    """What a broker repeats after a lost acknowledgement was told already: no refusal follows."""
    court.announce()
    token = court.approve()
    court.send(token)
    court.send(token, redelivered=True)
    assert court.settled == 2
    court.look()
    assert court.story() == GOOD
    assert court.refused() == {"replayed": 1}


def test_a_message_that_was_never_taken_counts_when_it_comes_again(court: Court) -> None:
    """A repetition of what was lost before it was stored is the command itself."""
    court.announce()
    court.send(court.approve(), redelivered=True)
    assert court.imds.posts == [EVENT_ID]


def test_good_commands_have_a_rate(court: Court) -> None:
    """The 31st good command within a minute is told so, is not used up, and good later."""
    court.announce()
    court.imds.starts = False
    tokens = [court.approve(exp=court.seconds + 900) for _ in range(MAX_COMMANDS + 1)]
    for token in tokens:
        court.send(token)
    assert court.story()[-1] == ("rejected", "rate_limited")
    assert len(court.imds.posts) == MAX_COMMANDS == 30
    court.look(after=60)
    court.send(tokens[-1])
    assert court.story()[-1] == ("posted", None)


def test_many_refused_tokens_are_not_all_answered(court: Court) -> None:
    """However many different ones come in a minute, the sinks see so many answers."""
    court.announce()
    for _ in range(FEW + 50):
        court.send(court.approve(exp=court.seconds))
    assert len(court.receipts()) == FEW
    court.clock.advance(60)
    court.send(court.approve(exp=court.seconds))
    assert len(court.receipts()) == FEW + 1


def test_refusals_are_logged_within_limits(court: Court, caplog: pytest.LogCaptureFixture) -> None:
    """A flood makes no flood of lines, whether it is of one token or of many, and no line holds a
    token.
    """
    court.announce()
    token = court.approve(iss="https://elsewhere.example")
    with caplog.at_level(logging.WARNING):
        for _ in range(FEW + 50):
            court.send(token)
        for number in range(FEW + 50):
            court.send(b"junk %d" % number)
    lines = [each for each in caplog.records if getattr(each, "action", "") == "command_refused"]
    assert len(lines) == 2 * FEW
    assert not [each for each in lines if token.decode()[-40:] in str(each.__dict__)]


def test_a_flood_without_a_signature_holds_up_no_answer(court: Court) -> None:
    """Whoever can send anything at all cannot keep the control plane from learning its mistakes."""
    court.announce()
    for number in range(FEW + 10):
        court.send(b"junk %d" % number)
    court.send(court.approve(exp=court.seconds))
    assert court.story() == [("rejected", "expired")]


def test_trouble_with_the_trusted_keys_is_said_once(
    court: Court, caplog: pytest.LogCaptureFixture
) -> None:
    """A trust file that breaks is told when a command needs it, and that it is whole again."""
    assert court.trust_file is not None
    court.announce()
    good = court.trust_file.read_text()
    court.trust_file.write_text("{")
    with caplog.at_level(logging.WARNING):
        court.send(court.approve())
        court.send(court.approve())
        court.trust_file.write_text(good)
        court.send(court.approve())
    actions = [getattr(each, "action", "") for each in caplog.records]
    assert [actions.count(each) for each in ("trust_trouble", "trust_ok")] == [1, 1]
    assert court.refused() == {"unknown_key": 2}
    assert court.imds.posts == [EVENT_ID]


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
def test_imds_is_asked_again(court: Court, reason: str) -> None:
    """Whatever may heal is tried again, with growing pauses, and taken in the end."""
    court.announce()
    court.imds.failures = [fails(reason)] * 3
    court.send(court.approve())
    assert court.story() == [("accepted", None)]
    for _ in range(8):
        court.look()
    assert court.imds.posts == [EVENT_ID] * 4
    assert court.story() == GOOD


def test_pauses_grow_to_a_limit_and_honour_what_imds_asks(court: Court) -> None:
    """1, 2, 4, 5, 5 seconds; or longer, where IMDS says so."""
    court.announce()
    court.imds.failures = [fails("http_500")] * 6 + [fails("http_429", retry_after=9)]
    times: list[float] = []
    court.send(court.approve())
    for _ in range(90):
        before = len(court.imds.posts)
        court.look(after=0.5)
        times += [court.clock.monotonic()] * (len(court.imds.posts) - before)
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
    ],
)
@pytest.mark.parametrize("restart", [False, True])
def test_what_became_of_a_post(
    court: Court, answers: str, then: str, end: tuple[str, str | None], *, restart: bool
) -> None:
    """One end, which says no more than what is known."""
    court.announce()
    court.imds.starts = False
    court.imds.failures = [
        court.imds.lose_answer if each == "lost" else fails(each) for each in answers.split()
    ]
    court.send(court.approve())
    for _ in answers.split()[1:]:
        court.look(after=5)
    if restart:
        court.restart()
    if then == "starts":
        court.change(EventStatus="Started", NotBefore="")
    if then == "is gone":
        court.vanish()
    court.look()
    assert court.story() == [("accepted", None), end]


def test_a_change_meanwhile_ends_the_trying(court: Court) -> None:
    """What was approved is one state of the event; another one is not released."""
    court.announce()
    court.imds.failures = [fails("http_500")] * 9
    court.send(court.approve())
    court.change(Resources=["web_3", "web_4"])
    court.look()
    assert court.story() == [("accepted", None), ("failed", "event_changed")]
    assert len(court.imds.posts) == 1


def during_a_post(court: Court, event_id: str, **fields: Any) -> Callable[[str], None]:
    """A POST that takes so long that a poll sees other words about an event meanwhile."""

    def take(posted: str) -> None:
        court.imds.take(posted)
        court.change(event_id, **fields)
        court.clock.advance(1)
        assert court.poller.run()

    return take


@pytest.mark.parametrize(
    "fields", [{"Resources": ["web_3", "web_4", "web_5"]}, {"EventStatus": "Started"}]
)
def test_a_rule_decides_on_what_is_recorded_when_it_posts(
    court: Court, fields: dict[str, Any]
) -> None:
    """A state that was recorded during the POST of another event is what the rule is asked about,
    and its receipt says that state.
    """
    court.decide_by(Rule(name="mine"))
    court.imds.events_now = {EVENT_ID: entry(), OTHER_ID: entry(OTHER_ID)}
    court.imds.failures = [during_a_post(court, OTHER_ID, **fields)]
    court.look()
    assert court.imds.posts == [EVENT_ID]
    others = [each for each in court.receipts() if each["evt"] == OTHER_ID]
    refused = [("rejected", fields["Resources"])] if "Resources" in fields else []
    assert refused == [(each["state"], each["resources"]) for each in others]


class SlowLedger(Ledger):
    """While an acceptance is written, the bridge polls."""

    court: Court
    meanwhile: dict[str, Any]

    def write(self, approval: Approval, *args: Any, **how: Any) -> None:
        super().write(approval, *args, **how)
        if approval.state == "accepted" and self.meanwhile:
            self.court.change(**self.meanwhile)
            self.meanwhile = {}
            assert self.court.poller.run()


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
    court: Court, how: str, fields: dict[str, Any], reason: str
) -> None:
    """Between the decision and the POST lies a disk: the newest recorded state decides again."""
    court.announce()
    court.rules = [Rule(name="mine")] if how == "rule" else []
    SlowLedger.court, SlowLedger.meanwhile = court, fields
    court.make_ledger = lambda store: SlowLedger(store, court.clock.now())  # type: ignore[method-assign]
    court.restart()
    if how == "rule":
        court.look()
    else:
        court.poller.run()
    if how == "command":
        court.send(court.approve())
    if how == "person":
        court.person()
    assert court.imds.posts == []
    assert court.story()[:2] == [("accepted", None), ("failed", reason)]


def test_a_change_that_is_recorded_and_not_yet_said_holds_the_post(court: Court) -> None:
    """From its commit on a state is the newest, also before the poll that found it has ended."""
    court.announce()
    token = court.approve()
    commit = court.store.commit

    def slow(drafts: Sequence[RecordDraft] = (), **how: Any) -> list[Record]:
        court.store.commit = commit  # type: ignore[method-assign]
        committed = commit(drafts, **how)
        court.send(token)
        return committed

    court.store.commit = slow  # type: ignore[method-assign]
    court.change(Resources=["web_3", "web_4"])
    court.look()
    assert court.imds.posts == []
    assert court.story() == [("accepted", None), ("failed", "event_changed")]


class WaitingLedger(Ledger):
    """The look for the newest record takes its time, once: this happens meanwhile."""

    meanwhile: ClassVar[list[Callable[[], object]]] = []

    def newest_record(self, event: str) -> str | None:
        answer = super().newest_record(event)
        while self.meanwhile:
            self.meanwhile.pop()()
        return answer


@pytest.fixture
def waiting(court: Court) -> Court:
    """Its ledger lets something happen; a rule approves while this VM is the first."""
    court.make_ledger = lambda store: WaitingLedger(store, court.clock.now())  # type: ignore[method-assign]
    WaitingLedger.meanwhile.clear()
    court.decide_by(Rule(name="lead", leader="first", max_resources=2))
    return court


def test_a_poll_that_fails_before_the_post_holds_it(waiting: Court) -> None:
    """What the store is waited for is a poll, perhaps, and that may have failed."""

    def fail() -> None:
        waiting.imds.silent = True
        assert not waiting.poller.run()
        waiting.imds.silent = False

    WaitingLedger.meanwhile.append(fail)
    waiting.announce()
    assert (waiting.imds.posts, waiting.story()) == ([], [("accepted", None)])
    waiting.look()
    assert waiting.imds.posts == [EVENT_ID]


def test_another_order_before_the_post_counts(waiting: Court) -> None:
    """An order is no change that has a record, and says who leads."""

    def reorder() -> None:
        waiting.change(Resources=["web_4", "web_3"])
        assert waiting.poller.run()

    WaitingLedger.meanwhile.append(reorder)
    waiting.announce(resources=("web_3", "web_4"))
    waiting.look()
    assert waiting.imds.posts == []
    assert waiting.story() == [("accepted", None)]


def test_a_key_that_is_taken_out_before_the_post_counts(waiting: Court) -> None:
    """The trust file is read after the store."""
    waiting.announce(resources=("web_4", "web_3"))
    WaitingLedger.meanwhile.append(lambda: waiting.trust(waiting.other))
    waiting.send(waiting.approve())
    waiting.look()
    assert waiting.imds.posts == []
    assert waiting.story() == [("accepted", None), ("failed", "not_allowed")]


def test_a_command_that_expires_before_the_post_counts(waiting: Court) -> None:
    """Its time is looked at after the store was read."""
    waiting.announce(resources=("web_4", "web_3"))
    WaitingLedger.meanwhile.append(lambda: waiting.clock.advance(1))
    waiting.send(waiting.approve(exp=waiting.seconds + 1))
    assert waiting.imds.posts == []
    waiting.look()
    assert waiting.story() == [("accepted", None), ("failed", "expired")]


def test_a_retry_needs_its_rule_still(court: Court) -> None:
    """A rule that the owner took away posts nothing more, although it had decided."""
    court.decide_by(Rule(name="mine"))
    court.imds.failures = [fails("refused")]
    court.announce()
    court.rules = []
    court.restart()
    court.look(after=9)
    assert court.imds.posts == [EVENT_ID]
    assert court.story() == [("accepted", None), ("failed", "not_allowed")]


def test_a_retry_needs_the_acknowledgement_of_the_newest_record(court: Court) -> None:
    """An update that the fingerprint does not show has a record that must be acknowledged too."""
    court.decide_by(Rule(name="after", after=("drain",)))
    court.imds.failures = [fails("refused")]
    court.acknowledged.add(court.announce()["id"])
    court.look()
    assert court.imds.posts == [EVENT_ID]
    court.change(Description="moved")
    court.look(after=9)
    assert court.imds.posts == [EVENT_ID]
    court.acknowledged.add(court.record()["id"])
    court.look()
    assert court.imds.posts == [EVENT_ID] * 2


@pytest.mark.parametrize("instead", ["another key", "another key of that name", "another issuer"])
def test_a_retry_needs_the_key_that_signed_it(court: Court, instead: str) -> None:
    """A key that is taken out is out for what it signed, whatever its issuer keeps, and whatever
    else is called so.
    """
    court.announce()
    court.fail()
    court.send(court.approve())
    assert court.story() == [("accepted", None)]
    court.trust(
        {
            "another key": court.curve,
            "another key of that name": Signer(court.signer.kid),
            "another issuer": Signer(court.signer.kid, issuer="https://other.example"),
        }[instead]
    )
    court.look()
    assert court.imds.posts == []
    assert court.story() == [("accepted", None), ("failed", "not_allowed")]


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("answers", ["", "refused", "refused http_404"])
def test_an_expired_command_is_not_posted(court: Court, answers: str, *, restart: bool) -> None:
    """Past `exp` it has failed, if no try can have worked: after failed polls, after failed tries,
    and after a restart.
    """
    court.announce()
    court.imds.failures = [fails(each) for each in answers.split()]
    if not answers:
        court.fail()
    court.send(court.approve(exp=court.seconds + 20))
    for _ in answers.split()[1:]:
        court.look(after=2)
    posts = list(court.imds.posts)
    court.clock.advance(20)
    if restart:
        court.restart()
    court.look()
    assert court.imds.posts == posts == [EVENT_ID] * len(answers.split())
    assert court.story() == [("accepted", None), ("failed", "expired")]


def test_a_command_expires_while_imds_does_not_answer(court: Court) -> None:
    """Its end is told at its time, not after the outage."""
    court.announce()
    court.fail()
    court.send(court.approve(exp=court.seconds + 20))
    court.fail(after=19)
    assert court.story() == [("accepted", None)]
    court.fail()
    assert court.story() == [("accepted", None), ("failed", "expired")]


@pytest.mark.parametrize(("answer", "end"), [("http_500", FAILED), ("timeout", GOOD[2])])
@pytest.mark.parametrize("restart", [False, True])
def test_a_try_that_may_have_worked_is_followed_past_its_time(
    court: Court, answer: str, end: tuple[str, str | None], *, restart: bool
) -> None:
    """It is not posted again, and has its end with the event."""
    court.announce()
    court.imds.starts = False
    court.imds.failures = [fails(answer)]
    court.send(court.approve(exp=court.seconds + 20))
    court.clock.advance(20)
    if restart:
        court.restart()
    court.look()
    court.look()
    assert (court.imds.posts, court.story()) == ([EVENT_ID], [("accepted", None)])
    court.vanish()
    court.look()
    assert court.story() == [("accepted", None), end]


def test_an_approval_of_an_earlier_version_is_not_posted(court: Court) -> None:
    """A command that 0.2.0 left under way has no key and no `exp`: it has failed, unless a try may
    have worked.
    """
    court.announce()
    court.fail()
    court.send(court.approve())
    with court.store.transaction() as connection:
        connection.execute("UPDATE approvals SET key = NULL, expires = NULL, asked = 'in vain'")
    court.restart()
    court.look()
    assert (court.imds.posts, court.story()[1:]) == ([], [("failed", "not_allowed")])


def test_a_post_waits_for_the_next_good_poll(court: Court) -> None:
    """After one poll that failed, what the last good one showed is no basis for a POST."""
    court.announce()
    token = court.approve()
    court.fail()
    court.send(token)
    court.person()
    assert court.imds.posts == []
    court.change(Resources=["web_3", "web_4", "web_5", "web_6", "web_7"])
    court.fail()
    court.look()
    assert court.imds.posts == []
    ends = [(each["state"], each["reason"]) for each in court.receipts()]
    assert ends.count(("failed", "event_changed")) == 2


def test_a_poll_that_hangs_makes_the_document_old(court: Court) -> None:
    """The last poll went well, and the next one is overdue: the POST waits for it."""
    court.announce()
    token = court.approve()
    court.clock.advance(2.5)
    court.send(token)
    assert court.imds.posts == []
    court.look()
    assert court.imds.posts == [EVENT_ID]


def test_what_the_document_may_hide_is_not_posted(court: Court) -> None:
    """An event that is missing beside an entry without an EventId may be there still: it goes on,
    and no POST asks for it until a document shows it.
    """
    court.announce()
    hidden = court.imds.events_now.pop(EVENT_ID)
    court.imds.events_now["odd"] = {"EventStatus": "Scheduled"}
    court.look()
    court.send(court.approve())
    assert (court.imds.posts, court.story()) == ([], [("accepted", None)])
    court.imds.events_now = {EVENT_ID: hidden}
    court.look()
    assert court.imds.posts == [EVENT_ID]


def test_nobody_approves_an_event_that_is_named_twice(court: Court) -> None:
    """One EventId, in two cases, with two lists of VMs: no command and no person can approve it,
    and what was accepted before has failed.
    """
    court.announce()
    court.fail()
    court.send(court.approve(jti="before"))
    court.imds.events_now["twin"] = entry(EVENT_ID.lower(), resources=["web_3", "web_4", "web_5"])
    court.look()
    court.send(court.approve())
    with pytest.raises(LookupError, match="not_approvable"):
        court.person()
    assert court.imds.posts == []
    assert court.story()[1:] == [("failed", "not_approvable"), ("rejected", "not_approvable")]
    assert court.record()["data"]["transition"] == "scheduled"


def test_what_is_only_news_cannot_be_approved(court: Court) -> None:
    """Azure's Advisory, and any word but Scheduled and those of an event that has begun."""
    court.announce(status="Advisory", event_type="SpotRebalanceRecommendation")
    court.send(court.approve())
    with pytest.raises(LookupError, match="not_approvable"):
        court.person()
    assert (court.imds.posts, court.story()) == ([], [("rejected", "not_approvable")])


def test_a_retry_needs_an_issuer_that_is_trusted_still(court: Court) -> None:
    """A key that is out is out for what it signed; a file that cannot be read decides nothing."""
    assert court.trust_file is not None
    court.announce()
    court.imds.failures = [fails("refused")]
    court.send(court.approve())
    court.trust_file.write_text("{")
    court.look(after=9)
    assert court.story() == [("accepted", None)]
    court.trust(court.other)
    court.look(after=9)
    assert court.imds.posts == [EVENT_ID]
    assert court.story() == [("accepted", None), ("failed", "not_allowed")]


def test_an_event_that_ended_and_returned_during_a_post_is_a_new_one(court: Court) -> None:
    """What was posted for its former life keeps no rule off it."""
    court.decide_by(Rule(name="mine"))
    court.imds.starts = False
    court.announce()

    def slow(event_id: str) -> None:
        told = court.imds.events_now.pop(EVENT_ID)
        court.poller.run()
        court.imds.events_now[EVENT_ID] = told
        court.clock.advance(1)
        court.poller.run()

    court.imds.failures = [slow]
    court.announce(OTHER_ID)
    assert court.imds.posts == [EVENT_ID, OTHER_ID]
    court.look()
    assert court.imds.posts == [EVENT_ID, OTHER_ID, EVENT_ID]
    about = [each["state"] for each in court.receipts() if each["evt"] == EVENT_ID]
    assert about == ["accepted", "posted", "confirmed", "accepted", "posted"]


@pytest.mark.parametrize("resources", [[], ["web_3", 7], ["web_3", ""], None])
def test_nobody_approves_what_does_not_name_its_vms(court: Court, resources: Any) -> None:
    """Who is released must be known: neither a command nor a person can approve without that."""
    court.announce()
    court.change(Resources=resources)
    court.look()
    court.send(court.approve())
    with pytest.raises(LookupError, match="not_allowed"):
        court.person()
    assert (court.imds.posts, court.story()) == ([], [("rejected", "not_allowed")])


def test_posted_is_not_confirmed_before_it_is_seen(court: Court) -> None:
    """IMDS answers 200 to anybody: only the event's own status confirms."""
    court.announce()
    court.imds.starts = False
    court.send(court.approve())
    court.look()
    court.change(NotBefore="Mon, 02 Mar 2026 11:00:00 GMT")
    court.look()
    assert GOOD[:2] == court.story()
    court.vanish()
    court.look()
    assert court.story() == GOOD


@pytest.mark.parametrize("approve", [False, True])
def test_an_approved_event_that_vanishes_need_not_be_cancelled(
    court: Court, *, approve: bool
) -> None:
    """It may have started, and be over, between two looks; without our approval it was not yet
    time for that.
    """
    court.announce()
    if approve:
        court.send(court.approve())
    court.vanish()
    court.look()
    status = court.record()["data"]["event"]["eventStatus"]
    assert status == ("Unknown" if approve else "Canceled")


def test_an_old_look_is_no_ground_for_a_post(court: Court) -> None:
    """While IMDS does not answer, a command is kept; the next look decides what becomes of it."""
    court.announce()
    token = court.approve()
    court.clock.advance(60)
    court.send(token)
    assert (court.imds.posts, court.story()) == ([], [("accepted", None)])
    court.look()
    court.look()
    assert (court.imds.posts, court.story()) == ([EVENT_ID], GOOD)


@pytest.mark.parametrize(
    ("fields", "end"),
    [
        ({"Resources": ["web_3", "web_4"]}, ("failed", "event_changed")),
        ({"EventStatus": "Started", "NotBefore": ""}, ("failed", "already_started")),
    ],
)
def test_what_changed_while_nobody_looked_is_not_approved(
    court: Court, fields: dict[str, Any], end: tuple[str, str]
) -> None:
    """An approval that waited for a look fails where that look finds another event."""
    court.announce()
    token = court.approve()
    court.clock.advance(60)
    court.send(token)
    court.change(**fields)
    court.look()
    assert (court.imds.posts, court.story()) == ([], [("accepted", None), end])


def test_a_command_is_accepted_while_requests_hang(court: Court) -> None:
    """One step sends one request: between the POSTs of two rules a command is verified."""
    court.decide_by(Rule(name="mine"))
    court.imds.starts = False
    court.imds.failures = [fails("timeout")] * 9
    court.announce()
    court.announce(OTHER_ID)
    court.announce("E-3", event_type="Reboot", resources=["web_3", "web_4"])
    court.clock.advance(9)
    court.poller.run()
    court.approvals.polled()
    del court.imds.posts[:]
    assert court.approvals.step()
    assert court.imds.posts == [EVENT_ID]
    token = court.approve(court.record("E-3"), jti="one")
    court.approvals.command(CommandMessage(token=token, channel="mqtt"))
    assert [each["state"] for each in court.receipts() if each["jti"] == "one"] == ["accepted"]
    assert court.imds.posts == [EVENT_ID]
    court.go_on()
    assert court.imds.posts == [EVENT_ID, OTHER_ID, "E-3"]


def test_a_request_that_always_fails_does_not_starve_another(court: Court) -> None:
    """The one that is due for the longest time is next."""
    court.imds.starts = False
    court.announce()
    court.announce(OTHER_ID)
    court.imds.failures = [fails("timeout")] * 99
    for each in (EVENT_ID, OTHER_ID):
        court.approvals.local(each, user="anna")
    for _ in range(20):
        court.clock.advance(9)
        court.poller.run()
        court.approvals.polled()
        court.approvals.step()
    assert Counter(court.imds.posts) == {EVENT_ID: 10, OTHER_ID: 10}


def test_a_slow_poll_is_no_old_look(court: Court) -> None:
    """At any interval a look counts until the next one is overdue."""
    court.interval = 600.0
    court.restart()
    court.announce()
    court.clock.advance(599)
    court.send(court.approve())
    assert court.imds.posts == [EVENT_ID]


def test_rule_and_command_at_once_have_one_effect(court: Court) -> None:
    """An event that a rule is about is approved once, and each cause has its own end."""
    court.decide_by(Rule(name="mine"))
    court.imds.starts = False
    court.announce()
    court.send(court.approve())
    assert court.imds.effective == [EVENT_ID]
    court.change(EventStatus="Started", NotBefore="")
    court.look()
    finals = Counter(each["jti"] for each in court.receipts() if each["state"] == "confirmed")
    assert sorted(finals.values()) == [1, 1]


def test_every_receipt_says_why(court: Court, caplog: pytest.LogCaptureFixture) -> None:
    """The reason of a person or of a command stands in each step, over a restart, and in the log;
    a refused command's too. Without one it is null.
    """
    caplog.set_level(logging.INFO, logger=approvals.__name__)
    court.announce()
    court.imds.starts = False
    court.person(why="CHG0012345")
    court.restart()
    court.vanish()
    court.look()
    court.announce(OTHER_ID)
    court.send(court.approve(court.record(OTHER_ID), jti="two", rsn="drained"))
    court.send(court.approve(court.record(OTHER_ID), jti="two", rsn="drained"))
    court.announce("E-3")
    court.person("E-3")
    told = [(each["state"], each["rsn"]) for each in court.receipts()]
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
    for (body,) in court.store.read("SELECT body FROM records WHERE type = 'seb.approval.v1'"):
        right.validate(json.loads(body))
    logged = [vars(each).get("why") for each in caplog.records if hasattr(each, "actor")]
    assert logged == [why for state, why in told if state != "rejected"]


@pytest.mark.parametrize("user", ["a\nb", "\ud800", "x" * 1000])
def test_a_user_name_cannot_break_a_receipt(court: Court, user: str) -> None:
    """Whatever a machine calls its users, the receipt is one that everybody can read."""
    court.announce()
    court.person(user=user)
    assert len(court.receipts()[0]["actor"]) <= len("local:") + 100
    assert court.receipts()[0]["actor"].isprintable()


def test_a_person_is_told_what_cannot_be_approved(court: Court) -> None:
    """An event that is not there, or has begun, has its reason."""
    with pytest.raises(LookupError, match="unknown_event"):
        court.person("E-1")
    court.announce(status="Started", not_before="")
    with pytest.raises(LookupError, match="already_started"):
        court.person()
    assert (court.imds.posts, court.story()) == ([], [])


class TestFullDisk:
    """A store that takes nothing for a while: nothing is done unwritten, nothing is done twice."""

    def full(self, court: Court, *, full: bool) -> None:
        court.store.read(f"PRAGMA query_only={'ON' if full else 'OFF'}")

    def test_before_it_is_accepted(self, court: Court) -> None:
        """Nothing is done, nothing settled, and the same message is good later."""
        court.announce()
        token = court.approve()
        self.full(court, full=True)
        with pytest.raises(StoreError):
            court.send(token)
        assert (court.imds.posts, court.settled) == ([], 0)
        self.full(court, full=False)
        court.send(token)
        assert (court.imds.posts, court.settled) == ([EVENT_ID], 1)

    def test_after_imds_has_taken_it(self, court: Court) -> None:
        """IMDS is not asked again for what only could not be written down."""
        court.announce()
        court.imds.starts = False

        def fill(event_id: str) -> None:
            court.imds.take(event_id)
            self.full(court, full=True)

        court.imds.failures = [fill]
        court.send(court.approve())
        for _ in range(3):
            court.clock.advance(1)
            with pytest.raises(StoreError):
                court.approvals.polled()
        self.full(court, full=False)
        court.look()
        assert ([EVENT_ID], GOOD[:2]) == (court.imds.posts, court.story())

    def test_while_imds_cannot_be_reached(self, court: Court) -> None:
        """What cannot be noted is tried again at its time, not at each look."""
        court.announce()

        def fill(event_id: str) -> None:
            self.full(court, full=True)
            fails("refused")(event_id)

        court.imds.failures = [fill]
        court.send(court.approve())
        self.full(court, full=False)
        court.look()
        court.look()
        assert court.imds.posts == [EVENT_ID] * 2
        assert court.story() == GOOD

    def test_a_refusal_that_cannot_be_answered(self, court: Court) -> None:
        """It is not settled either, so that its answer comes later."""
        court.announce()
        token = court.approve(aud="x")
        self.full(court, full=True)
        with pytest.raises(StoreError):
            court.send(token)
        self.full(court, full=False)
        court.send(token)
        assert (court.story(), court.settled) == ([("rejected", "wrong_audience")], 1)


def test_nobody_else_asks_imds_to_start_anything() -> None:
    """One module alone tells IMDS to start an event, so that one module can be read for it."""
    sources = Path(approvals.__file__).parents[1].rglob("*.py")
    asking = [each.name for each in sources if "imds.start(" in each.read_text(encoding="utf-8")]
    assert asking == ["approvals.py"]
