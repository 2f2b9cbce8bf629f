"""The rights of a person or a program with one site. Values in, values out."""

from __future__ import annotations

from collections.abc import Iterable

from console.access.people import Person
from console.fleet.values import FleetEvent, Vm


def sees_vm(person: Person, vm: Vm) -> bool:
    """Whether the VM is of the person's site."""
    return person.site is None or vm.site == person.site


def sees_event(person: Person, event: FleetEvent) -> bool:
    """Whether a VM of the person's site has reported the event."""
    return person.site is None or person.site in event.sites


def decides_event(person: Person, event: FleetEvent, named: Iterable[str]) -> bool:
    """Whether the person's site alone is concerned: an approval releases every VM that is named.

    `named` are the sites of the VMs that the event names, as far as they are known.
    """
    return person.site is None or {*event.sites, *named} == {person.site}
