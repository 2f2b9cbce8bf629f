"""Decides what to do about turns now, from one reading of the database and the time.

Pure: it sends nothing and writes nothing. `console/approvals/turns.py` carries out what `plan`
returns, in the transaction of the reading.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from console.fleet.values import EventKey
from console.turns.moves import move_of_held, move_without_turn
from console.turns.plan import Back, Join, Move, Plan, Waiting
from console.turns.prepared import all_prepared, has_recovered, is_prepared, says_nothing
from console.turns.reading import Reading
from console.turns.reasons import refusal, why_no_longer_approved
from console.turns.returns import returns
from console.turns.situation import Turn, TurnSituation
from console.turns.transitions import Trigger
from console.turns.waiting import (
    has_room,
    queue,
    waits_for_room,
    while_prepared,
    while_preparing,
)


def plan(situation: TurnSituation, now: float) -> Plan:
    """Return what is to be done now."""
    reading = Reading.at(situation, now)
    steps: list[_Step] = []
    for turn in _in_order(situation):
        step = _held(turn, reading) if turn.is_held else _not_held(turn, reading)
        reading = step.reading
        steps.append(step)
    takes, waiting = queue(reading)
    prepares = tuple((step.key, vm_id) for step in steps for vm_id in step.prepares)
    stalled = [step.waiting for step in steps if step.waiting is not None]
    return Plan(
        takes=tuple(takes),
        joins=tuple(step.join for step in steps if step.join is not None),
        moves=tuple(step.move for step in steps if step.move is not None),
        backs=tuple(each for step in steps for each in step.backs),
        rests=tuple(each for step in steps for each in step.rests),
        prepares=prepares,
        silences=frozenset((step.key, vm_id) for step in steps for vm_id in step.silences),
        approvals=tuple(step.key for step in steps if step.is_to_be_approved),
        waiting={each.event_key: each for each in [*stalled, *waiting]},
        free={step.key: step.is_free for step in steps if step.is_free is not None},
    )


def may_ask_next_vm(
    event_key: EventKey, situation: TurnSituation, now: float
) -> Literal["yes", "later", "no"]:
    """Return whether a further VM may be asked to approve an event whose approval is under way:
    `later` if the budget has no room at this moment.
    """
    event = situation.events.get(event_key)
    turn = situation.turns.get(event_key)
    reading = Reading.at(situation, now)
    if event is None:
        return "yes"
    if turn is None or not turn.is_held:  # it is over, or a person has ended it
        return "no" if reading.situation.groups_touched(event) else "yes"
    if turn.state != "approving" or why_no_longer_approved(turn, event, reading):
        return "no"
    if not turn.is_forced and not all_prepared(turn, event, reading):
        return "no"
    return "yes" if has_room(turn, event, reading) else "later"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """What is to be done about one turn."""

    key: EventKey
    reading: Reading
    """The reading for the turns that come later: the VMs that this one sends away are away in it.
    """
    join: Join | None = None
    move: Move | None = None
    backs: tuple[Back, ...] = ()
    rests: tuple[Back, ...] = ()
    prepares: tuple[str, ...] = ()
    """The vmIds of the VMs that are to prepare."""
    silences: tuple[str, ...] = ()
    """The vmIds of the VMs that were asked and have reported nothing."""
    waiting: Waiting | None = None
    """Why it neither continues nor ends."""
    is_to_be_approved: bool = False
    is_free: bool | None = None
    """Whether a person may take it again, if it has failed."""


def _in_order(situation: TurnSituation) -> list[Turn]:
    """Return the turns in the order of their events. Those whose event is over come last."""
    events = situation.events
    last = (float("inf"), "")
    return sorted(
        situation.turns.values(),
        key=lambda turn: events[turn.event_key].order if turn.event_key in events else last,
    )


def _held(turn: Turn, reading: Reading) -> _Step:
    join, reading = _joined(turn, reading)
    returned = list(returns(turn, reading))
    backs = tuple(each for each, is_over in returned if is_over)
    rests = tuple(each for each, is_over in returned if not is_over)
    move = move_of_held(
        turn,
        reading,
        back={each.vm_id for each in backs},
        resting={each.vm_id for each in rests},
    )
    if move is not None:
        return _Step(
            key=turn.event_key,
            reading=_with_taken(move, turn, reading),
            join=join,
            move=move,
            backs=backs,
            rests=rests,
        )
    waiting = _why_it_waits(turn, reading)
    prepares = tuple(_to_prepare(turn, reading))
    return _Step(
        key=turn.event_key,
        reading=reading,
        join=join,
        backs=backs,
        rests=rests,
        prepares=prepares,
        silences=tuple(_silent(turn, reading, prepares)),
        waiting=waiting,
        is_to_be_approved=turn.state == "prepared" and waiting is None,
        is_free=_is_free(turn, reading),
    )


def _not_held(turn: Turn, reading: Reading) -> _Step:
    join = _unrecovered(turn, reading)
    move = move_without_turn(turn, reading, is_left=join is not None)
    return _Step(key=turn.event_key, reading=reading, join=join, move=move)


def _joined(turn: Turn, reading: Reading) -> tuple[Join | None, Reading]:
    """Return the VMs that a changed event names and that hold no turn yet, if the budget has room
    for them, and the reading in which they are away.
    """
    event = reading.event_of(turn)
    if turn.state != "preparing" or event is None or event.fingerprint != turn.fingerprint:
        return None, reading
    new = [vm for vm in reading.situation.named(event) if vm.vm_id not in turn.vm_ids]
    if not new or (not turn.is_forced and reading.over_budget(event)):
        return None, reading
    join = Join(event_key=turn.event_key, groups={vm.vm_id: vm.groups for vm in new})
    return join, reading.with_away(event, new, turn.since)


def _with_taken(move: Move, turn: Turn, reading: Reading) -> Reading:
    """Return the reading in which the VMs of a turn that is taken again are away."""
    event = reading.event_of(turn)
    if event is None or move.trigger is not Trigger.TAKEN:
        return reading
    return reading.with_away(event, reading.situation.named(event), reading.now)


def _to_prepare(turn: Turn, reading: Reading) -> Iterator[str]:
    """Yield the vmIds of the VMs that are to prepare. None is, while VMs that went away after the
    turn was taken fill the budget.
    """
    event = reading.event_of(turn)
    if turn.state != "preparing" or event is None or event.fingerprint != turn.fingerprint:
        return
    if waits_for_room(turn, event, reading):
        return
    for vm in reading.situation.named(event):
        if vm.vm_id in turn.vm_ids and vm.prepares and vm.is_heard and not is_prepared(vm, event):
            yield vm.vm_id


def _silent(turn: Turn, reading: Reading, prepares: Sequence[str]) -> Iterator[str]:
    """Yield the vmIds of the VMs that are asked to prepare and have reported nothing. One that is
    not heard now was asked too: a VM that starts again and again is not asked for the first time.
    """
    event = reading.event_of(turn)
    if turn.state != "preparing" or event is None or waits_for_room(turn, event, reading):
        return
    asked = {each.vm_id for each in turn.still_away if each.asked_at is not None}
    unheard = {
        vm.vm_id for vm in reading.situation.named(event) if vm.vm_id in asked and not vm.is_heard
    }
    for vm_id in sorted(unheard.union(prepares)):
        if says_nothing((turn.event_key, vm_id), reading):
            yield vm_id


def _why_it_waits(turn: Turn, reading: Reading) -> Waiting | None:
    if turn.state == "preparing":
        return while_preparing(turn, reading)
    return while_prepared(turn, reading) if turn.state == "prepared" else None


def _is_free(turn: Turn, reading: Reading) -> bool | None:
    if turn.state != "failed":
        return None
    return refusal(reading.situation.events[turn.event_key], reading) is None


def _unrecovered(turn: Turn, reading: Reading) -> Join | None:
    """Return the VMs that have prepared for an event without a turn and have not recovered."""
    if reading.event_of(turn) is not None:
        return None
    left = {
        vm.vm_id: vm.groups
        for vm in reading.situation.vms.values()
        if vm.groups and vm.preparation(turn.event_key) and not has_recovered(vm, turn)
    }
    return Join(event_key=turn.event_key, groups=left) if left else None
