"""Which events wait for room in their groups, and which ones get their turn now."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from console.fleet.values import EventKey
from console.turns.away import started_by_vm
from console.turns.plan import Take, Waiting
from console.turns.prepared import has_recovered, is_ready
from console.turns.reading import Reading
from console.turns.reasons import NO_KEY, refusal, why_for_people
from console.turns.situation import GROUP_ACTOR, Away, EventFacts, Turn, VmFacts


def queue(reading: Reading) -> tuple[list[Take], list[Waiting]]:
    """Give turns in the order of the events. An event that waits blocks the events after it in its
    groups. So does an event that holds its turn and waits for room for more of its VMs.
    """
    takes: list[Take] = []
    waiting: list[Waiting] = []
    blocked: dict[str, list[EventKey]] = {}
    for event in sorted(reading.situation.events.values(), key=lambda each: each.order):
        turn = reading.situation.turns.get(event.key)
        keys = reading.situation.groups_touched(event)
        if not keys or event.status != "Scheduled":
            continue
        if turn is not None and turn.is_held:
            if turn.state == "preparing" and not event.named <= turn.vm_ids:
                _block(blocked, keys, event)
            continue
        behind = [each for key in keys for each in blocked.get(key, [])]
        reason = why_for_people(event, reading)
        if reason is None and not reading.over_budget(event) and not behind:
            takes.append(_take(event, reading))
            reading = reading.with_away(event, reading.situation.named(event), reading.now)
            continue
        waiting.append(_waiting(event, reading, reason, behind))
        if reason is None:
            _block(blocked, keys, event)
    return takes, waiting


def waits_for_room(turn: Turn, event: EventFacts, reading: Reading) -> bool:
    """Check whether no VM of a turn may prepare now: the budget is full."""
    if turn.state != "preparing" or event.fingerprint != turn.fingerprint:
        return False
    return not turn.is_forced and is_full_for(turn, event, reading)


def is_full_for(turn: Turn, event: EventFacts, reading: Reading) -> bool:
    """Check whether the budget has no room for the VMs of a turn.

    If a group has become too small for its turns, the first of these does not wait for the others
    if each of its VMs has begun to prepare: they are away already, also if they prepare again.
    """
    if not reading.over_budget(event):
        return False
    named = reading.situation.named(event)
    has_begun = event.named <= turn.vm_ids and not any(has_recovered(vm, turn) for vm in named)
    return not (has_begun and _others_wait_behind(event, reading))


def while_preparing(turn: Turn, reading: Reading) -> Waiting:
    """Return what an event waits for besides the programs of its VMs."""
    event = reading.situation.events[turn.event_key]
    unprepared = [vm for vm in reading.situation.named(event) if not is_ready(vm, turn, event)]
    without_commands = sorted(vm.name for vm in unprepared if vm.prepares and not vm.takes_commands)
    not_said = sorted(vm.name for vm in unprepared if vm.is_heard and not vm.has_said)
    reason = f"{', '.join(without_commands)} takes no commands" if without_commands else None
    if not_said:
        reason = f"{', '.join(not_said)} has not said yet whether it prepares"
    if waits_for_room(turn, event, reading):
        reason = _waits_for(event, reading, [])
    return Waiting(event_key=turn.event_key, groups=turn.groups, reason=reason)


def while_prepared(turn: Turn, reading: Reading) -> Waiting | None:
    """Return why an event whose VMs are prepared is not approved at this moment, or None."""
    event = reading.situation.events[turn.event_key]
    reason = None
    if not reading.situation.can_sign:
        reason = NO_KEY
    elif turn.is_by_group and event.is_disputed:
        reason = "the VMs that report it do not agree"
    elif not has_room(turn, event, reading):
        reason = _waits_for(event, reading, [])
    if reason is None:
        return None
    return Waiting(event_key=turn.event_key, groups=turn.groups, reason=reason)


def has_room(turn: Turn, event: EventFacts, reading: Reading) -> bool:
    """Check whether an event whose VMs are prepared may be approved, with the VMs that are away.

    If a group has become too small for its turns, and the VMs of all of these are away already,
    they do not wait for each other: their VMs come back one after the other.
    """
    return turn.is_forced or _others_wait_behind(event, reading)


def _others_wait_behind(event: EventFacts, reading: Reading) -> bool:
    """Check whether all that fills the groups of the event besides its own VMs waits behind it."""
    return all(
        _waits_behind(other, event, reading)
        for key in reading.over_budget(event)
        for other in reading.away.get(key, {}).values()
        if other.vm_id not in event.named
    )


def group_actor(event: EventFacts, reading: Reading) -> str:
    """Return the actor of an approval of the event by its first group."""
    first = reading.situation.groups_touched(event)[0]
    return f"{GROUP_ACTOR}{reading.situation.groups[first].rule.name}"


def _block(blocked: dict[str, list[EventKey]], keys: Iterable[str], event: EventFacts) -> None:
    for key in keys:
        blocked.setdefault(key, []).append(event.key)


def _take(event: EventFacts, reading: Reading) -> Take:
    return Take(
        event_key=event.key,
        groups={vm.vm_id: vm.groups for vm in reading.situation.named(event)},
        actor=group_actor(event, reading),
    )


def _waiting(
    event: EventFacts, reading: Reading, reason: str | None, behind: Sequence[EventKey]
) -> Waiting:
    """Return what the event waits for: people if there is a `reason`, its groups otherwise."""
    away = reading.away_besides(event)
    held_by = [each.event_key for each in away if each.event_key]
    return Waiting(
        event_key=event.key,
        groups=reading.situation.groups_touched(event),
        reason=reason or _waits_for(event, reading, behind),
        behind=tuple(dict.fromkeys([*held_by, *behind])),
        needs_people=reason is not None,
        is_free=reason is not None and refusal(event, reading) is None,
        held_by=tuple(
            (each.vm_id, each.event_key) for each in (away if reading.over_budget(event) else ())
        ),
    )


def _waits_for(event: EventFacts, reading: Reading, behind: Sequence[EventKey]) -> str:
    full = reading.over_budget(event)
    if full:
        key = full[0]
        count = len(reading.away.get(key, {}))
        return f"{count} of {key} away, and {reading.situation.groups[key].at_most} may be"
    return f"it is behind {len(behind)} other" + ("s" if len(behind) > 1 else "")


def _waits_behind(other: Away, event: EventFacts, reading: Reading) -> bool:
    """Check whether a VM that counts as away only waits behind the event. Then it is heard, and the
    turns that it holds are of later events, for which it is prepared or has begun to prepare.
    """
    situation = reading.situation
    vm = situation.vms.get(other.vm_id)
    if vm is None or not vm.is_heard or vm.vm_id in started_by_vm(situation):
        return False
    turns = [each for each in situation.turns.values() if each.is_held and vm.vm_id in each.vm_ids]
    return bool(turns) and all(_waits_after(each, vm, event, reading) for each in turns)


def _waits_after(turn: Turn, vm: VmFacts, event: EventFacts, reading: Reading) -> bool:
    """Check whether a turn waits behind the event and cannot send its VM away, because the VM has
    begun to prepare already.
    """
    own = reading.event_of(turn)
    if own is None or turn.is_forced or own.order <= event.order:
        return False
    has_begun = turn.state in ("preparing", "failed") and not has_recovered(vm, turn)
    return turn.state == "prepared" or has_begun
