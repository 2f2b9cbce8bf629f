"""Whether the VMs of an event are prepared for it, have failed to be, or have recovered."""

from __future__ import annotations

from typing import Final

from console.fleet.values import EventKey
from console.turns.reading import Reading
from console.turns.situation import EventFacts, Turn, VmFacts

UNANSWERED_SECONDS: Final = 300.0
"""A turn fails if a VM does not answer for this long. It is tried again after the same time."""


def is_prepared(vm: VmFacts, event: EventFacts) -> bool:
    """Check whether the VM reported that it is prepared for this state of the event."""
    said = vm.preparation(event.key)
    return said is not None and said.state == "prepared" and said.fingerprint == event.fingerprint


def has_failed(vm: VmFacts, event: EventFacts) -> bool:
    """Check whether the VM reported that it could not prepare for this state of the event."""
    said = vm.preparation(event.key)
    return said is not None and said.state == "failed" and said.fingerprint == event.fingerprint


def has_recovered(vm: VmFacts, turn: Turn) -> bool:
    """Check whether the VM has nothing to recover from: it has recovered, or never prepared."""
    said = vm.preparation(turn.event_key)
    return said is None or said.state == "recovered" or vm.has_no_program


def prepares_nothing(vm: VmFacts) -> bool:
    """Check whether the VM has reported that it does not prepare."""
    return vm.has_said and not vm.prepares


def is_ready(vm: VmFacts, turn: Turn, event: EventFacts) -> bool:
    """Check whether the event does not wait for this VM any more: it holds the turn and is
    prepared, or has nothing to prepare.
    """
    if vm.vm_id not in turn.vm_ids:
        return False
    return is_prepared(vm, event) if vm.prepares else prepares_nothing(vm) or not vm.is_heard


def preparing(turn: Turn, event: EventFacts, reading: Reading) -> list[VmFacts]:
    """Return the VMs whose preparation the event waits for. A person who overrides the budget does
    not wait for a VM that the console does not hear.
    """
    named = reading.situation.named(event)
    return [vm for vm in named if vm.prepares and (vm.is_heard or not turn.is_forced)]


def all_prepared(turn: Turn, event: EventFacts, reading: Reading) -> bool:
    """Check whether every VM that the event names holds the turn and is prepared now."""
    is_whole = event.named <= turn.vm_ids
    is_known = all(vm.has_said for vm in reading.situation.named(event) if vm.is_heard)
    ready = all(is_prepared(vm, event) for vm in preparing(turn, event, reading))
    return is_whole and is_known and ready


def says_nothing(asked: tuple[EventKey, str], reading: Reading) -> bool:
    """Check whether a VM that is asked to prepare has reported nothing about that. `asked` is the
    key of the event and the VM's vmId.
    """
    event = reading.situation.events[asked[0]]
    said = reading.situation.vms[asked[1]].preparation(event.key)
    return said is None or said.fingerprint != event.fingerprint or said.state == "recovered"


def unanswered(turn: Turn, event: EventFacts, reading: Reading) -> list[str]:
    """Return the names of the VMs that have been asked for long and report nothing of a
    preparation.
    """
    names = []
    for each in turn.still_away:
        vm = reading.situation.vms.get(each.vm_id)
        if vm is None or each.asked_at is None or reading.now - each.asked_at < UNANSWERED_SECONDS:
            continue
        if each.vm_id in event.named and says_nothing((turn.event_key, each.vm_id), reading):
            names.append(vm.name)
    return sorted(names)
