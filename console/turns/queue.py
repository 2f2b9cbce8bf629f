"""Which events get their turn now, which wait, and which turns that have failed are tried again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from console.fleet.values.keys import EventKey
from console.turns.away import idle_in_turns
from console.turns.facts import EventFacts, HeldBy, Turn
from console.turns.preparing_vms import UNANSWERED_SECONDS, awaited_vms
from console.turns.reading import Reading, is_full_for
from console.turns.reasons import refusal, why_for_people, why_no_room


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnWait:
    """What an event waits for."""

    groups: tuple[str, ...]
    reason: str
    behind: tuple[EventKey, ...]
    """Keys of the events that come before it."""
    needs_people: bool
    """Whether it waits for a person, not for room."""
    person_may_approve: bool
    """Whether it waits for a person, and an approval by one would be allowed now."""
    held_by: tuple[HeldBy, ...]
    """The VMs that are away in its groups, without those that it names."""


def next_turns(reading: Reading) -> tuple[list[EventFacts], Mapping[EventKey, TurnWait]]:
    """Return the events that get their turn now, in their order, and what the others wait for. An
    event that waits for room, or for room for more of its VMs, blocks those after it in its groups,
    except one that takes no room from it.
    """
    facts = reading.facts
    given: list[EventFacts] = []
    waiting: dict[EventKey, TurnWait] = {}
    blocked: dict[str, list[EventKey]] = {}
    """By group, the keys of the events that wait."""
    for event in sorted(facts.events.values(), key=lambda event: event.order):
        turn = facts.turns.get(event.key)
        groups = facts.groups_touched(event)
        if not groups or event.status != "Scheduled":
            continue
        if turn is not None and turn.is_held:
            is_blocking = turn.state == "preparing" and not event.named <= turn.vm_ids
        else:
            behind = [key for group in groups for key in blocked.get(group, [])]
            reason = why_for_people(event, reading)
            if reason is None and _has_its_turn(event, reading, behind):
                given.append(event)
                reading = reading.with_away(event, facts.named(event), reading.now)
                continue
            waiting[event.key] = _wait_of(event, reading, reason, behind)
            is_blocking = reason is None
        if is_blocking:
            for group in groups:
                blocked.setdefault(group, []).append(event.key)
    return given, waiting


def _has_its_turn(event: EventFacts, reading: Reading, behind: Sequence[EventKey]) -> bool:
    """Check whether an event that no person decides about gets its turn now: there is room, and no
    event comes before it to which it would leave less room.
    """
    return not reading.over_budget(event) and (not behind or _takes_no_room(event, reading))


def _takes_no_room(event: EventFacts, reading: Reading) -> bool:
    """Check whether every VM of the event has begun to prepare for it without a turn: each is away
    until the event is over, and those that wait for room wait for that.
    """
    named = reading.facts.named(event)
    return bool(named) and all(vm.prepares and not vm.has_recovered(event.key) for vm in named)


def _wait_of(
    event: EventFacts, reading: Reading, reason: str | None, behind: Sequence[EventKey]
) -> TurnWait:
    """Return what the event waits for: people if there is a `reason`, its groups otherwise."""
    away = reading.away_besides(event)
    holders = [each.event_key for each in away if each.event_key]
    is_full = bool(reading.over_budget(event))
    return TurnWait(
        groups=reading.facts.groups_touched(event),
        reason=reason or why_no_room(event, reading, behind),
        behind=tuple(dict.fromkeys([*holders, *behind])),
        needs_people=reason is not None,
        person_may_approve=reason is not None and refusal(event, reading) is None,
        held_by=tuple((each.vm_id, each.event_key) for each in away) if is_full else (),
    )


# Turns that have failed


def is_to_be_retried(turn: Turn, event: EventFacts, reading: Reading) -> bool:
    """Check whether a turn that has failed is taken again now: there is room, and no other goes
    before it.
    """
    if not _may_retry(turn, event, reading) or is_full_for(turn, event, reading):
        return False
    idle = idle_in_turns(reading.facts)
    if event.named <= turn.vm_ids and not event.named & idle:
        return True  # its VMs are away until the event is over: it takes no room from others
    return not _is_behind(turn, event, reading, idle)


def _is_behind(turn: Turn, event: EventFacts, reading: Reading, idle: AbstractSet[str]) -> bool:
    """Check whether others go before a turn that has failed, in its groups: the events that have
    not had their turn, and then the turns that failed before it.

    `idle` are VMs that hold turns and have begun nothing. If there is no room for an event even
    without them, it goes before no other.
    """
    facts = reading.facts
    groups = set(facts.groups_touched(event))
    blocked: set[str] = set()
    for other in sorted(facts.events.values(), key=lambda other: other.order):
        its = facts.groups_touched(other)
        if other.key == event.key or other.status != "Scheduled" or groups.isdisjoint(its):
            continue
        has_room = not reading.over_budget(other, without=idle)
        own = facts.turns.get(other.key)
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

    Its cause must have passed: its window is open again; or no VM has followed the approval, and
    none can any more; or a VM that did not answer may answer now. A VM that could not prepare is
    left to people, and so is whatever would not be given a turn by itself now.
    """
    if not turn.is_by_group:
        return False
    was_unanswered = any(part.unanswered_since is not None for part in turn.vms)
    if was_unanswered and reading.now - turn.since < UNANSWERED_SECONDS:
        return False
    if event.approval is not None and (event.again_at is None or reading.now < event.again_at):
        return False
    if any(vm.has_failed(event) for vm in awaited_vms(turn, event, reading)):
        return False
    is_grouped = bool(reading.facts.groups_touched(event))
    return is_grouped and why_for_people(event, reading) is None
