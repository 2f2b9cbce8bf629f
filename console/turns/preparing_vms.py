"""How far the VMs of a turn are with their preparations: which of them are asked, and which are
awaited.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Final

from console.turns.facts import EventFacts, Turn, TurnVm, VmFacts
from console.turns.reading import Reading, waits_for_room

UNANSWERED_SECONDS: Final = 300.0
"""A turn fails if a VM does not answer for this long. It is tried again after the same time."""


def is_ready(vm: VmFacts, turn: Turn, event: EventFacts) -> bool:
    """Check whether the event does not wait for this VM any more: it holds the turn and is
    prepared, or has nothing to prepare.
    """
    if vm.vm_id not in turn.vm_ids:
        return False
    if vm.prepares:
        return vm.is_prepared(event)
    return vm.prepares_nothing or turn.is_overridden


def awaited_vms(turn: Turn, event: EventFacts, reading: Reading) -> list[VmFacts]:
    """Return the VMs whose preparation the event waits for. A person who overrides the budget does
    not wait for a VM that the console does not hear.
    """
    named = reading.facts.named(event)
    return [vm for vm in named if vm.prepares and (vm.is_heard_or_late or not turn.is_overridden)]


def all_prepared(turn: Turn, event: EventFacts, reading: Reading) -> bool:
    """Check whether every VM that the event names holds the turn and is prepared now."""
    is_whole = event.named <= turn.vm_ids
    return (
        is_whole
        and not unknown_vms(turn, event, reading)
        and all(vm.is_prepared(event) for vm in awaited_vms(turn, event, reading))
    )


def unknown_vms(turn: Turn, event: EventFacts, reading: Reading) -> list[VmFacts]:
    """Return the VMs of which it must be known whether they prepare, and is not. Only a person who
    overrides the budget does not wait for that: some VMs never say it.
    """
    if turn.is_overridden:
        return []
    return [vm for vm in reading.facts.named(event) if not vm.has_said]


def unanswered_vms(turn: Turn, event: EventFacts, reading: Reading) -> list[str]:
    """Return the names of the VMs that have been asked for long and report nothing of a
    preparation.
    """
    long_ago = reading.now - UNANSWERED_SECONDS
    asked = {
        each.vm_id
        for each in turn.still_away
        if each.unanswered_since is not None and each.unanswered_since <= long_ago
    }
    named = reading.facts.named(event)
    return sorted(vm.name for vm in named if vm.vm_id in asked and not vm.has_answered(event))


def vms_to_prepare(turn: Turn, reading: Reading) -> tuple[str, ...]:
    """Return the vmIds of the VMs that are to prepare, and have not reported that they have: none
    while VMs that went away after the turn was taken fill the budget.
    """
    event = reading.event_of(turn)
    if turn.state != "preparing" or event is None or waits_for_room(turn, event, reading):
        return ()
    return tuple(
        vm.vm_id
        for vm in reading.facts.named(event)
        if vm.vm_id in turn.vm_ids
        and vm.prepares
        and vm.is_heard_or_late
        and not vm.is_prepared(event)
    )


def with_unanswered(turn: Turn, asked: Collection[str], reading: Reading) -> Turn:
    """Return a turn that is preparing with the time since when each VM in `asked` has not answered,
    and without that time for the others. A VM that is not heard now was asked too: one that starts
    again and again is not asked for the first time.
    """
    event = reading.event_of(turn)
    if turn.state != "preparing" or event is None:
        return turn
    is_waiting = waits_for_room(turn, event, reading)

    def since(part: TurnVm) -> float | None:
        vm = reading.facts.vms.get(part.vm_id)
        if is_waiting or part.back_at is not None:
            return None
        if vm is None or vm.vm_id not in event.named:
            return None
        was_asked = part.unanswered_since is not None and not vm.is_heard_or_late
        if vm.has_answered(event) or not (vm.vm_id in asked or was_asked):
            return None
        return part.unanswered_since or reading.now

    vms = (replace(part, unanswered_since=since(part)) for part in turn.vms)
    return replace(turn, vms=tuple(vms))
