"""What happened to a turn: which row of the table of its states (`machine`) applies now."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Set as AbstractSet
from typing import Final

from console.turns.away import idle_in_turns
from console.turns.plan import Move
from console.turns.prepared import (
    UNANSWERED_SECONDS,
    all_prepared,
    has_failed,
    is_ready,
    preparing,
    unanswered,
)
from console.turns.reading import Reading
from console.turns.reasons import (
    kept_for_people,
    why_for_people,
    why_no_longer_approved,
    why_not_by_groups,
)
from console.turns.situation import EventFacts, Turn
from console.turns.transitions import Trigger
from console.turns.waiting import group_actor, is_full_for

STUCK_SECONDS: Final = 3600.0
"""A turn is stuck if a VM of it is not back this long after the event. A VM that rests is back."""


def move_of_held(
    turn: Turn, reading: Reading, *, back: Collection[str], resting: Collection[str]
) -> Move | None:
    """Return the trigger for a turn that is held, or None if nothing happened to it. `back` and
    `resting`: the vmIds of its VMs that come back now, and of those whose rest begins now.
    """
    event = reading.event_of(turn)
    if turn.state in ("away", "stuck"):
        if event is not None:
            return _while_listed(turn, event, reading)
        return _while_away(turn, reading, back, resting)
    if event is None:
        return Move(event_key=turn.event_key, trigger=Trigger.GONE)
    if event.status != "Scheduled":
        return Move(event_key=turn.event_key, trigger=Trigger.STARTED)
    if event.fingerprint != turn.fingerprint:
        return _changed(turn, event, reading, Trigger.CHANGED)
    return _while_scheduled(turn, event, reading)


def move_without_turn(turn: Turn, reading: Reading, *, is_left: bool) -> Move | None:
    """Return what happened to an event that waits, or that runs without a turn, or None. `is_left`:
    a VM has prepared for it and has not recovered.
    """
    key = turn.event_key
    event = reading.event_of(turn)
    if event is None:
        return Move(event_key=key, trigger=Trigger.UNRECOVERED if is_left else Trigger.GONE)
    if not reading.situation.groups_touched(event):
        return Move(event_key=key, trigger=Trigger.UNGROUPED)
    if event.fingerprint != turn.fingerprint:
        return Move(event_key=key, trigger=Trigger.CHANGED)
    return _while_waiting(event, reading) if turn.state == "waiting" else None


def _while_waiting(event: EventFacts, reading: Reading) -> Move | None:
    key = event.key
    if event.status != "Scheduled":
        return Move(
            event_key=key, trigger=Trigger.STARTED, reason="Azure started it before its turn"
        )
    group = reading.group_too_small(event)
    if group is None:
        return None
    reason = f"it names more VMs of {group} than may be away"
    return Move(event_key=key, trigger=Trigger.NEVER_FITS, reason=reason)


def _while_away(
    turn: Turn, reading: Reading, back: Collection[str], resting: Collection[str]
) -> Move | None:
    key = turn.event_key
    if turn.over_at is None:
        return Move(event_key=key, trigger=Trigger.GONE)
    if all(each.vm_id in back for each in turn.still_away):
        return Move(event_key=key, trigger=Trigger.ALL_BACK)
    rests = {each.vm_id for each in turn.still_away if each.ready_at is not None}.union(resting)
    is_missing = any(each.vm_id not in rests.union(back) for each in turn.still_away)
    if is_missing and reading.now - turn.over_at >= STUCK_SECONDS:
        return Move(event_key=key, trigger=Trigger.HOUR_PASSED)
    return None


def _while_listed(turn: Turn, event: EventFacts, reading: Reading) -> Move | None:
    """Return what happened to a turn whose VMs are away, and whose event Azure still lists."""
    if event.status != "Scheduled":
        # Where `over_at` is set, a document left the event out: it is not over yet.
        is_back = turn.over_at is not None
        return Move(event_key=turn.event_key, trigger=Trigger.STARTED) if is_back else None
    if turn.by is None:
        return Move(event_key=turn.event_key, trigger=Trigger.RETURNED_UNTAKEN)
    return _changed(turn, event, reading, Trigger.RETURNED)


def _while_scheduled(turn: Turn, event: EventFacts, reading: Reading) -> Move | None:
    """Return what happened to a turn whose event is still in the state for which it was taken."""
    if turn.state in ("preparing", "prepared"):
        reason = why_no_longer_approved(turn, event, reading)
        if reason is not None:
            return Move(event_key=turn.event_key, trigger=Trigger.NOT_PREPARED, reason=reason)
    if turn.state == "preparing":
        return _while_preparing(turn, event, reading)
    if turn.state == "prepared":
        return _while_prepared(turn, event, reading)
    if turn.state == "approving" and event.approval in (None, "failed"):
        reason = kept_for_people(event) or "its approval failed"
        return Move(event_key=turn.event_key, trigger=Trigger.NOT_APPROVED, reason=reason)
    if turn.state == "failed" and _is_to_be_retried(turn, event, reading):
        actor = group_actor(event, reading)
        return Move(event_key=turn.event_key, trigger=Trigger.TAKEN, actor=actor)
    return None


def _while_preparing(turn: Turn, event: EventFacts, reading: Reading) -> Move | None:
    if all_prepared(turn, event, reading):
        return Move(event_key=turn.event_key, trigger=Trigger.ALL_PREPARED)
    failed = sorted(vm.name for vm in preparing(turn, event, reading) if has_failed(vm, event))
    reason = None
    if failed:
        reason = f"{', '.join(failed)} could not prepare"
    elif silent := unanswered(turn, event, reading):
        reason = f"{', '.join(silent)} did not answer"
    elif reading.is_too_late(event):
        late = [vm.name for vm in reading.situation.named(event) if not is_ready(vm, turn, event)]
        reason = f"{', '.join(sorted(late))} did not prepare in time"
    if reason is None:
        return None
    return Move(event_key=turn.event_key, trigger=Trigger.NOT_PREPARED, reason=reason)


def _while_prepared(turn: Turn, event: EventFacts, reading: Reading) -> Move | None:
    key = turn.event_key
    if not all_prepared(turn, event, reading):
        return Move(event_key=key, trigger=Trigger.UNPREPARED)
    if reading.is_too_late(event) and turn.is_by_group:
        return Move(event_key=key, trigger=Trigger.NOT_PREPARED, reason="no time was left")
    return None


def _changed(turn: Turn, event: EventFacts, reading: Reading, trigger: Trigger) -> Move:
    """Return what a new state of the event means for its turn. A person approves one state of the
    event: after a change the turn continues only if its groups approve the new state by themselves.
    """
    key = turn.event_key
    is_by_person = turn.by is not None and not turn.is_by_group
    if event.fingerprint == turn.fingerprint and is_by_person:
        return Move(event_key=key, trigger=trigger)
    reason = why_not_by_groups(event, reading)
    if reason is None:
        return Move(event_key=key, trigger=trigger, actor=group_actor(event, reading))
    if is_by_person:
        reason = f"it changed since {turn.by} approved it"
    return Move(event_key=key, trigger=Trigger.OUTDATED, reason=reason)


def _is_to_be_retried(turn: Turn, event: EventFacts, reading: Reading) -> bool:
    """Check whether a turn that has failed is taken again now: there is room, and no other goes
    before it.
    """
    if not _may_retry(turn, event, reading) or is_full_for(turn, event, reading):
        return False
    idle = idle_in_turns(reading.situation)
    if event.named <= turn.vm_ids and not event.named & idle:
        return True  # its VMs are away until the event is over: it takes no room from others
    return not _is_behind(turn, event, reading, idle)


def _is_behind(turn: Turn, event: EventFacts, reading: Reading, idle: AbstractSet[str]) -> bool:
    """Check whether others go before a turn that has failed, in its groups: the events that have
    not had their turn, and then the turns that failed before it. An event goes before no other if
    there would be no room for it even with the VMs back that have begun nothing (`idle`).
    """
    situation = reading.situation
    keys = set(situation.groups_touched(event))
    blocked: set[str] = set()
    for other in sorted(situation.events.values(), key=lambda each: each.order):
        its = situation.groups_touched(other)
        if other.key == event.key or other.status != "Scheduled" or keys.isdisjoint(its):
            continue
        has_room = not reading.over_budget(other, without=idle)
        own = situation.turns.get(other.key)
        if own is not None and own.state == "failed":
            is_first = (own.since, other.order) < (turn.since, event.order)
            if has_room and is_first and _may_retry(own, other, reading):
                return True
        elif _waits(own, other, reading):
            if has_room and blocked.isdisjoint(its):
                return True
            blocked.update(its)  # those that come later wait behind it
    return False


def _waits(turn: Turn | None, event: EventFacts, reading: Reading) -> bool:
    """Check whether an event waits for its turn, or for room for more of its VMs."""
    if turn is not None and turn.is_held:
        return turn.state == "preparing" and not event.named <= turn.vm_ids
    return why_for_people(event, reading) is None


def _may_retry(turn: Turn, event: EventFacts, reading: Reading) -> bool:
    """Check whether the turn of a group, which has failed, may be taken again once there is room.

    The cause of its failure must have passed. It has if its window is open again, if no VM has
    followed the approval and none can any more, or if a VM that did not answer may answer now. A VM
    that could not prepare is left to people, and so is whatever would not be given a turn by itself
    now.
    """
    if not turn.is_by_group:
        return False
    was_unanswered = any(each.asked_at is not None for each in turn.holders)
    if was_unanswered and reading.now - turn.since < UNANSWERED_SECONDS:
        return False
    if event.approval is not None and (event.again_at is None or reading.now < event.again_at):
        return False
    if any(has_failed(vm, event) for vm in preparing(turn, event, reading)):
        return False
    is_grouped = bool(reading.situation.groups_touched(event))
    return is_grouped and why_for_people(event, reading) is None
