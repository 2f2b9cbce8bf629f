"""Which VMs can be asked to approve an event, and which of them is asked first."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from console.fleet.contact import Ears, contact
from console.fleet.index import Fleet
from console.fleet.values import Event, Vm

PULL: Final = "pull"
"""Name of the HTTPS channel, where else the name of a source stands."""
ASKED_SECONDS: Final = 60.0
"""A VM that asked the HTTPS channel takes commands there for so long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """A VM that can be asked, over which channel, and whether that is connected here."""

    vm_id: str
    channel: str
    connected: bool
    heard_at: float


def channel_of(fleet: Fleet, vm: Vm, now: float, ears: Ears) -> str | None:
    """Over which channel a VM takes commands: a source that is connected before HTTPS, and HTTPS
    before one that is not; None if it takes none.
    """
    asked_at = fleet.asked.get(vm.vm_id)
    asks = asked_at is not None and now - asked_at < ASKED_SECONDS
    if vm.commands is None or (asks and ears.since.get(vm.commands) is None):
        return PULL if asks else None
    was_removed = ears.are_all and vm.commands not in ears.since
    return None if was_removed else vm.commands


def can_be_asked(fleet: Fleet, vm_ids: Iterable[str], now: float, ears: Ears) -> bool:
    """Whether one of some VMs is heard and takes commands."""
    return any(
        channel_of(fleet, vm, now, ears) is not None and contact(vm, now, ears) == "heard"
        for vm_id in vm_ids
        if (vm := fleet.vms.get(vm_id)) is not None
    )


def witnesses(fleet: Fleet, event: Event, now: float, ears: Ears) -> list[Witness]:
    """The VMs that can be asked now, the best first: heard, named by the event, and seeing it as it
    is shown. One that sees it otherwise would only refuse.
    """
    sightings = fleet.sightings.get(event.event_id, {})
    shown = sightings.get(event.shown_by)
    found = []
    for vm_id in set(fleet.named_by(event.event_id).values()) & set(sightings):
        vm, facts = fleet.vms.get(vm_id), sightings[vm_id].facts
        if vm is None or shown is None or not facts.is_same(shown.facts):
            continue
        channel = channel_of(fleet, vm, now, ears)
        if channel is not None and contact(vm, now, ears) == "heard":
            connected = channel == PULL or ears.since.get(channel) is not None
            found.append(
                Witness(vm_id=vm_id, channel=channel, connected=connected, heard_at=vm.heard_at)
            )
    return sorted(found, key=lambda each: (not each.connected, -each.heard_at, each.vm_id))


def first(found: Iterable[Witness], tried: Collection[str] = ()) -> Witness | None:
    """The best VM that this decision has not tried yet; None after the last."""
    return next((each for each in found if each.vm_id not in tried), None)
