"""The fleet as it stands, in memory: every VM, and the events that are open.

It is fed with rows after they are committed, and read by pages and API. One thread uses it. A row
costs what it changes, however large the fleet is.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping
from dataclasses import replace

from console.fleet.values import UNDECIDED, Command, Decided, Decision, Event, Receipt, Sighting, Vm

NameKey = tuple[tuple[str, str, str], str]
CLEAR = "clear"


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
        self.decided: dict[str, Decided] = {}
        """On open events, and what is not over yet, by event id."""
        self.asked: dict[str, float] = {}
        """When a VM last asked the HTTPS channel, by vmId; seconds since 1970."""
        self.ordered: list[tuple[str, str]] = []
        """Every VM by name: name in small letters, and vmId."""
        self._bearers: dict[NameKey, set[str]] = {}
        """The vmIds that bear a name in a scope."""
        self._mentions: dict[str, set[str]] = {}
        """The open events whose resources have a name."""
        self._named: dict[str, dict[str, str]] = {}
        """For each open event: vmId by resource name, where it is known."""
        self._naming: dict[str, set[str]] = {}
        """For each VM that is named: the open events that name it."""

    def put_vm(self, vm: Vm) -> None:
        """A VM's row as committed."""
        old = self.vms.get(vm.vm_id)
        self.vms[vm.vm_id] = vm
        if old is not None and old.name == vm.name and old.scope == vm.scope:
            return
        if old is not None:
            self._forget_name(old)
        insort(self.ordered, (vm.name.lower(), vm.vm_id))
        if vm.scope is not None:
            self._bearers.setdefault((vm.scope, vm.name.casefold()), set()).add(vm.vm_id)
        names = {vm.name.casefold()} | (set() if old is None else {old.name.casefold()})
        for event_id in {one for name in names for one in self._mentions.get(name, ())}:
            self._name(self.events[event_id])

    def put_event(self, event: Event, sightings: Iterable[Sighting] = ()) -> None:
        """An event's row as committed, and sightings that changed with it."""
        event_id = event.event_id
        if event.state == "ended":
            self._forget_event(event_id)
            return
        self.events[event_id] = event
        witnesses = self.sightings.setdefault(event_id, {})
        for sighting in sightings:
            witnesses[sighting.vm_id] = sighting
        self._name(event)

    def put_receipt(self, receipt: Receipt) -> None:
        """A receipt as committed; only those of open events are kept."""
        event_id = receipt.facts.event_id
        if event_id is not None and event_id in self.events:
            standing = self.receipts.setdefault(event_id, [])
            if all(each.record_id != receipt.record_id for each in standing):
                standing.append(receipt)

    def put_decision(self, decision: Decision) -> None:
        """A decision's row as committed; the newest one of an event is shown."""
        decided = self.decided.get(decision.event_id, UNDECIDED)
        known = decided.decision
        if known is None or known.id == decision.id or known.at <= decision.at:
            self.decided[decision.event_id] = replace(decided, decision=decision)
        self._forget_decided(decision.event_id)

    def put_command(self, command: Command) -> None:
        """A command's row as committed."""
        decided = self.decided.get(command.event_id, UNDECIDED)
        commands = [each for each in decided.commands if each.jti != command.jti]
        ordered = sorted([*commands, command], key=lambda each: each.made_at)
        self.decided[command.event_id] = replace(decided, commands=tuple(ordered))
        self._forget_decided(command.event_id)

    def named_by(self, event_id: str) -> Mapping[str, str]:
        """The VMs that an open event names: vmId by resource name, where it is known."""
        return self._named.get(event_id, {})

    def condition(self, vm_id: str) -> tuple[str, list[str]]:
        """What a VM expects, and the open events that name it."""
        events = self._naming.get(vm_id)
        if not events:
            return CLEAR, []
        started = any(self.events[event_id].state == "started" for event_id in events)
        return "started" if started else "scheduled", sorted(events)

    def expecting(self) -> Iterable[str]:
        """The VMs that an open event names."""
        return [vm_id for vm_id in self._naming if vm_id in self.vms]

    def resolve(self, event: Event, witnesses: Mapping[str, Sighting]) -> dict[str, str]:
        """The vmId of each resource of an event, in the scope of the witness that shows it.

        Of several VMs that have borne a name there: one that reported the event, or the one that
        was heard last.
        """
        shown = witnesses.get(event.shown_by)
        if shown is None:
            return {}
        witness = self.vms.get(event.shown_by)
        found = {}
        for name in shown.facts.resources:
            folded = name.casefold()
            if witness is not None and witness.name.casefold() == folded:
                found[name] = witness.vm_id
            elif witness is not None and witness.scope is not None:
                bearers = self._bearers.get((witness.scope, folded))
                if bearers:
                    found[name] = max(
                        bearers, key=lambda one: (one in witnesses, self.vms[one].heard_at)
                    )
        return found

    def _name(self, event: Event) -> None:
        """Find out anew which VMs an open event names."""
        event_id = event.event_id
        witnesses = self.sightings[event_id]
        old, new = self._named.get(event_id, {}), self.resolve(event, witnesses)
        shown = witnesses.get(event.shown_by)
        for name in shown.facts.resources if shown is not None else ():
            self._mentions.setdefault(name.casefold(), set()).add(event_id)
        if old == new:
            return
        for vm_id in set(old.values()) - set(new.values()):
            self._unname(vm_id, event_id)
        for vm_id in new.values():
            self._naming.setdefault(vm_id, set()).add(event_id)
        self._named[event_id] = new

    def _unname(self, vm_id: str, event_id: str) -> None:
        naming = self._naming.get(vm_id, set())
        naming.discard(event_id)
        if not naming:
            self._naming.pop(vm_id, None)

    def _forget_name(self, vm: Vm) -> None:
        at = bisect_left(self.ordered, (vm.name.lower(), vm.vm_id))
        del self.ordered[at]
        if vm.scope is not None:
            self._bearers[(vm.scope, vm.name.casefold())].discard(vm.vm_id)

    def _forget_decided(self, event_id: str) -> None:
        decision = self.decided.get(event_id, UNDECIDED).decision
        if event_id not in self.events and (decision is None or decision.state == "over"):
            self.decided.pop(event_id, None)

    def _forget_event(self, event_id: str) -> None:
        self.events.pop(event_id, None)
        self.receipts.pop(event_id, None)
        self._forget_decided(event_id)
        for vm_id in set(self._named.pop(event_id, {}).values()):
            self._unname(vm_id, event_id)
        for sighting in self.sightings.pop(event_id, {}).values():
            for name in sighting.facts.resources:
                mentions = self._mentions.get(name.casefold(), set())
                mentions.discard(event_id)
                if not mentions:
                    self._mentions.pop(name.casefold(), None)
