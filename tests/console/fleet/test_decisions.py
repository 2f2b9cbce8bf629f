"""The status of the decision on an event, from receipts, decisions and turns as values."""

from __future__ import annotations

from typing import Any

import pytest
from support.console.decision_cases import AT, command, decision, receipt

from console.fleet.decisions import (
    DecisionStatus,
    decision_status,
    only_hastens_deletion,
    status_of_open,
    with_turn,
)
from console.fleet.values.decision import Decision, DecisionHistory, Receipt
from console.fleet.values.turn import EventTurn


def status(
    *receipts: Receipt,
    made: Decision | None = None,
    event: str = "scheduled",
    fingerprint: str = "sha256:1",
    can_be_asked: bool = True,
) -> DecisionStatus:
    """Return the status of an event for which vm-1 was asked."""
    decided = DecisionHistory(decision=made, commands=(command(),))
    return decision_status(event, fingerprint, receipts, decided, can_be_asked=can_be_asked)


def turn(state: str, **changes: Any) -> EventTurn:
    """Return a turn that ada has asked for."""
    facts: dict[str, Any] = {
        "state": state,
        "since": AT + 3,
        "groups": ("db",),
        "held_by": (),
        "reason": None,
        "actor": "ada",
        "person_reason": "why not",
        "person_may_approve": True,
    }
    return EventTurn(**(facts | changes))


@pytest.mark.parametrize(
    ("event_type", "expected"),
    [("Preempt", True), ("TERMINATE", True), ("Reboot", False), (None, False)],
)
def test_only_events_that_delete_a_vm_take_it_away(event_type: str | None, expected: bool) -> None:
    """An approval of a Preempt or a Terminate, in any case, would only take the VM away sooner."""
    assert only_hastens_deletion(event_type) == expected


def test_a_decision_is_due_while_a_vm_of_a_scheduled_event_can_be_asked() -> None:
    """Without a decision, one is due only while the event is scheduled and a VM can be asked."""
    assert status().state == "due"
    assert status(can_be_asked=False).state == "none"
    assert status(event="started").state == "none"
    assert status(event="ended").state == "none"


@pytest.mark.parametrize("outcome", ["failed", "rejected", "unanswered"])
def test_after_an_approval_without_success_a_decision_is_due_again(outcome: str) -> None:
    """After an approval without success a decision is due again, with who tried and why it
    failed.
    """
    made = decision(state="over", outcome=outcome, outcome_reason="expired", over_at=AT + 9)
    assert status(made=made) == DecisionStatus(
        state="due", by="ada", reason=f"{outcome}: expired", at=AT + 9
    )
    overtaken = decision(state="over", outcome="overtaken", outcome_reason="changed")
    assert status(made=overtaken) == DecisionStatus(state="due")


def test_a_confirmation_is_an_approval_whatever_else_is_known() -> None:
    """A confirmation of a VM, or of the decision if the receipt was lost, is an approval, also
    after the event has ended.
    """
    own = status(receipt("confirmed", after=4), made=decision(), event="ended")
    assert own == DecisionStatus(state="approved", by="ada", reason="why not", at=AT)
    rule = status(receipt("confirmed", jti="a rule's", actor="rule:nightly", after=4))
    assert rule == DecisionStatus(state="approved", by="rule:nightly", reason=None, at=AT + 4)
    lost = status(made=decision(state="over", outcome="confirmed"))
    assert (lost.state, lost.by) == ("approved", "ada")


def test_an_approval_is_under_way_from_the_decision_to_its_end() -> None:
    """An open approval, or one that a VM has begun by itself, is under way until the event is
    over.
    """
    assert status(made=decision()).state == "approving"
    begun = receipt("accepted", jti="a rule's", actor="rule:nightly")
    assert (status(begun).state, status(begun).by) == ("approving", "rule:nightly")
    assert status(begun, event="ended").state == "none"
    assert status(begun, receipt("failed", jti="a rule's", after=2)).state == "due"


def test_a_receipt_of_a_vm_that_was_not_asked_confirms_no_command() -> None:
    """Another VM cannot confirm the command of the VM that was asked."""
    assert status(receipt("confirmed", vm_id="vm-2", jti="jti of vm-1")).state == "due"


def test_an_event_that_was_left_is_left_as_long_as_it_has_not_changed() -> None:
    """An event that a person left is shown as left while it is as it was, and after it has started;
    after a change a decision is due again.
    """
    left = decision(kind="leave")
    assert status(made=left).state == "left"
    assert status(made=left, fingerprint="sha256:2").state == "due"
    assert status(made=left, event="started", fingerprint="sha256:2").state == "left"
    over = decision(kind="leave", state="over", outcome="left")
    assert status(made=over, event="ended").state == "left"
    assert status(made=over).state == "left"  # it is back as it was
    assert status(made=over, fingerprint="sha256:2").state == "due"


def test_the_first_of_two_persons_waits_for_the_second_about_the_same_state() -> None:
    """The first person's approval waits for a second one as long as the event has not changed."""
    first = decision(state="second")
    assert (status(made=first).state, status(made=first).by) == ("second", "ada")
    assert status(made=first, fingerprint="sha256:2").state == "due"
    assert status(made=first, event="started").state == "none"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "approving"),
        ({"kind": "leave"}, "left"),
        ({"state": "second"}, "second"),
        ({"state": "over"}, None),
    ],
)
def test_the_status_of_an_open_decision(changes: dict[str, Any], expected: str | None) -> None:
    """An open decision has a status by its kind; one that is over has none."""
    assert status_of_open(decision(**changes)) == expected
    assert status_of_open(None) is None


DUE = DecisionStatus(state="due")
SECOND = DecisionStatus(state="second", by="ada")
USUAL = {"is_grouped": True, "can_prepare": True, "has_latest_groups": True}


@pytest.mark.parametrize(
    ("given", "held", "facts", "expected"),
    [
        (DecisionStatus(state="left"), turn("preparing"), {}, "left"),
        (DUE, None, {}, "none"),
        (DUE, None, {"is_grouped": False}, "due"),
        (DUE, turn("over"), {}, "none"),
        (SECOND, None, {}, "second"),
        (DUE, turn("preparing"), {}, "approving"),
        (SECOND, turn("prepared"), {}, "approving"),
        (SECOND, turn("waiting"), {"can_prepare": False}, "second"),
        (DUE, turn("waiting"), {}, "due"),
        (DUE, turn("failed"), {}, "due"),
        (DUE, turn("waiting"), {"can_prepare": False}, "none"),
        (DUE, turn("waiting", person_may_approve=False), {}, "none"),
        (DUE, turn("forced"), {}, "none"),
        (DUE, turn("away"), {}, "none"),
        (DUE, turn("waiting"), {"has_latest_groups": False}, "none"),
        (DUE, None, {"is_grouped": False, "has_latest_groups": False}, "none"),
        (SECOND, None, {"has_latest_groups": False}, "second"),
    ],
)
def test_a_decision_on_an_event_of_a_group_is_due_only_in_its_turn(
    given: DecisionStatus, held: EventTurn | None, facts: dict[str, bool], expected: str
) -> None:
    """A decision on an event of a group is due only if a person may approve it now and its VMs can
    prepare; while they prepare, the event is being approved. At a console with outdated groups,
    which refuses it, nothing is due.
    """
    found = with_turn(given, held, **(USUAL | facts))
    assert found.state == expected


def test_who_asked_for_a_turn_approves_while_its_vms_prepare() -> None:
    """While the VMs of an event prepare, the person who asked for the turn is shown, with reason
    and time.
    """
    found = with_turn(DUE, turn("preparing"), **USUAL)
    assert found == DecisionStatus(state="approving", by="ada", reason="why not", at=AT + 3)
