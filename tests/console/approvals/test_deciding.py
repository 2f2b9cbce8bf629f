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
from support.console.decision_bench import made_key
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


class DueEvent:
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
        """Have every VM report the event as it is now."""
        fields = {
            "resources": [vm.name for vm in self.vms],
            "not_before": self.stage.moment(600),
            "now": self.stage.now,
        }
        self.stage.put(*(vm.event(self.event_id, **{**fields, **changes}) for vm in self.vms))

    def event(self, who: tuple[str, str] = ADA) -> dict[str, Any]:
        """Return the event as the API shows it."""
        url = f"{self.stage.url}/api/v1/events/{self.event_id}"
        found: dict[str, Any] = self.stage.http.get(url, headers=self.as_(who), timeout=20).json()
        return found

    @staticmethod
    def as_(who: tuple[str, str]) -> dict[str, bytes]:
        """Return the headers of a proxy for a person."""
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
        """Return the audit's rows about events."""
        url = f"{self.stage.url}/api/v1/audit?limit=1000"
        answer = self.stage.http.get(url, headers=self.as_(ADA), timeout=20)
        rows = [json.loads(line) for line in answer.text.splitlines()]
        return [row for row in rows if "eventId" in row]

    def state(self) -> str:
        """Return the state of the decision on the event."""
        word: str = self.event()["decision"]["state"]
        return word


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a new private key."""
    return made_key(tmp_path_factory.mktemp("keys"))[0]


@pytest.fixture
def stage(tmp_path: Path, key: Path, request: pytest.FixtureRequest) -> Iterator[ConsoleStage]:
    """A console with a key and a login; further settings come from the test."""
    more = getattr(request, "param", {})
    with ConsoleStage(tmp_path, **{"KEY": str(key), **LOGIN, **more}) as running:
        yield running


@pytest.fixture
def bench(stage: ConsoleStage) -> DueEvent:
    """One event of one VM."""
    return DueEvent(stage)


def test_approving_sends_one_token_with_the_name_on_it(bench: DueEvent) -> None:
    """An approval is answered 202 with the jti. The token says who asks, why, for which event in
    which state, and for which VM.
    """
    record = bench.event()
    assert record["decision"]["state"] == "due"
    answer = bench.decide(reason="window 7")
    assert (answer.status_code, answer.json()["state"]) == (202, "approving")
    eventually(lambda: len(bench.broker.sent) == 1, what="the command")
    (message,) = bench.broker.sent
    claims = bench.broker.claims(message)
    assert message.topic == f"seb/v1/default/vm/{bench.vms[0].vm_id}/command"
    assert not message.retain
    assert claims["jti"] == answer.json()["jti"]
    assert (claims["sub"], claims["rsn"], claims["act"]) == ("ada", "window 7", "approve")
    assert (claims["evt"], claims["evh"]) == ("E", record["fingerprint"])
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
    assert (row["jti"], row["fingerprint"]) == (claims["jti"], record["fingerprint"])


def test_an_event_is_decided_by_its_id_in_any_case(bench: DueEvent) -> None:
    """A person may write an event's id in any case. The decision, its token, the assignment and the
    audit have the id as a VM wrote it, and the page of that id has the form.
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


def test_what_has_changed_is_not_signed(bench: DueEvent) -> None:
    """A decision on a former state of the event is answered 409 with the event as it is now; the
    attempt is audited and nothing is sent.
    """
    old = bench.event()["fingerprint"]
    bench.announce(transition="updated", not_before=bench.stage.moment(1200))
    answer = bench.decide(fingerprint=old)
    assert answer.status_code == 409
    assert answer.json()["fingerprint"] == bench.event()["fingerprint"] != old
    assert answer.json()["jti"] is None
    assert [row["action"] for row in bench.audited()] == ["refused"]
    assert bench.state() == "due"
    assert bench.broker.sent == []


def test_of_a_flood_of_refused_decisions_few_are_rows(bench: DueEvent) -> None:
    """A program whose decisions are refused again and again adds few rows to the audit, which is
    kept for ever.
    """
    for number in range(80):
        assert bench.decide(fingerprint=f"sha256:{number}").status_code == 409
        assert bench.decide(fingerprint="sha256:old").status_code == 409
    rows = bench.audited()
    assert 55 < len(rows) < 65
    assert {row["action"] for row in rows} == {"refused"}
    assert sum(row.get("unwritten", 0) for row in rows) >= 50


@pytest.mark.parametrize("to", ["approve", "leave"])
def test_what_is_being_approved_is_not_approved_again(bench: DueEvent, to: str) -> None:
    """A second approval, also by another person, is answered 409 with the jti of the first; one
    token is sent.
    """
    jti = bench.decide().json()["jti"]
    for who in (ADA, BOB):
        answer = bench.decide(who, to=to)
        assert (answer.status_code, answer.json()["jti"]) == (409, jti)
        assert answer.json()["decision"]["state"] == "approving"
    eventually(lambda: bench.broker.sent != [], what="the command")
    assert bench.broker.jtis == [jti]


def test_what_a_rule_has_begun_is_not_approved_again(bench: DueEvent) -> None:
    """While a VM approves an event by its rule, a person's approval is refused with the id of that
    approval; otherwise the VM would POST twice.
    """
    vm = bench.vms[0]
    bench.stage.put(vm.receipt("E", "accepted", jti="by-rule", actor="rule:quick"))
    answer = bench.decide()
    assert (answer.status_code, answer.json()["jti"]) == (409, "by-rule")
    assert answer.json()["decision"]["by"] == "rule:quick"


def test_a_vm_that_the_event_does_not_name_stops_nothing(bench: DueEvent) -> None:
    """A receipt from a VM that the event does not name neither approves the event nor prevents an
    approval.
    """
    stranger = FakeVm(name="stranger", group="other")
    bench.stage.put(stranger.receipt("E", "accepted", jti="x", actor="rule:evil"))
    assert bench.decide().status_code == 202


def test_a_vm_that_the_event_does_not_name_confirms_nothing(bench: DueEvent) -> None:
    """A VM that the event does not name cannot confirm an approval, neither by the jti of another
    VM's command nor in the name of a rule.
    """
    jti = bench.decide().json()["jti"]
    stranger = FakeVm(name="stranger", group="other")
    for name in (jti, "other"):
        bench.stage.put(stranger.receipt("E", "confirmed", jti=name, actor="ada"))
    assert bench.state() == "approving"


def test_an_event_that_comes_back_is_not_approved_by_what_was_before(
    bench: DueEvent,
) -> None:
    """An approval that was confirmed because the event had gone does not count once the event is
    Scheduled again: a decision is due.
    """
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


def test_a_receipt_that_a_broker_lost_leaves_nothing_open(bench: DueEvent) -> None:
    """If the last receipt is lost, but Azure took the request and the event has started, the event
    counts as approved by its person.
    """
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
    bench: DueEvent, caplog: pytest.LogCaptureFixture
) -> None:
    """While another program locks the database, a decision is answered 503 after some seconds;
    afterwards it works.
    """
    with bench.stage.console.database.writing.begin() as connection:
        connection.execute(text("SELECT 1"))
        answer = bench.decide()
        assert answer.status_code == 503
        assert "log says why" in answer.json()["error"]
        assert "locked" in caplog.text
    assert bench.broker.sent == []
    assert bench.decide().status_code == 202


def test_who_may_not_approve_is_refused_and_audited(bench: DueEvent) -> None:
    """A viewer is answered 403 and is named in the audit, an unknown event is 404, and nothing is
    sent.
    """
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
def test_a_reason_is_one_line(bench: DueEvent, reason: str) -> None:
    """A decision without a reason, or with one that a token cannot have, is answered 422."""
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
def test_a_body_of_another_shape_is_refused(bench: DueEvent, body: bytes) -> None:
    """A body with other fields is answered 422, and one that is too large 413."""
    url = f"{bench.stage.url}/api/v1/events/E/approve"
    answer = bench.stage.http.post(url, data=body, headers=bench.as_(ADA), timeout=20)
    assert answer.status_code in (413, 422)


def test_leaving_is_a_decision_that_can_be_changed(bench: DueEvent) -> None:
    """A person leaves an event with a reason; the same again is no new decision, and an approval
    replaces it.
    """
    answer = bench.decide(to="leave", reason="it can wait")
    assert (answer.status_code, answer.json()["state"]) == (200, "left")
    assert bench.decide(to="leave").status_code == 200
    decision = bench.event()["decision"]
    assert (decision["state"], decision["reason"]) == ("left", "it can wait")
    assert bench.decide().status_code == 202
    assert [row["action"] for row in bench.audited()] == ["leave", "approve"]


def test_what_was_left_is_due_again_if_it_changes(bench: DueEvent) -> None:
    """A decision is due again if an event that a person left has changed."""
    bench.decide(to="leave")
    bench.announce(transition="updated", not_before=bench.stage.moment(1200))
    eventually(lambda: bench.state() == "due", what="due again")


def test_without_a_vm_to_ask_nothing_is_approved(bench: DueEvent) -> None:
    """If no VM that the event names is heard and takes commands, an approval is answered 409 with a
    sentence.
    """
    vm = bench.vms[0]
    bench.stage.put(vm.stopped(now=bench.stage.now))
    answer = bench.decide()
    assert answer.status_code == 409
    assert "takes commands" in answer.json()["error"]


def test_without_a_key_nothing_is_approved(tmp_path: Path) -> None:
    """Without a key an approval is answered 503 with the missing setting; leaving needs no key."""
    with ConsoleStage(tmp_path, **LOGIN) as running:
        bench = DueEvent(running)
        answer = bench.decide()
        assert answer.status_code == 503
        assert "SEB_CONSOLE_KEY" in answer.json()["error"]
        assert bench.decide(to="leave").status_code == 200


@pytest.mark.parametrize("stage", [{"APPROVAL__FOUR_EYES": "2"}], indirect=True)
class TestFourEyes:
    """From two named VMs on, a second person is needed."""

    def test_a_second_person_completes_it(self, stage: ConsoleStage) -> None:
        """The first person's approval alone sends nothing, however often it is given; the second
        person's name is in the token.
        """
        bench = DueEvent(stage, names=2)
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
        """Two spellings that people read as one name are one person."""
        bench = DueEvent(stage, names=2)
        assert bench.decide(("jörg@example.com", "approvers")).json()["state"] == "second"
        answer = bench.decide((name, "approvers"))
        if answer.status_code == 202:
            assert answer.json() == {"jti": None, "state": "second"}
        else:  # it is no name that a provider can give
            assert answer.status_code in (401, 403)
        assert bench.broker.sent == []
        assert bench.decide(BOB).json()["state"] == "approving"

    def test_a_changed_event_voids_the_first(self, stage: ConsoleStage) -> None:
        """If the event has changed since the first approval, the second person's approval is the
        first one of the new state.
        """
        bench = DueEvent(stage, names=2)
        bench.decide(ADA)
        bench.announce(transition="updated", not_before=stage.moment(1200))
        assert bench.decide(BOB).json() == {"jti": None, "state": "second"}
        assert bench.decide(ADA).json()["state"] == "approving"

    def test_a_small_event_needs_one(self, stage: ConsoleStage) -> None:
        """For an event that names fewer VMs than the setting says, one person is enough."""
        assert DueEvent(stage).decide().json()["state"] == "approving"


def test_without_the_audit_nothing_is_signed(
    bench: DueEvent, caplog: pytest.LogCaptureFixture
) -> None:
    """If the row of the audit cannot be written there is no decision, no command and no token."""
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


def test_what_the_broker_refuses_ends_with_words(bench: DueEvent) -> None:
    """If the broker's ACL refuses the console's commands, the decision fails with a sentence that
    says so.
    """
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
def test_a_rejection_says_what_to_do(bench: DueEvent, reason: str, words: str) -> None:
    """If the VM rejects the command, as after a forged record, the decision is over and the event
    is due again.
    """
    jti = bench.decide().json()["jti"]
    vm = bench.vms[0]
    bench.stage.put(vm.receipt("E", "rejected", jti=jti, reason=reason, actor="ada"))
    eventually(lambda: bench.state() == "due", what="due again")
    items = [item for item in bench.event()["timeline"] if item["kind"] == "decision"]
    assert items[-1]["outcome"] == "rejected"
    assert words in items[-1]["words"]
    assert bench.event()["decision"]["reason"] == f"rejected: {reason}"


def test_a_command_that_is_not_there(bench: DueEvent) -> None:
    """The status of an unknown command is 404, whatever its jti is."""
    for jti in ("x", "..%2f", "x" * 500):
        url = f"{bench.stage.url}/api/v1/commands/{jti}"
        assert bench.stage.http.get(url, headers=bench.as_(ADA), timeout=20).status_code == 404


def test_the_head_of_the_audit_is_among_the_metrics(bench: DueEvent) -> None:
    """The metrics have the number and hash of the audit's head, so that there is a copy elsewhere,
    and the number of open decisions by state.
    """
    bench.decide()
    (row,) = bench.audited()
    bench.stage.settle()
    metrics = bench.stage.http.get(f"{bench.stage.url}/metrics", timeout=20).text
    assert f'seb_console_audit_head{{hash="{row["hash"]}"}} {row["number"]}.0' in metrics
    assert 'seb_console_decisions_open{state="approving"} 1.0' in metrics
    assert 'seb_console_decisions_open{state="second"} 0.0' in metrics
