"""The fleet as it stands, in memory: every VM, and the events that are open.

It is fed with rows after they are committed, and read by pages and API. One thread uses it.
"""

from __future__ import annotations

from collections.abc import Iterable

from console.fleet.values import Event, Receipt, Sighting, Vm

NameKey = tuple[tuple[str, str, str], str]


class Fleet:
    """All VMs, the open events with their witnesses, and who bears which name where."""

    def __init__(self) -> None:
        self.vms: dict[str, Vm] = {}
        self.events: dict[str, Event] = {}
        """Open ones, by event id."""
        self.sightings: dict[str, dict[str, Sighting]] = {}
        """Of open events: by event id, then by vmId."""
        self.receipts: dict[str, list[Receipt]] = {}
        """Of open events, by event id, oldest first."""
        self._names: dict[NameKey, set[str]] = {}
        self._ordered: list[tuple[str, str]] | None = None
        self._conditions: dict[str, tuple[str, list[str]]] | None = None

    def put_vm(self, vm: Vm) -> None:
        """A VM's row as committed."""
        old = self.vms.get(vm.vm_id)
        if old is None or (old.scope, old.name) != (vm.scope, vm.name):
            self._ordered = self._conditions = None
            if old is not None and old.scope is not None:
                self._names.get((old.scope, old.name.casefold()), set()).discard(vm.vm_id)
            if vm.scope is not None:
                self._names.setdefault((vm.scope, vm.name.casefold()), set()).add(vm.vm_id)
        self.vms[vm.vm_id] = vm

    def put_event(self, event: Event, sightings: Iterable[Sighting] = ()) -> None:
        """An event's row as committed, and sightings that changed with it."""
        self._conditions = None
        if event.state == "ended":
            self.events.pop(event.event_id, None)
            self.sightings.pop(event.event_id, None)
            self.receipts.pop(event.event_id, None)
            return
        self.events[event.event_id] = event
        witnesses = self.sightings.setdefault(event.event_id, {})
        for sighting in sightings:
            witnesses[sighting.vm_id] = sighting

    def put_receipt(self, receipt: Receipt) -> None:
        """A receipt as committed; only those of open events are kept."""
        event_id = receipt.facts.event_id
        if event_id is not None and event_id in self.events:
            standing = self.receipts.setdefault(event_id, [])
            if all(each.record_id != receipt.record_id for each in standing):
                standing.append(receipt)

    def ordered(self) -> list[tuple[str, str]]:
        """Every VM by name: name in small letters, and vmId."""
        if self._ordered is None:
            self._ordered = sorted((vm.name.lower(), vm.vm_id) for vm in self.vms.values())
        return self._ordered

    def conditions(self) -> dict[str, tuple[str, list[str]]]:
        """For each VM that an open event names: `scheduled` or `started`, and those events."""
        if self._conditions is None:
            found: dict[str, tuple[str, list[str]]] = {}
            for event in self.events.values():
                for vm_id in set(self.named_by(event.event_id).values()):
                    condition, events = found.get(vm_id, ("scheduled", []))
                    state = "started" if "started" in (condition, event.state) else "scheduled"
                    found[vm_id] = (state, [*events, event.event_id])
            self._conditions = found
        return self._conditions

    def resolve(self, witness: Vm | None, name: str) -> Vm | None:
        """The VM of that name in the witness's own scope; of several, the one last heard."""
        if witness is None:
            return None
        if witness.name.casefold() == name.casefold():
            return witness
        if witness.scope is None:
            return None
        ids = self._names.get((witness.scope, name.casefold()), ())
        found = [self.vms[vm_id] for vm_id in ids]
        return max(found, key=lambda vm: vm.heard_at, default=None)

    def named_by(self, event_id: str) -> dict[str, str]:
        """The VMs that an open event names: vmId by resource name, where it is known."""
        witnesses = self.sightings.get(event_id, {})
        event = self.events[event_id]
        return resolve_names(self, event, witnesses)


def resolve_names(fleet: Fleet, event: Event, witnesses: dict[str, Sighting]) -> dict[str, str]:
    """The vmId of each resource of an event, where it is known."""
    shown = witnesses.get(event.shown_by)
    if shown is None:
        return {}
    own = {
        fleet.vms[vm_id].name.casefold(): vm_id
        for vm_id, sighting in witnesses.items()
        if sighting.facts.affects and vm_id in fleet.vms
    }
    witness = fleet.vms.get(event.shown_by)
    found = {}
    for name in shown.facts.resources:
        vm_id = own.get(name.casefold())
        if vm_id is None:
            vm = fleet.resolve(witness, name)
            vm_id = None if vm is None else vm.vm_id
        if vm_id is not None:
            found[name] = vm_id
    return found
