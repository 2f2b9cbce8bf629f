"""How a turn changes: values in, values out. `console/approvals/turn_steps.py` writes them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from console.turns.facts import EventFacts, Turn, TurnFacts, TurnVm, VmFacts
from console.turns.transitions import Occurrence, TurnCondition, next_step

_NEW_STATE = (TurnCondition.CHANGED, TurnCondition.RETURNED, TurnCondition.OUTDATED)
"""The conditions after which the turn is for another state of its event."""


def new_turn(event: EventFacts, now: float) -> Turn:
    """Return a turn, in the state `waiting`, for an event that has none."""
    return Turn(
        event_key=event.key,
        fingerprint=event.fingerprint,
        state="waiting",
        since=now,
        ended_by=event.ended_by,
    )


def give_turn(
    before: Turn | None,
    event: EventFacts,
    facts: TurnFacts,
    now: float,
    *,
    actor: str,
    is_overridden: bool = False,
) -> Turn:
    """Return the turn of an event that is given its turn: its VMs are away from this moment on."""
    turn = before or new_turn(event, now)
    begun = replace(
        turn,
        state=next_step(turn.state, TurnCondition.GIVEN),
        fingerprint=event.fingerprint,
        since=now,
        taken_at=now,
        actor=actor,
        is_overridden=is_overridden,
        vms=turn.still_away,  # a VM that is away for an earlier state of the event is still away
        reason=None,
        ended_by=None,
        held_by=(),
        behind=(),
        person_may_approve=False,
        groups=facts.groups_touched(event),
    )
    return with_vms(begun, facts.named(event))


def with_vms(turn: Turn, vms: Iterable[VmFacts]) -> Turn:
    """Return the turn with these VMs as new parts of it, in their groups of now. A VM that is still
    away counts in the groups of its earlier part too.
    """
    away_in = {part.vm_id: part.groups for part in turn.still_away}
    new = {
        vm.vm_id: TurnVm(vm_id=vm.vm_id, groups=vm.groups | away_in.get(vm.vm_id, frozenset()))
        for vm in vms
    }
    before = tuple(part for part in turn.vms if part.vm_id not in new)
    return replace(turn, vms=(*before, *(new[vm_id] for vm_id in sorted(new))))


def after_condition(turn: Turn, happened: Occurrence, event: EventFacts | None, now: float) -> Turn:
    """Return the turn after something happened to it."""
    condition = happened.condition
    state = next_step(turn.state, condition)
    fingerprint = turn.fingerprint
    if condition in _NEW_STATE and event is not None:
        fingerprint = event.fingerprint
        turn = replace(turn, ended_by=None, is_overridden=False)
    if happened.actor is not None:
        turn = replace(turn, actor=happened.actor, person_reason=None)
    over_at = turn.over_at
    if condition in (TurnCondition.GONE, TurnCondition.UNRECOVERED) and over_at is None:
        over_at = now
    elif condition in (TurnCondition.STARTED, TurnCondition.RETURNED, TurnCondition.OUTDATED):
        over_at = None
    # A VM is asked to prepare for each state of the event, even if that state was there before.
    is_same = state == turn.state and fingerprint == turn.fingerprint
    vms = () if state == "waiting" else turn.vms
    if over_at is None:
        vms = tuple(replace(part, ready_at=None) for part in vms)
    if state != "failed" and not is_same:
        vms = tuple(replace(part, unanswered_since=None) for part in vms)
    if condition is TurnCondition.STARTED and event is not None:
        # A VM that was not away while the turn had failed is away now.
        gone = event.named
        vms = tuple(replace(part, back_at=None) if part.vm_id in gone else part for part in vms)
    return replace(
        turn,
        state=state,
        since=turn.since if is_same else now,
        fingerprint=fingerprint,
        reason=happened.reason if happened.reason or not is_same else turn.reason,
        over_at=over_at,
        vms=vms,
    )
