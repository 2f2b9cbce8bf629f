"""The status of the decision on an event, from its state, the reports and the receipts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from console.fleet.commands import is_from_other_vm, under_way
from console.fleet.values.decision import UNDECIDED, Decision, DecisionHistory, Receipt
from console.fleet.values.turn import EventTurn
from wire.event import IMPACT_OF

DecisionStatusName = Literal["due", "second", "left", "approving", "approved", "none"]
MAX_REASON_CHARACTERS: Final = 300
"""The limit of a reason, in characters; a token's text may have 512."""
_WITHOUT_EFFECT: Final = ("failed", "rejected", "unanswered")


def only_hastens_deletion(event_type: str | None) -> bool:
    """Check whether an approval would only take the VM away sooner. Such an event is usually left,
    and its decision is not urgent.
    """
    return IMPACT_OF.get((event_type or "").casefold()) == "delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionStatus:
    """The status of a decision; `at`, when it was decided, in seconds since 1970.

    While a decision is due, `by`, `reason` and `at` are those of the last approval without success.
    """

    state: DecisionStatusName
    by: str | None = None
    reason: str | None = None
    at: float | None = None


def decision_status(
    event_state: str,
    fingerprint: str,
    receipts: Sequence[Receipt],
    decided: DecisionHistory = UNDECIDED,
    *,
    can_be_asked: bool,
) -> DecisionStatus:
    """Return the status of the decision on an event, whose newest fingerprint is `fingerprint`.
    `can_be_asked`: a VM that the event names is heard and takes commands.
    """
    not_foreign = [each for each in receipts if not is_from_other_vm(each, decided.commands)]
    return (
        _approval_status(event_state, not_foreign, decided)
        or _person_status(event_state, fingerprint, decided.decision)
        or _undecided_status(event_state, decided.decision, can_be_asked=can_be_asked)
    )


def with_turn(
    status: DecisionStatus,
    turn: EventTurn | None,
    *,
    is_grouped: bool,
    can_prepare: bool,
    has_latest_groups: bool,
) -> DecisionStatus:
    """Return the status for an event that waits for its group: no decision is due while it waits
    for others, or while its VMs prepare. `is_grouped`: a group has its VMs, and without a turn it
    is not known if there is room. `can_prepare`: its VMs could prepare for it now.
    `has_latest_groups`: otherwise nothing is due at this console, which refuses it.
    """
    if status.state not in ("due", "second"):
        return status
    if status.state == "due" and not has_latest_groups:
        return DecisionStatus(state="none")
    if turn is None or turn.state == "over":
        return DecisionStatus(state="none") if is_grouped and status.state == "due" else status
    if turn.state in ("preparing", "prepared"):
        return DecisionStatus(
            state="approving", by=turn.actor, reason=turn.person_reason, at=turn.since
        )
    if status.state == "second":
        return status
    may_approve = turn.state in ("waiting", "failed") and turn.person_may_approve
    return status if may_approve and can_prepare else DecisionStatus(state="none")


def is_left(decision: Decision, event_state: str, fingerprint: str) -> bool:
    """Check whether a decision leaves the event: it has not changed since, or kept that state until
    its end. One that is back as it was is left still: a document may have left it out for a moment.
    """
    if decision.kind != "leave" or not (decision.state == "open" or decision.outcome == "left"):
        return False
    return event_state != "scheduled" or decision.fingerprint == fingerprint


def status_of_open(decision: Decision | None) -> DecisionStatusName | None:
    """Return the status of an open decision; None without a decision, or after its end."""
    if decision is None or decision.state == "over":
        return None
    if decision.state == "second":
        return "second"
    return "left" if decision.kind == "leave" else "approving"


def _approval_status(
    event_state: str, receipts: Sequence[Receipt], decided: DecisionHistory
) -> DecisionStatus | None:
    """Return the status of an approval that a VM confirms or follows, or of the console's own one;
    None without an approval.
    """
    for receipt in receipts:
        if receipt.content.state == "confirmed":
            return _by_receipt("approved", receipt, decided)
    decision = decided.decision
    if decision is not None and decision.outcome == "confirmed":
        return _by_person("approved", decision)
    if decision is not None and decision.kind == "approve" and decision.state == "open":
        return _by_person("approving", decision)
    begun = under_way(receipts)
    return _by_receipt("approving", begun[0], decided) if begun and event_state != "ended" else None


def _person_status(
    event_state: str, fingerprint: str, decision: Decision | None
) -> DecisionStatus | None:
    """Return the status of a person's decision, if it is about the event as it is."""
    if decision is None:
        return None
    if is_left(decision, event_state, fingerprint):
        return _by_person("left", decision)
    same = event_state == "scheduled" and decision.fingerprint == fingerprint
    return _by_person("second", decision) if decision.state == "second" and same else None


def _undecided_status(
    event_state: str, decision: Decision | None, *, can_be_asked: bool
) -> DecisionStatus:
    """Return the status of an event without a decision: whether one is due."""
    if event_state != "scheduled" or not can_be_asked:
        return DecisionStatus(state="none")
    if decision is not None and decision.outcome in _WITHOUT_EFFECT:
        reason = f"{decision.outcome}: {decision.outcome_reason}"
        return DecisionStatus(state="due", by=decision.actors, reason=reason, at=decision.over_at)
    return DecisionStatus(state="due")


def _by_person(state: DecisionStatusName, decision: Decision) -> DecisionStatus:
    return DecisionStatus(state=state, by=decision.actors, reason=decision.reason, at=decision.at)


def _by_receipt(
    state: DecisionStatusName, receipt: Receipt, decided: DecisionHistory
) -> DecisionStatus:
    """Return a status with the actor of the receipt: the person of a command, `rule:NAME`, or
    `local:USER`.
    """
    own = next((each for each in decided.commands if each.jti == receipt.content.jti), None)
    reason = receipt.content.person_reason if own is None else own.reason
    by = receipt.content.actor
    at = receipt.time
    decision = decided.decision
    if own is not None and decision is not None and decision.id == own.decision_id:
        by = decision.actors
        at = decision.at
    return DecisionStatus(state=state, by=by, reason=reason, at=at)
