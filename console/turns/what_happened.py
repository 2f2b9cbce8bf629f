"""What happened to a turn: which row of the table of its states (`transitions`) applies now."""

from __future__ import annotations

from typing import Final

from console.turns.facts import EventFacts, Turn
from console.turns.preparing_vms import (
    UNANSWERED_SECONDS,
    all_prepared,
    awaited_vms,
    is_ready,
    unanswered_vms,
    unknown_vms,
)
from console.turns.queue import is_to_be_retried
from console.turns.reading import Reading
from console.turns.reasons import (
    kept_for_people,
    why_no_longer_approved,
    why_not_by_groups,
    why_too_large,
)
from console.turns.returns import longest_rest
from console.turns.transitions import Occurrence, TurnCondition

STUCK_SECONDS: Final = 3600.0
"""A turn is stuck if a VM of it is not back this long after the event. A VM whose rest has begun
counts as back.
"""


def what_happened(turn: Turn, reading: Reading) -> Occurrence | None:
    """Return what happened to a turn that is held, or None if nothing did."""
    event = reading.event_of(turn)
    if turn.state in ("away", "stuck"):
        return _while_away(turn, reading) if event is None else _while_listed(turn, event, reading)
    if event is None:
        return Occurrence(condition=TurnCondition.GONE)
    if event.status != "Scheduled":
        return Occurrence(condition=TurnCondition.STARTED)
    if event.fingerprint != turn.fingerprint:
        return _occurrence_of_change(turn, event, reading, TurnCondition.CHANGED)
    return _while_scheduled(turn, event, reading)


def what_happened_without_turn(
    turn: Turn, reading: Reading, *, has_unrecovered: bool
) -> Occurrence | None:
    """Return what happened to an event that waits, or that runs without a turn, or None.
    `has_unrecovered`: a VM has prepared for it and has not recovered.
    """
    event = reading.event_of(turn)
    if event is None:
        return Occurrence(
            condition=TurnCondition.UNRECOVERED if has_unrecovered else TurnCondition.GONE
        )
    if not reading.facts.groups_touched(event):
        return Occurrence(condition=TurnCondition.UNGROUPED)
    if event.fingerprint != turn.fingerprint:
        return Occurrence(condition=TurnCondition.CHANGED)
    if turn.state != "waiting":
        return None
    if event.status != "Scheduled":
        return Occurrence(
            condition=TurnCondition.STARTED, reason="Azure started it before its turn"
        )
    reason = why_too_large(event, reading)
    return None if reason is None else Occurrence(condition=TurnCondition.NEVER_FITS, reason=reason)


def _while_scheduled(turn: Turn, event: EventFacts, reading: Reading) -> Occurrence | None:
    """Return what happened to a turn whose event is still in the state for which it was taken."""
    if turn.state in ("preparing", "prepared"):
        reason = why_no_longer_approved(turn, event, reading)
        if reason is not None:
            return Occurrence(condition=TurnCondition.NOT_PREPARED, reason=reason)
    if turn.state == "preparing":
        return _while_preparing(turn, event, reading)
    if turn.state == "prepared":
        return _while_prepared(turn, event, reading)
    if turn.state == "approving" and event.approval in (None, "failed"):
        reason = kept_for_people(event) or "its approval failed"
        return Occurrence(condition=TurnCondition.NOT_APPROVED, reason=reason)
    if turn.state == "failed" and is_to_be_retried(turn, event, reading):
        return Occurrence(condition=TurnCondition.GIVEN, actor=reading.facts.group_actor(event))
    return None


def _while_away(turn: Turn, reading: Reading) -> Occurrence | None:
    """Return what happened to a turn whose VMs are away, and whose event is over."""
    if turn.over_at is None:
        return Occurrence(condition=TurnCondition.GONE)
    if not turn.still_away:
        return Occurrence(condition=TurnCondition.ALL_BACK)
    is_missing = any(part.ready_at is None for part in turn.still_away)
    # A VM whose bridge ends again and again before its rest is over never ends its rest.
    allowed = STUCK_SECONDS + (0.0 if is_missing else longest_rest(turn, reading))
    if reading.now - turn.over_at >= allowed:
        return Occurrence(condition=TurnCondition.HOUR_PASSED)
    return None


def _while_listed(turn: Turn, event: EventFacts, reading: Reading) -> Occurrence | None:
    """Return what happened to a turn whose VMs are away, and whose event Azure still lists."""
    if event.status != "Scheduled":
        # Where `over_at` is set, a document left the event out: it is not over yet.
        return None if turn.over_at is None else Occurrence(condition=TurnCondition.STARTED)
    if turn.actor is None:
        return Occurrence(condition=TurnCondition.RETURNED_WITHOUT_TURN)
    return _occurrence_of_change(turn, event, reading, TurnCondition.RETURNED)


def _occurrence_of_change(
    turn: Turn, event: EventFacts, reading: Reading, condition: TurnCondition
) -> Occurrence:
    """Return what a new state of the event means for its turn. A person approves one state of the
    event: after a change the turn continues only if its groups approve the new state by themselves.
    """
    is_by_person = turn.actor is not None and not turn.is_by_group
    if event.fingerprint == turn.fingerprint and is_by_person:
        return Occurrence(condition=condition)
    reason = why_not_by_groups(event, reading)
    if reason is None:
        return Occurrence(condition=condition, actor=reading.facts.group_actor(event))
    if is_by_person:
        reason = f"it changed since {turn.actor} approved it"
    return Occurrence(condition=TurnCondition.OUTDATED, reason=reason)


def _while_preparing(turn: Turn, event: EventFacts, reading: Reading) -> Occurrence | None:
    if all_prepared(turn, event, reading):
        return Occurrence(condition=TurnCondition.ALL_PREPARED)
    reason = None
    failed = sorted(vm.name for vm in awaited_vms(turn, event, reading) if vm.has_failed(event))
    if failed:
        reason = f"{', '.join(failed)} could not prepare"
    elif silent := unanswered_vms(turn, event, reading):
        reason = f"{', '.join(silent)} did not answer"
    elif unknown := _unknown_for_long(turn, event, reading):
        reason = f"the console does not know whether {', '.join(unknown)} can prepare"
    elif reading.is_too_late(event):
        late = [vm.name for vm in reading.facts.named(event) if not is_ready(vm, turn, event)]
        reason = f"{', '.join(sorted(late))} did not prepare in time"
    return (
        None if reason is None else Occurrence(condition=TurnCondition.NOT_PREPARED, reason=reason)
    )


def _unknown_for_long(turn: Turn, event: EventFacts, reading: Reading) -> list[str]:
    """Return the names of the VMs that have not said for long whether they prepare: one without
    heartbeats may never say it.
    """
    if reading.now - turn.since < UNANSWERED_SECONDS:
        return []
    return sorted(vm.name for vm in unknown_vms(turn, event, reading))


def _while_prepared(turn: Turn, event: EventFacts, reading: Reading) -> Occurrence | None:
    if not all_prepared(turn, event, reading):
        return Occurrence(condition=TurnCondition.UNPREPARED)
    if reading.is_too_late(event) and turn.is_by_group:
        return Occurrence(condition=TurnCondition.NOT_PREPARED, reason="no time was left")
    return None
