"""Deciding over HTTP, against a real console: who may, about what, and what is audited."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import requests
from sqlalchemy import text
from support.console.broker import HeldBroker, held
from support.console.deciding import made_key
from support.console.records import FakeVm
from support.console.stage import ConsoleStage
from support.eventually import eventually

ADA, BOB, EVE = ("ada", "approvers"), ("bob", "approvers"), ("eve", "viewers")
SAME = (
    "JÖRG@example.com",
    "jörg@example.com ",
    "jo\N{COMBINING DIAERESIS}rg@example.com",
    "jörg\N{ZERO WIDTH SPACE}@example.com",
    "jörg\N{VARIATION SELECTOR-16}@example.com",
    "jörg\N{HANGUL FILLER}@example.com",
    "\N{FULLWIDTH LATIN SMALL LETTER J}örg@example.com",
    "\N{NO-BREAK SPACE}jörg@example.com",
)
"""What one person could be called besides jörg@example.com."""
LOGIN = {
    "LOGIN__MODE": "proxy",
    "LOGIN__PROXIES": '["127.0.0.1"]',
    "ROLES": json.dumps({"approver": ["group:approvers"], "viewer": ["group:viewers"]}),
}


class DecisionBench:
    """A stage with one VM, an event of its own that is due, and people who come by a proxy."""

    def __init__(self, stage: ConsoleStage, *, names: int = 1) -> None:
        self.stage = stage
        self.broker: HeldBroker = held(stage)
        self.vms = [FakeVm(name=f"web-{n}", scale_set="set") for n in range(names)]
        for vm in self.vms:
            stage.put(vm.heartbeat(now=stage.now))
            stage.takes_commands(vm)
        self.event_id = "E"
        self.announce()

    def announce(self, **changes: Any) -> None:
        """Every VM reports the event, as it is now."""
        told = {
            "resources": [vm.name for vm in self.vms],
            "not_before": self.stage.moment(600),
            "now": self.stage.now,
        }
        self.stage.put(*(vm.event(self.event_id, **{**told, **changes}) for vm in self.vms))

    def event(self, who: tuple[str, str] = ADA) -> dict[str, Any]:
        """The event as the API shows it."""
        url = f"{self.stage.url}/api/v1/events/{self.event_id}"
        found: dict[str, Any] = self.stage.http.get(url, headers=self.as_(who), timeout=20).json()
        return found

    @staticmethod
    def as_(who: tuple[str, str]) -> dict[str, bytes]:
        """The headers of a proxy."""
        return {"X-Forwarded-User": who[0].encode(), "X-Forwarded-Groups": who[1].encode()}

    def decide(
        self,
        who: tuple[str, str] = ADA,
        *,
        to: str = "approve",
        fingerprint: str | None = None,
        reason: str = "why not",
    ) -> requests.Response:
        """Send a decision about the event as it is now, or of a fingerprint."""
        seen = self.event()["fingerprint"] if fingerprint is None else fingerprint
        return self.stage.http.post(
            f"{self.stage.url}/api/v1/events/{self.event_id}/{to}",
            json={"fingerprint": seen, "reason": reason},
            headers=self.as_(who),
            timeout=20,
        )

    def audited(self) -> list[dict[str, Any]]:
        """The audit's rows about events."""
        url = f"{self.stage.url}/api/v1/audit?limit=1000"
        answer = self.stage.http.get(url, headers=self.as_(ADA), timeout=20)
        rows = [json.loads(line) for line in answer.text.splitlines()]
        return [row for row in rows if "eventId" in row]

    def state(self) -> str:
        """How the decision stands."""
        word: str = self.event()["decision"]["state"]
        return word


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A private key."""
    return made_key(tmp_path_factory.mktemp("keys"))[0]


@pytest.fixture
def stage(tmp_path: Path, key: Path, request: pytest.FixtureRequest) -> Iterator[ConsoleStage]:
    """A console with a key and a login; further settings come from the test."""
    more = getattr(request, "param", {})
    with ConsoleStage(tmp_path, **{"KEY": str(key), **LOGIN, **more}) as running:
        yield running


@pytest.fixture
def bench(stage: ConsoleStage) -> DecisionBench:
    """One event of one VM."""
    return DecisionBench(stage)


def test_approving_sends_one_token_with_the_name_on_it(bench: DecisionBench) -> None:
    """202 with the jti; the token says who, why, which event in which state, and for which VM."""
    seen = bench.event()
    assert seen["decision"]["state"] == "due"
    answer = bench.decide(reason="window 7")
    assert (answer.status_code, answer.json()["state"]) == (202, "approving")
    eventually(lambda: len(bench.broker.sent) == 1, what="the command")
    (message,) = bench.broker.sent
    claims = bench.broker.claims(message)
    assert message.topic == f"seb/v1/default/vm/{bench.vms[0].vm_id}/command"
    assert not message.retain
    assert claims["jti"] == answer.json()["jti"]
    assert (claims["sub"], claims["rsn"], claims["act"]) == ("ada", "window 7", "approve")
    assert (claims["evt"], claims["evh"]) == ("E", seen["fingerprint"])
    assert claims["aud"] == f"urn:seb:vm:{bench.vms[0].vm_id}"
    assert message.expiry is not None
    assert int(claims["exp"]) - int(claims["iat"]) - 1 <= message.expiry <= 60
    assert bench.event()["decision"] | {"at": None} == {
        "state": "approving",
        "by": "ada",
        "reason": "window 7",
        "at": None,
    }
    (row,) = bench.audited()
    assert (row["actor"], row["action"], row["eventId"]) == ("ada", "approve", "E")
    assert (row["jti"], row["fingerprint"]) == (claims["jti"], seen["fingerprint"])


def test_an_event_is_decided_by_its_id_in_any_case(bench: DecisionBench) -> None:
    """As somebody copied it from elsewhere: what is decided, signed, taken and audited is of the
    event, under its id as a VM wrote it, and its page has the form of it.
    """
    stage, bench.event_id = bench.stage, "e"
    assert bench.event()["eventId"] == "E"
    assert bench.decide(to="leave").status_code == 200
    assert bench.state() == "left"
    assert bench.decide().status_code == 202
    eventually(lambda: len(bench.broker.sent) == 1, what="the command")
    assert bench.broker.claims(bench.broker.sent[0])["evt"] == "E"
    assert bench.state() == "approving"
    answer = stage.http.post(
        f"{stage.url}/api/v1/events/e/take",
        json={"minutes": 5},
        headers=bench.as_(ADA),
        timeout=20,
    )
    assert (answer.status_code, answer.json()["takenBy"]) == (200, "ada")
    assert [row["eventId"] for row in bench.audited()] == ["E", "E"]
    for path in ("events/e", "audit?event=e"):
        page = stage.http.get(f"{stage.url}/{path}", headers=bench.as_(ADA), timeout=20)
        assert page.status_code == 200
        assert "why not" in page.text


def test_what_has_changed_is_not_signed(bench: DecisionBench) -> None:
    """409 with the event as it is now; the attempt is audited and nothing is sent."""
    old = bench.event()["fingerprint"]
    bench.announce(transition="updated", not_before=bench.stage.moment(1200))
    answer = bench.decide(fingerprint=old)
    assert answer.status_code == 409
    assert answer.json()["fingerprint"] == bench.event()["fingerprint"] != old
    assert answer.json()["jti"] is None
    assert [row["action"] for row in bench.audited()] == ["refused"]
    assert bench.state() == "due"
    assert bench.broker.sent == []


def test_of_a_flood_of_refused_decisions_few_are_rows(bench: DecisionBench) -> None:
    """The audit is kept for ever: a program that asks again and again does not fill it."""
    for number in range(80):
        assert bench.decide(fingerprint=f"sha256:{number}").status_code == 409
        assert bench.decide(fingerprint="sha256:old").status_code == 409
    rows = bench.audited()
    assert 55 < len(rows) < 65
    assert {row["action"] for row in rows} == {"refused"}
    assert sum(row.get("unwritten", 0) for row in rows) >= 50


@pytest.mark.parametrize("to", ["approve", "leave"])
def test_what_is_being_approved_is_not_approved_again(bench: DecisionBench, to: str) -> None:
    """409 with the same jti, for one person and another; one token was sent."""
    jti = bench.decide().json()["jti"]
    for who in (ADA, BOB):
        answer = bench.decide(who, to=to)
        assert (answer.status_code, answer.json()["jti"]) == (409, jti)
        assert answer.json()["decision"]["state"] == "approving"
    eventually(lambda: bench.broker.sent != [], what="the command")
    assert bench.broker.jtis == [jti]


def test_what_a_rule_has_begun_is_not_approved_again(bench: DecisionBench) -> None:
    """A VM that goes on by itself would POST twice; the answer names its approval."""
    vm = bench.vms[0]
    bench.stage.put(vm.receipt("E", "accepted", jti="by-rule", actor="rule:quick"))
    answer = bench.decide()
    assert (answer.status_code, answer.json()["jti"]) == (409, "by-rule")
    assert answer.json()["decision"]["by"] == "rule:quick"


def test_a_vm_that_the_event_does_not_name_stops_nothing(bench: DecisionBench) -> None:
    """A receipt about the event from any other VM neither approves nor blocks it."""
    stranger = FakeVm(name="stranger", group="other")
    bench.stage.put(stranger.receipt("E", "accepted", jti="x", actor="rule:evil"))
    assert bench.decide().status_code == 202


def test_a_vm_that_the_event_does_not_name_confirms_nothing(bench: DecisionBench) -> None:
    """Neither by the jti of a command that was another VM's, nor in the name of a rule."""
    jti = bench.decide().json()["jti"]
    stranger = FakeVm(name="stranger", group="other")
    for name in (jti, "other"):
        bench.stage.put(stranger.receipt("E", "confirmed", jti=name, actor="ada"))
    assert bench.state() == "approving"


def test_an_event_that_comes_back_is_not_approved_by_what_was_before(
    bench: DecisionBench,
) -> None:
    """It was confirmed because the event had gone; now that it is Scheduled again it is due."""
    jti, vm = bench.decide().json()["jti"], bench.vms[0]
    for state in ("accepted", "posted"):
        bench.stage.put(vm.receipt("E", state, jti=jti, actor="ada", now=bench.stage.now))
    bench.announce(transition="ended", status="Unknown")
    bench.stage.put(vm.receipt("E", "confirmed", jti=jti, actor="ada", now=bench.stage.now))
    eventually(lambda: bench.state() == "approved", what="the confirmation")
    bench.stage.now += timedelta(seconds=20)
    bench.announce()
    assert bench.state() == "due"
    assert bench.decide(BOB).status_code == 202


def test_a_receipt_that_a_broker_lost_leaves_nothing_open(bench: DecisionBench) -> None:
    """Azure took the request and the event has started: it counts as approved, by its person."""
    jti, vm = bench.decide().json()["jti"], bench.vms[0]
    for state in ("accepted", "posted"):
        bench.stage.put(vm.receipt("E", state, jti=jti, actor="ada", now=bench.stage.now))
    bench.announce(transition="started", status="Started", not_before=None)
    assert bench.state() == "approving"
    bench.stage.now += timedelta(seconds=11)
    eventually(lambda: bench.state() == "approved", what="the end")
    decision = bench.event()["decision"]
    assert (decision["by"], decision["reason"]) == ("ada", "why not")
    url = f"{bench.stage.url}/api/v1/commands/{jti}"
    command = bench.stage.http.get(url, headers=bench.as_(ADA), timeout=20).json()
    assert command["state"] == "confirmed"
    steps = [each["state"] for each in command["history"]]
    assert steps == ["sent", "accepted", "posted", "confirmed"]


def test_while_the_database_is_locked_nothing_is_signed(
    bench: DecisionBench, caplog: pytest.LogCaptureFixture
) -> None:
    """503 after some seconds, if another program holds the database; then it works again."""
    with bench.stage.console.database.writing.begin() as connection:
        connection.execute(text("SELECT 1"))
        answer = bench.decide()
        assert answer.status_code == 503
        assert "log says why" in answer.json()["error"]
        assert "locked" in caplog.text
    assert bench.broker.sent == []
    assert bench.decide().status_code == 202


def test_who_may_not_approve_is_refused_and_audited(bench: DecisionBench) -> None:
    """403 for a viewer, whose name is in the audit; 404 for no event; nothing is sent."""
    answer = bench.decide(EVE)
    assert answer.status_code == 403
    rows = [(row["actor"], row["action"]) for row in bench.audited()]
    assert rows == [("eve", "refused")]
    bench.event_id = "NONE"
    assert bench.decide(fingerprint="sha256:1").status_code == 404
    assert bench.broker.sent == []


@pytest.mark.parametrize(
    "reason", ["", " ", "two\nlines", "x" * 301, "\u202e", "nul\0", "\ud800"], ids=repr
)
def test_a_reason_is_one_line(bench: DecisionBench, reason: str) -> None:
    """422 without one, or with one that could not stand in a token."""
    assert bench.decide(reason=reason).status_code == 422
    assert bench.state() == "due"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b'{"fingerprint": "x"}',
        b'{"fingerprint": 1, "reason": "x"}',
        b'{"fingerprint": "x", "reason": "x", "vmId": "x"}',
        b"[" * 9000,
        b'{"fingerprint": "x", "reason": "x", "reason": "y"}',
    ],
    ids=range(8),
)
def test_a_body_of_another_shape_is_refused(bench: DecisionBench, body: bytes) -> None:
    """422, or 413 for one that is too large."""
    url = f"{bench.stage.url}/api/v1/events/E/approve"
    answer = bench.stage.http.post(url, data=body, headers=bench.as_(ADA), timeout=20)
    assert answer.status_code in (413, 422)


def test_leaving_is_a_decision_that_can_be_changed(bench: DecisionBench) -> None:
    """Left with a reason; the same again is no new decision; approving takes its place."""
    answer = bench.decide(to="leave", reason="it can wait")
    assert (answer.status_code, answer.json()["state"]) == (200, "left")
    assert bench.decide(to="leave").status_code == 200
    decision = bench.event()["decision"]
    assert (decision["state"], decision["reason"]) == ("left", "it can wait")
    assert bench.decide().status_code == 202
    assert [row["action"] for row in bench.audited()] == ["leave", "approve"]


def test_what_was_left_is_due_again_if_it_changes(bench: DecisionBench) -> None:
    """A person left what there was, and not what has become of it."""
    bench.decide(to="leave")
    bench.announce(transition="updated", not_before=bench.stage.moment(1200))
    eventually(lambda: bench.state() == "due", what="due again")


def test_without_a_vm_to_ask_nothing_is_approved(bench: DecisionBench) -> None:
    """409 with words, if no VM that it names is heard and takes commands."""
    vm = bench.vms[0]
    bench.stage.put(vm.stopped(now=bench.stage.now))
    answer = bench.decide()
    assert answer.status_code == 409
    assert "takes commands" in answer.json()["error"]


def test_without_a_key_nothing_is_approved(tmp_path: Path) -> None:
    """503 says which setting is missing; leaving needs no key."""
    with ConsoleStage(tmp_path, **LOGIN) as running:
        bench = DecisionBench(running)
        answer = bench.decide()
        assert answer.status_code == 503
        assert "SEB_CONSOLE_KEY" in answer.json()["error"]
        assert bench.decide(to="leave").status_code == 200


@pytest.mark.parametrize("stage", [{"APPROVAL__FOUR_EYES": "2"}], indirect=True)
class TestFourEyes:
    """From two named VMs on, a second person is needed."""

    def test_a_second_person_completes_it(self, stage: ConsoleStage) -> None:
        """The first alone sends nothing, however often; the second's name is in the token."""
        bench = DecisionBench(stage, names=2)
        for _ in range(2):
            answer = bench.decide(ADA)
            assert (answer.status_code, answer.json()) == (202, {"jti": None, "state": "second"})
        assert bench.event()["decision"]["state"] == "second"
        assert bench.broker.sent == []
        answer = bench.decide(BOB, reason="I agree")
        assert (answer.status_code, answer.json()["state"]) == (202, "approving")
        eventually(lambda: len(bench.broker.sent) == 1, what="the command")
        claims = bench.broker.claims(bench.broker.sent[0])
        assert (claims["sub"], claims["rsn"]) == ("bob", "I agree")
        rows = [(row["actor"], row["action"], row.get("firstActor")) for row in bench.audited()]
        assert rows == [("ada", "approve_first", None), ("bob", "approve", "ada")]
        assert bench.event()["decision"]["by"] == "ada, bob"

    @pytest.mark.parametrize("name", SAME)
    def test_nobody_is_their_own_second_person(self, stage: ConsoleStage, name: str) -> None:
        """Names are compared as people read them."""
        bench = DecisionBench(stage, names=2)
        assert bench.decide(("jörg@example.com", "approvers")).json()["state"] == "second"
        answer = bench.decide((name, "approvers"))
        if answer.status_code == 202:
            assert answer.json() == {"jti": None, "state": "second"}
        else:  # it is no name that a provider can give
            assert answer.status_code in (401, 403)
        assert bench.broker.sent == []
        assert bench.decide(BOB).json()["state"] == "approving"

    def test_a_changed_event_voids_the_first(self, stage: ConsoleStage) -> None:
        """The second person's approval of what it has become is a first one."""
        bench = DecisionBench(stage, names=2)
        bench.decide(ADA)
        bench.announce(transition="updated", not_before=stage.moment(1200))
        assert bench.decide(BOB).json() == {"jti": None, "state": "second"}
        assert bench.decide(ADA).json()["state"] == "approving"

    def test_a_small_event_needs_one(self, stage: ConsoleStage) -> None:
        """Below the number, one person is enough."""
        assert DecisionBench(stage).decide().json()["state"] == "approving"


def test_without_the_audit_nothing_is_signed(
    bench: DecisionBench, caplog: pytest.LogCaptureFixture
) -> None:
    """If its row cannot be written there is no decision, no command and no token."""
    with bench.stage.console.database.writing.begin() as connection:
        connection.execute(
            text(
                "CREATE TRIGGER full BEFORE INSERT ON audit "
                "BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END"
            )
        )
    for to in ("approve", "leave"):
        answer = bench.decide(to=to)
        assert answer.status_code == 503
        assert "log says why" in answer.json()["error"]
        assert "disk is full" in caplog.text
    assert bench.broker.sent == []
    assert bench.state() == "due"
    with bench.stage.console.database.writing.begin() as connection:
        assert connection.execute(text("SELECT count(*) FROM command")).scalar_one() == 0
        connection.execute(text("DROP TRIGGER full"))
    assert bench.decide().status_code == 202
    eventually(lambda: len(bench.broker.sent) == 1, what="the command")


def test_what_the_broker_refuses_ends_with_words(bench: DecisionBench) -> None:
    """An ACL that lets the console send no commands: the decision has failed, and says so."""
    bench.broker.refuses = "not authorized (0x87)"
    jti = bench.decide().json()["jti"]
    eventually(lambda: bench.state() == "due", what="due again")
    items = [item for item in bench.event()["timeline"] if item["kind"] == "decision"]
    assert items[-1]["outcome"] == "failed"
    assert "could not be sent" in items[-1]["words"]
    assert bench.event()["decision"]["reason"] == "failed: not_sent"
    url = f"{bench.stage.url}/api/v1/commands/{jti}"
    found = bench.stage.http.get(url, headers=bench.as_(ADA), timeout=20).json()
    assert found["state"] == "unanswered"


@pytest.mark.parametrize(
    ("reason", "words"),
    [("event_changed", "another state"), ("not_allowed", "does not take"), ("expired", "clock")],
)
def test_a_rejection_says_what_to_do(bench: DecisionBench, reason: str, words: str) -> None:
    """The VM refuses, as after a forged record: the decision is over, and the event due again."""
    jti = bench.decide().json()["jti"]
    vm = bench.vms[0]
    bench.stage.put(vm.receipt("E", "rejected", jti=jti, reason=reason, actor="ada"))
    eventually(lambda: bench.state() == "due", what="due again")
    items = [item for item in bench.event()["timeline"] if item["kind"] == "decision"]
    assert items[-1]["outcome"] == "rejected"
    assert words in items[-1]["words"]
    assert bench.event()["decision"]["reason"] == f"rejected: {reason}"


def test_a_command_that_is_not_there(bench: DecisionBench) -> None:
    """404, whatever was asked for."""
    for jti in ("x", "..%2f", "x" * 500):
        url = f"{bench.stage.url}/api/v1/commands/{jti}"
        assert bench.stage.http.get(url, headers=bench.as_(ADA), timeout=20).status_code == 404


def test_the_head_of_the_audit_is_among_the_metrics(bench: DecisionBench) -> None:
    """Its number and hash, so that a copy stands elsewhere; and what is not over, by state."""
    bench.decide()
    (row,) = bench.audited()
    bench.stage.settle()
    metrics = bench.stage.http.get(f"{bench.stage.url}/metrics", timeout=20).text
    assert f'seb_console_audit_head{{hash="{row["hash"]}"}} {row["number"]}.0' in metrics
    assert 'seb_console_decisions_open{state="approving"} 1.0' in metrics
    assert 'seb_console_decisions_open{state="second"} 0.0' in metrics
