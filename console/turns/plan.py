"""What is to be done about all turns now, from one reading of the database and the time.

Pure: it sends nothing and writes nothing. `console/approvals/turn_steps.py` carries out what `plan`
returns, in the transaction of the reading.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from console.fleet.values.decision import VmCommand
from console.fleet.values.keys import EventKey
from console.turns.changed_turns import after_condition, give_turn, new_turn, with_vms
from console.turns.facts import Turn, TurnFacts
from console.turns.preparing_vms import all_prepared, vms_to_prepare, with_unanswered
from console.turns.queue import TurnWait, next_turns
from console.turns.reading import Reading, has_room
from console.turns.reasons import (
    refusal,
    why_no_longer_approved,
    why_not_approved_yet,
    why_not_prepared,
)
from console.turns.returns import with_returns
from console.turns.transitions import TurnCondition
from console.turns.what_happened import what_happened, what_happened_without_turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All that is to be done after one reading."""

    turns: Mapping[EventKey, Turn] = field(default_factory=dict)
    """The turns that begin or change, by the key of their event."""
    given: tuple[EventKey, ...] = ()
    """Keys of the events that get their turn now."""
    prepares: tuple[tuple[EventKey, str], ...] = ()
    """Event key and vmId of each VM that is to prepare and has not reported that it has."""
    approvals: tuple[EventKey, ...] = ()
    """Keys of the events whose VMs are prepared and within the budget now."""
    waiting: Mapping[EventKey, TurnWait] = field(default_factory=dict)
    """What each event that has no turn waits for, by its key."""


def plan(facts: TurnFacts, now: float) -> Plan:
    """Return what is to be done now: about the turns in the order of their events, and then about
    the events that wait for one.
    """
    reading = Reading.at(facts, now)
    turns = dict(facts.turns)
    prepares: list[tuple[EventKey, str]] = []
    approvals: list[EventKey] = []
    for before in _in_order(facts):
        key = before.event_key
        if not before.is_held:
            turns[key] = _not_held(before, reading)
            continue
        event = reading.event_of(before)
        turn, reading = _with_new_vms(with_returns(before, reading), reading)
        happened = what_happened(turn, reading)
        if happened is not None:
            turns[key] = after_condition(turn, happened, event, now)
            if event is not None and happened.condition is TurnCondition.GIVEN:
                reading = reading.with_away(event, facts.named(event), now)
            continue
        reason = turn.reason
        if turn.state == "preparing":
            asked = vms_to_prepare(turn, reading)
            turn = with_unanswered(turn, asked, reading)
            prepares += [(key, vm_id) for vm_id in asked]
            reason = why_not_prepared(turn, reading)
        elif turn.state == "prepared":
            missing = why_not_approved_yet(turn, reading)
            approvals += [key] if missing is None else []
            reason = missing or turn.reason
        turns[key] = replace(
            turn, reason=reason, person_may_approve=_may_be_approved_again(turn, reading)
        )
    given, waiting = next_turns(reading)
    for event in given:
        actor = facts.group_actor(event)
        turns[event.key] = give_turn(turns.get(event.key), event, facts, now, actor=actor)
    for key, wait in waiting.items():
        turn = turns.get(key) or new_turn(facts.events[key], now)
        turns[key] = _with_wait(turn, wait)
    return Plan(
        turns={key: turn for key, turn in turns.items() if turn != facts.turns.get(key)},
        given=tuple(event.key for event in given),
        prepares=tuple(prepares),
        approvals=tuple(approvals),
        waiting=waiting,
    )


def may_ask_next_vm(
    event_key: EventKey, facts: TurnFacts, now: float
) -> Literal["yes", "later", "no"]:
    """Return whether a further VM may be asked to approve an event whose approval is under way:
    `later` if the budget has no room at this moment, or another console was started after this one
    with other groups.
    """
    event = facts.events.get(event_key)
    turn = facts.turns.get(event_key)
    reading = Reading.at(facts, now)
    if event is None:
        return "yes"
    if turn is not None and not (turn.is_overridden or facts.has_latest_groups):
        return "later"
    if turn is None or not turn.is_held:  # it is over, or a person has ended it
        return "no" if facts.groups_touched(event) else "yes"
    if turn.state != "approving" or why_no_longer_approved(turn, event, reading):
        return "no"
    if not turn.is_overridden and not all_prepared(turn, event, reading):
        return "no"
    return "yes" if has_room(turn, event, reading) else "later"


def may_be_given(command: VmCommand, facts: TurnFacts, now: float) -> bool:
    """Check whether a command that was written earlier may still be given to the VM that fetches
    it: since then, another VM may have gone away.
    """
    key = EventKey(command.event_id, command.scope)
    if command.act == "approve":
        return may_ask_next_vm(key, facts, now) == "yes"
    turn = facts.turns.get(key)
    if turn is None or not facts.has_latest_groups:
        return False
    return command.vm_id in vms_to_prepare(turn, Reading.at(facts, now))


def _in_order(facts: TurnFacts) -> list[Turn]:
    """Return the turns in the order of their events. Those whose event is over come last."""
    last = (float("inf"), "")

    def order(turn: Turn) -> tuple[float, str]:
        event = facts.events.get(turn.event_key)
        return last if event is None else event.order

    return sorted(facts.turns.values(), key=order)


def _not_held(turn: Turn, reading: Reading) -> Turn:
    """Return a turn that waits, or whose event Azure starts without it, after what happened. VMs
    that prepared for it without the turn, and have not recovered once it is over, hold it then.
    """
    event = reading.event_of(turn)
    unrecovered = [
        vm
        for vm in reading.facts.vms.values()
        if event is None
        and vm.groups
        and vm.preparation(turn.event_key)
        and not vm.has_recovered(turn.event_key)
    ]
    happened = what_happened_without_turn(turn, reading, has_unrecovered=bool(unrecovered))
    if happened is None:
        return turn
    return after_condition(with_vms(turn, unrecovered), happened, event, reading.now)


def _with_new_vms(turn: Turn, reading: Reading) -> tuple[Turn, Reading]:
    """Return the turn with the VMs that its event names and that do not hold it yet, and the
    reading in which they are away: the VMs that a changed event names, if the budget has room; and
    those that prepare although the turn has failed, which are away already.
    """
    event = reading.event_of(turn)
    if event is None or event.fingerprint != turn.fingerprint:
        return turn, reading
    new = [vm for vm in reading.facts.named(event) if vm.vm_id not in turn.vm_ids]
    if turn.state == "failed":
        new = [vm for vm in new if not vm.has_recovered(event.key)]
    elif turn.state != "preparing" or (not turn.is_overridden and reading.over_budget(event)):
        return turn, reading
    return (
        (with_vms(turn, new), reading.with_away(event, new, turn.since)) if new else (turn, reading)
    )


def _may_be_approved_again(turn: Turn, reading: Reading) -> bool:
    """Check whether a person may approve an event whose turn has failed."""
    event = reading.event_of(turn)
    return turn.state == "failed" and event is not None and refusal(event, reading) is None


def _with_wait(turn: Turn, wait: TurnWait) -> Turn:
    return replace(
        turn,
        reason=wait.reason if turn.state == "waiting" else turn.reason,
        groups=wait.groups,
        held_by=wait.held_by,
        behind=wait.behind,
        person_may_approve=wait.person_may_approve,
    )
