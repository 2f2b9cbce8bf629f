"""Changes of turns by a plan: values in, values out. `console/approvals/turns.py` writes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from console.fleet.values import EventKey
from console.turns.plan import Back, Move, Plan, Take, Waiting
from console.turns.situation import EventFacts, Holder, Turn, TurnSituation
from console.turns.transitions import Trigger, after


def changed_turns(situation: TurnSituation, plan: Plan, now: float) -> dict[EventKey, Turn]:
    """Return the turns that the plan begins or changes, by the key of their event."""
    turns = {key: _without_rests(turn, situation) for key, turn in situation.turns.items()}
    for rest in plan.rests:
        turns[rest.event_key] = _with_rest(turns[rest.event_key], rest, now)
    for back in plan.backs:
        turns[back.event_key] = _with_back(turns[back.event_key], back, now)
    ends = {move.event_key for move in plan.moves}
    for key, turn in situation.turns.items():
        if turn.state == "preparing" and key not in ends:
            turns[key] = _with_silences(turns[key], plan, now)
    for join in plan.joins:
        turns[join.event_key] = with_holders(turns[join.event_key], join.groups)
    for move in plan.moves:
        event = situation.events.get(move.event_key)
        turns[move.event_key] = moved(turns[move.event_key], move, event, now)
    for take in plan.takes:
        event = situation.events[take.event_key]
        turns[take.event_key] = taken(turns.get(take.event_key), take, event, now)
    for key, is_free in plan.free.items():
        turns[key] = replace(turns[key], is_free=is_free)
    for key, why in plan.waiting.items():
        turns[key] = _with_reason(turns.get(key) or waiting(situation.events[key], now), why)
    return {key: turn for key, turn in turns.items() if turn != situation.turns.get(key)}


def waiting(event: EventFacts, now: float) -> Turn:
    """Return a new turn, in the state `waiting`, for an event that has none."""
    return Turn(
        event_key=event.key,
        fingerprint=event.fingerprint,
        state="waiting",
        since=now,
        ended_by=event.ended_by,
    )


def taken(before: Turn | None, take: Take, event: EventFacts, now: float) -> Turn:
    """Return the turn of an event that is given its turn: its VMs are away from this moment on."""
    known = before or waiting(event, now)
    begun = replace(
        known,
        state=after(known.state, Trigger.TAKEN),
        fingerprint=event.fingerprint,
        since=now,
        taken_at=now,
        by=take.actor,
        is_forced=take.is_forced,
        # A VM that is away for an earlier state of the event is still away.
        holders=tuple(each for each in known.still_away if each.vm_id not in take.groups),
        reason=None,
        ended_by=None,
        held_by=(),
        behind=(),
        is_free=False,
        groups=tuple(sorted({key for keys in take.groups.values() for key in keys})),
    )
    return with_holders(begun, take.groups)


def moved(turn: Turn, move: Move, event: EventFacts | None, now: float) -> Turn:
    """Return the turn after something happened to it."""
    state = after(turn.state, move.trigger)
    fingerprint = turn.fingerprint
    if move.trigger in (Trigger.CHANGED, Trigger.RETURNED, Trigger.OUTDATED) and event is not None:
        fingerprint = event.fingerprint
        turn = replace(turn, ended_by=None, is_forced=False)
    if move.actor is not None:
        turn = replace(turn, by=move.actor, asked=None)
    over_at = turn.over_at
    if move.trigger in (Trigger.GONE, Trigger.UNRECOVERED) and over_at is None:
        over_at = now
    elif move.trigger in (Trigger.STARTED, Trigger.RETURNED, Trigger.OUTDATED):
        over_at = None
    # A VM is asked to prepare for each state of the event, even if that state was there before.
    is_same = state == turn.state and fingerprint == turn.fingerprint
    holders = () if state == "waiting" else turn.holders
    if over_at is None:
        holders = tuple(replace(each, ready_at=None) for each in holders)
    if state != "failed" and not is_same:
        holders = tuple(replace(each, asked_at=None) for each in holders)
    if move.trigger is Trigger.STARTED and event is not None:
        # A VM that was not away while the turn had failed is away now.
        gone = event.named
        holders = tuple(replace(h, back_at=None) if h.vm_id in gone else h for h in holders)
    return replace(
        turn,
        state=state,
        since=turn.since if is_same else now,
        fingerprint=fingerprint,
        reason=move.reason if move.reason or not is_same else turn.reason,
        over_at=over_at,
        holders=holders,
    )


def _with_reason(turn: Turn, why: Waiting) -> Turn:
    return replace(
        turn,
        reason=why.reason if turn.state in ("waiting", "preparing", "prepared") else turn.reason,
        groups=why.groups,
        held_by=why.held_by,
        behind=why.behind,
        is_free=why.is_free,
    )


def with_holders(turn: Turn, groups: Mapping[str, frozenset[str]]) -> Turn:
    """Return the turn with further VMs that hold it; `groups` has the group keys of each."""
    new = tuple(Holder(vm_id=vm_id, groups=groups[vm_id]) for vm_id in sorted(groups))
    before = tuple(each for each in turn.holders if each.vm_id not in groups)
    return replace(turn, holders=(*before, *new))


def _with_silences(turn: Turn, plan: Plan, now: float) -> Turn:
    """Set for each VM that does not answer when it was first asked to prepare; clear it for the
    others.
    """
    silent = {vm_id for key, vm_id in plan.silences if key == turn.event_key}
    if all((each.asked_at is None) == (each.vm_id not in silent) for each in turn.holders):
        return turn
    holders = []
    for each in turn.holders:
        since = each.asked_at or now
        holders.append(replace(each, asked_at=since if each.vm_id in silent else None))
    return replace(turn, holders=tuple(holders))


def _without_rests(turn: Turn, situation: TurnSituation) -> Turn:
    """Clear the rest of each VM that is silent or stopped again: it begins again once the VM is
    back.
    """
    gone = {
        each.vm_id
        for each in turn.still_away
        if each.ready_at is not None
        and (vm := situation.vms.get(each.vm_id)) is not None
        and vm.contact in ("silent", "stopped")
    }
    if not gone:
        return turn
    return replace(
        turn,
        holders=tuple(
            replace(each, ready_at=None) if each.vm_id in gone else each for each in turn.holders
        ),
    )


def _with_rest(turn: Turn, rest: Back, now: float) -> Turn:
    return replace(
        turn,
        holders=tuple(
            replace(each, ready_at=now)
            if each.vm_id == rest.vm_id and each.back_at is None
            else each
            for each in turn.holders
        ),
    )


def _with_back(turn: Turn, back: Back, now: float) -> Turn:
    return replace(
        turn,
        holders=tuple(
            replace(each, back_at=now)
            if each.vm_id == back.vm_id and each.back_at is None
            else each
            for each in turn.holders
        ),
    )
