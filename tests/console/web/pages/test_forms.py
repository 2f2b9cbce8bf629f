"""The content of forms, the differences since a form was made, and the steps of approvals."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import pytest

from console.access.people import Person
from console.config.settings import ConsoleSettings, Role
from console.fleet import outcomes
from console.fleet.differences import Difference, differences
from console.fleet.event_view import DecisionItem, EventDetail, EventItem, Resource, TurnItem
from console.fleet.timeline import TimelineCommand, TimelineEntry, TimelineReceipt
from console.web.pages import (
    approval_attempts,
    decide_page,
    decision_block,
    decision_forms,
    event_page,
    form_fields,
    labels,
)
from console.web.pages.rendering import Renderer

EVENT = EventItem(
    event_id="E",
    scope="sub/group",
    conflicts=[],
    state="scheduled",
    event_status="Scheduled",
    event_type="Freeze",
    event_source="Platform",
    impact="pause",
    not_before=datetime(2026, 3, 2, 2, 29, tzinfo=UTC),
    duration_in_seconds=9,
    description=None,
    fingerprint="sha256:1",
    differing=False,
    resources=[Resource(name=name, vm_id=None, contact=None) for name in ("a", "b\u202e", "a")],
    seen_by=3,
    first_seen_at=0,
    turn=TurnItem(state="none", groups=[], held_by=[], since=None, reason=None),
    decision=DecisionItem(state="none", by=None, reason=None, at=None),
    started_at=None,
    ended_at=None,
    downtime_seconds=None,
    notice_seconds=None,
    taken_by=None,
    taken_until=None,
    tries=[],
)


def test_what_was_seen_survives_the_form() -> None:
    """A form carries all names, with any characters, and nothing that the fingerprint does not
    cover.
    """
    assert form_fields._seen_event(form_fields.written(EVENT)) == form_fields.SeenEvent(
        event_id="E",
        scope="sub/group",
        fingerprint="sha256:1",
        fields={
            "eventType": "Freeze",
            "eventStatus": "Scheduled",
            "notBefore": "2026-03-02T02:29:00Z",
            "durationInSeconds": 9,
            "eventSource": "Platform",
            "resources": ["a", "b\u202e"],
        },
    )
    assert form_fields.written(EVENT).isascii()


def test_a_difference_is_named_field_by_field() -> None:
    """Each changed field is a difference; the order of the VMs is not."""
    before = form_fields.seen_now(EVENT)
    assert differences(before, {**before, "resources": ["b\u202e", "a"]}) == []
    assert differences(before, {**before, "resources": ["a"], "eventType": "Reboot"}) == [
        Difference(field="eventType", before="Freeze", now="Reboot"),
        Difference(field="resources", before=["a", "b\u202e"], now=["a"]),
    ]


@pytest.mark.parametrize(
    "body",
    [
        b"action",
        b"a=b&" * 300,
        b"reason=%ff",
        "reason=\u00e9".encode(),
    ],
)
def test_an_invalid_form_is_refused(body: bytes) -> None:
    """A form with a missing value, with bytes that are not UTF-8, or with too many fields is
    refused.
    """
    with pytest.raises(form_fields.FormError):
        form_fields.parse_fields(body)


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{}", "[" * 9999, '{"eventId": 1, "fingerprint": "f"}'),
        *(
            '{"eventId": "\\ud800", "fingerprint": "f"}',
            '{"eventId": "E", "fingerprint": "\\u0000"}',
        ),
    ],
)
def test_an_event_that_was_not_seen_is_refused(text: str) -> None:
    """A form without an id or a fingerprint is refused."""
    with pytest.raises(form_fields.FormError):
        form_fields._seen_event(text)


@pytest.mark.parametrize(
    "expected",
    [
        *({"notBefore": 5}, {"notBefore": True}, {"durationInSeconds": 10**400}),
        *({"durationInSeconds": float("inf")}, {"durationInSeconds": float("nan")}),
    ],
)
def test_values_that_no_event_has_are_compared_too(expected: dict[str, Any]) -> None:
    """A form with values that no page made shows a difference, and is no error of the console."""
    sent = form_fields._seen_event(json.dumps({"eventId": "E", "fingerprint": "f", **expected}))
    labels = {each.label for each in decision_block.changes(sent, EVENT)}
    assert labels & {"Not before", "Announced interruption"}


def test_a_form_keeps_the_order_of_its_fields() -> None:
    """The fields of a form are read in the order in which the browser sent them."""
    body = f"seen={quote('{1}')}&reason=why+not%0D%0Areally&seen=2".encode()
    assert form_fields.parse_fields(body) == [
        ("seen", "{1}"),
        ("reason", "why not\r\nreally"),
        ("seen", "2"),
    ]


@pytest.mark.parametrize(
    ("reason", "problem"),
    [
        ("patching", None),
        ("", "Give a reason"),
        ("x" * 301, "at most 300"),
        ("a\u202eb", "invisible characters"),
        ("a\x00b", "invisible characters"),
    ],
)
def test_a_reason_is_one_readable_line(reason: str, problem: str | None) -> None:
    """A reason that a token could not carry is refused before anything is written."""
    found = form_fields.reason_problem(reason)
    assert found is None if problem is None else problem in (found or "")


def commands(*items: tuple[str, str]) -> list[TimelineEntry]:
    """Return the commands of a timeline as jti and state."""
    return [
        TimelineCommand(
            kind="command",
            at=1,
            jti=jti,
            event_id="E",
            vm_id="v",
            channel="web",
            act="approve",
            state=state,
        )
        for jti, state in items
    ]


def receipts(*items: tuple[str, str, str | None], by: str = "mia") -> list[TimelineEntry]:
    """Return the receipts of a timeline as jti, state and reason."""
    return [
        TimelineReceipt(
            kind="receipt",
            at=2,
            id=f"{jti}-{state}",
            vm_id="v",
            event_id="E",
            jti=jti,
            state=state,
            reason=reason,
            by=by,
            rsn=None,
            act="approve",
        )
        for jti, state, reason in items
    ]


def marks(attempt: approval_attempts.Attempt) -> list[tuple[str, str]]:
    """Return the steps of an attempt."""
    return [(step.label, step.mark) for step in attempt.steps]


def test_the_steps_of_an_approval_are_seen_as_they_come() -> None:
    """The steps show what came, the present state, and what is still to come."""
    sent = commands(("1", "sent"))
    (attempt,) = approval_attempts.attempts(sent + receipts(("1", "accepted", None)), str.upper)
    assert attempt.vm == "V"
    assert marks(attempt) == [
        ("sent", "done"),
        ("accepted by the VM", "now"),
        ("given to Azure", "open"),
        ("confirmed", "open"),
    ]
    more = sent + receipts(*((("1", state, None)) for state in ("accepted", "posted", "confirmed")))
    (attempt,) = approval_attempts.attempts(more, str.upper)
    assert {mark for _, mark in marks(attempt)} == {"done"}
    assert attempt.ending is None


def test_an_attempt_that_ended_badly_says_why_and_what_to_do() -> None:
    """A failed attempt has its reason and a remedy; a second copy of the command changes
    nothing.
    """
    sent = commands(("1", "sent"))
    items = sent + receipts(("1", "rejected", "unknown_key"), ("1", "rejected", "replayed"))
    (attempt,) = approval_attempts.attempts(items, str.upper)
    assert marks(attempt) == [("sent", "done"), ("rejected", "bad")]
    assert attempt.ending is not None
    assert "does not know the key" in attempt.ending[0]
    assert "seb console trust" in attempt.ending[1]


def test_the_next_vm_is_an_attempt_of_its_own() -> None:
    """If the first VM does not answer, the next one is a second attempt, and both are shown."""
    items = [
        *commands(("1", "sent"), ("1", "unanswered"), ("2", "sent")),
        *receipts(("2", "confirmed", None)),
    ]
    first, second = approval_attempts.attempts(items, str.upper)
    assert marks(first) == [("sent", "done"), ("no answer", "bad")]
    assert second.state == "confirmed"


@pytest.mark.parametrize(
    ("actor", "told_as"),
    [
        ("rule:patching", "the rule patching of the VM"),
        ("local:mia", "mia on the VM"),
        ("person:mia@example.com", "mia@example.com, on the VM"),
        ("robot", "robot, by another program that the VM trusts"),
    ],
)
def test_a_decision_of_others_shows_as_what_it_is(actor: str, told_as: str) -> None:
    """Rules, persons on a VM and other control planes are named as such; a plain name is a person
    of this console.
    """
    (attempt,) = approval_attempts.attempts(receipts(("1", "posted", None), by=actor), str)
    assert attempt.who == told_as
    assert marks(attempt)[0] == ("accepted by the VM", "done")
    assert labels.actor_label(actor, here=True) == actor


def test_every_reason_of_the_contract_says_what_to_do() -> None:
    """Every documented reason has a remedy, and an unknown one is shown unchanged."""
    reasons = [
        "too_large",
        "retained",
        "malformed",
        "unknown_key",
        "bad_signature",
        "wrong_audience",
        "expired",
        "not_yet_valid",
        "lifetime_too_long",
        "not_allowed",
        "replayed",
        "unknown_event",
        "event_changed",
        "already_started",
        "rate_limited",
        "imds_refused",
        "imds_unreachable",
    ]
    for reason in reasons:
        why, remedy = outcomes.ending("rejected", reason) or ("", "")
        assert (why[-1], remedy[-1], reason in why) == (".", ".", False)
    assert outcomes.ending("failed", "new_word") == (
        "new_word",
        "The VM's log says why: `journalctl -u seb` on it.",
    )
    assert outcomes.ending("unanswered", None) is not None
    assert outcomes.ending("confirmed", None) is None


@pytest.mark.parametrize(("role", "forms_shown"), [("approver", 1), ("viewer", 0)])
def test_a_turn_that_does_not_end_has_a_form_to_end_it(role: Role, forms_shown: int) -> None:
    """A person who may decide has a form to end a stuck turn, which names the event."""
    turn = TurnItem(state="stuck", groups=["etcd"], held_by=[], since=1, reason=None)
    event = EventDetail(**{**dict(EVENT), "turn": turn}, witnesses=[], timeline=[])
    person = Person(name="ann", roles=frozenset({role}))
    block = decision_block.template_values(
        event, person=person, settings=ConsoleSettings(), has_key=True, name_of=str
    )
    values = event_page.template_values(event, {}, 0.0) | {"decision": block, "siblings": []}
    around = {"path": "/", "troubles": [], "person": person, "can_log_out": False, "is_live": True}
    page = Renderer().answer("event.html", now=0.0, **values, **around).body
    assert bytes(page).count(b'name="action" value="end_turn"') == forms_shown
    assert bytes(page).count(b'name="seen"') == forms_shown


def test_several_events_have_a_limit() -> None:
    """Between one and twenty events can be decided at once, each once."""
    seen = [
        form_fields._seen_event(f'{{"eventId": "E{number}", "fingerprint": "f"}}')
        for number in range(21)
    ]
    assert decision_forms.problem_of(seen[:20]) is None
    assert "At most 20" in (decision_forms.problem_of(seen) or "")
    assert "twice" in (decision_forms.problem_of([seen[0], seen[0]]) or "")
    assert "at least one" in (decision_forms.problem_of([]) or "")


def test_a_filter_survives_its_own_url() -> None:
    """An empty filter is not in the URL."""
    chosen = decide_page.Filter.of({"site": " a&b ", "q": "web", "other": "x"})
    assert chosen.query == "?site=a%26b&q=web"
    assert decide_page.Filter().query == ""
