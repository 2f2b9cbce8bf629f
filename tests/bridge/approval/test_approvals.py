"""What asks for an approval: commands, persons and rules, from the message to the receipts."""

import json
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from support.commands.approval_bench import (
    ApprovalBench,
    fails,
    populate,
    scene,
)
from support.commands.forged_claims import FORGERIES
from support.documents.documents import EVENT_ID, OTHER_ID, VM, entry

from bridge.approval import open_approvals
from bridge.approval.verification import MAX_COMMANDS, SKEW_SECONDS
from bridge.config.approval import Rule
from bridge.store.database import RESET_KEY, StoreError
from bridge.store.opening import FILE_NAME
from wire.schema import schema

GOOD = [("accepted", None), ("posted", None), ("confirmed", None)]


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
    bench.person(person_reason="CHG0012345")
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
    assert logged == [person_reason for state, person_reason in told if state != "rejected"]


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
