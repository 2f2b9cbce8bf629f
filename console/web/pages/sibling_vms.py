"""Finds VMs like those of an event that are due, away or silent, for a list beside the button."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from console.access.people import Person
from console.access.site_access import sees_vm
from console.db.snapshot import Snapshot
from console.db.vms.expectations import expectations_of
from console.db.vms.grouping import keys_among
from console.db.vms.sibling_vms import away_or_expecting_vm_ids, vms_and_siblings
from console.fleet.decisions import only_hastens_deletion
from console.fleet.event_view import EventItem, decision_on
from console.fleet.values.vm import Expectation, HeardVm, NameFamily, Vm
from console.turns.groups import Grouping

_MAX_SIBLINGS: Final = 50
"""The most siblings on the page: more would not change a decision."""
_MAX_OF_GROUPS: Final = 1000
_RANKS: Final = ("away", "silent", "stopped", "due", "leaving", "scheduled")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sibling:
    """A VM of the same group or scale set, with the same tags, or with a similar name."""

    vm_id: str
    name: str
    state: str
    """`away` (its event has started), `silent`, `stopped`, `due`, `leaving` (an eviction or a
    deletion is announced, which needs no decision) or `scheduled`.
    """
    shares: str = ""
    """What it shares with the VMs of the event."""
    since: float
    """When it was last heard."""
    event_id: str | None = None
    start: float | None = None
    """When its event may start."""


def siblings(
    snapshot: Snapshot, several: Sequence[EventItem], grouping: Grouping, person: Person
) -> list[list[Sibling]]:
    """Return, for each event, the siblings of the VMs that it names, as far as the person sees
    them; the worst first.
    """
    named = [{each.vm_id for each in event.resources if each.vm_id} for event in several]
    vm_ids = set[str]().union(*named)
    group_keys = _group_keys(snapshot, grouping, vm_ids)
    found = vms_and_siblings(
        snapshot.vms,
        vm_ids,
        limit=_MAX_SIBLINGS * len(several),
        also=sorted(group_keys)[:_MAX_OF_GROUPS],
    )
    found = [each for each in found if sees_vm(person, each.vm)]
    if not found:
        return [[] for _ in several]
    vms = {each.vm.vm_id: each.vm for each in snapshot.vms.vms_with_ids(vm_ids)}
    rows = _rows(snapshot, found)

    def of_event(own: Collection[str]) -> list[Sibling]:
        traits = _Traits.of([vms[vm_id] for vm_id in own if vm_id in vms], group_keys)
        shown = [
            replace(rows[each.vm.vm_id], shares=shares)
            for each in found
            if each.vm.vm_id not in own and (shares := traits.shared_with(each.vm)) is not None
        ]
        return sorted(shown, key=lambda each: _RANKS.index(each.state))[:_MAX_SIBLINGS]

    return [of_event(each) for each in named]


def _rows(snapshot: Snapshot, found: Sequence[HeardVm]) -> dict[str, Sibling]:
    """Return these VMs by vmId, each with its state, and with the event that is shown of it: one
    that is due before others.
    """
    expected = expectations_of(snapshot.connection, [each.vm.vm_id for each in found])
    event_ids = {event_id for each in expected.values() for event_id in each.events}
    events = {each.event.event_id: each for each in snapshot.events.events_with_ids(event_ids)}
    leaving = {
        event_id
        for event_id, known in events.items()
        if only_hastens_deletion(known.event.event_type)
    }
    due = {
        event_id
        for event_id, known in events.items()
        if event_id not in leaving
        and decision_on(known, snapshot.now, snapshot.listening).state in ("due", "second")
    }
    rows = {}
    for each in found:
        own = expected.get(each.vm.vm_id, Expectation())
        event_id = min(own.events, key=lambda one: (one not in due, one not in leaving), default="")
        known = events.get(event_id)
        rows[each.vm.vm_id] = Sibling(
            vm_id=each.vm.vm_id,
            name=each.vm.name,
            state=_state(each, own, event_id, due=due, leaving=leaving),
            since=each.vm.heard_at,
            event_id=event_id or None,
            start=None if known is None else known.event.not_before,
        )
    return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class _Traits:
    """The groups, scale sets, tags and names that the VMs of one event can share with other VMs."""

    groups: frozenset[str]
    group_keys: Mapping[str, frozenset[str]]
    """The keys of the groups of VMs, by vmId."""
    places: Collection[str]
    tags: Sequence[Mapping[str, str]]
    name_families: Collection[NameFamily]

    @classmethod
    def of(cls, vms: Sequence[Vm], group_keys: Mapping[str, frozenset[str]]) -> _Traits:
        """Return what those VMs can share with others; `group_keys` has their own groups too."""
        return cls(
            groups=frozenset().union(*(group_keys.get(each.vm_id, frozenset()) for each in vms)),
            group_keys=group_keys,
            places={each.place for each in vms if each.scale_set},
            tags=[each.tags for each in vms if each.tags],
            name_families={found for each in vms if (found := each.name_family) is not None},
        )

    def shared_with(self, vm: Vm) -> str | None:
        """Return what another VM shares with them; None if it shares nothing."""
        if keys := self.group_keys.get(vm.vm_id, frozenset()) & self.groups:
            return f"group {min(keys)}"
        if vm.scale_set and vm.place in self.places:
            return f"scale set {vm.scale_set}"
        if vm.tags and vm.tags in self.tags:
            return "tags"
        if vm.name_family in self.name_families:
            return f"resource group {vm.resource_group}, and a similar name"
        return None


def _group_keys(
    snapshot: Snapshot, grouping: Grouping, vm_ids: Collection[str]
) -> dict[str, frozenset[str]]:
    """Return the keys of the groups of some VMs, and of those VMs that share a group with one of
    them.
    """
    if not grouping.settings:
        return {}
    connection = snapshot.connection
    own = keys_among(connection, grouping, vm_ids)
    wanted = frozenset().union(*own.values())
    if not wanted:
        return {}
    others = away_or_expecting_vm_ids(snapshot.vms) - set(vm_ids)
    found = keys_among(connection, grouping, others)
    return own | {vm_id: keys for vm_id, keys in found.items() if keys & wanted}


def _state(
    heard: HeardVm,
    expectation: Expectation,
    event_id: str,
    *,
    due: Collection[str],
    leaving: Collection[str],
) -> str:
    if expectation.condition == "started":
        return "away"
    if heard.contact in ("silent", "stopped"):
        return heard.contact
    if event_id in due:
        return "due"
    return "leaving" if event_id in leaving else "scheduled"
