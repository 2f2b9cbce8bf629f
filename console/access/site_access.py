"""Which VMs and events a person or a program of one site may see and decide. Values in, values
out.
"""

from __future__ import annotations

from collections.abc import Iterable

from console.access.people import Person
from console.fleet.values.event import FleetEvent
from console.fleet.values.vm import Vm


def sees_vm(person: Person, vm: Vm) -> bool:
    """Check whether the VM is of the person's site."""
    return person.site is None or vm.site == person.site


def sees_event(person: Person, event: FleetEvent) -> bool:
    """Check whether a VM of the person's site has reported the event."""
    return person.site is None or person.site in event.sites


def decides_event(person: Person, event: FleetEvent, named: Iterable[str]) -> bool:
    """Check whether the event concerns only the person's site: an approval affects every VM that it
    names. `named` are the known sites of these VMs.
    """
    return person.site is None or {*event.sites, *named} == {person.site}
