"""VMs of the same kind as those of an event that are due, away or silent: beside the button."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from console.access.people import Person
from console.access.scope import sees_vm
from console.db.grouping import keys_among
from console.db.snapshot import Snapshot
from console.fleet.values import Expectation, HeardVm
from console.fleet.view import decision_on
from console.turns.groups import Grouping

_MAX_SIBLINGS: Final = 50
"""Siblings on the page: more of them would not change what somebody decides."""
_MAX_MATES: Final = 1000
_RANKS: Final = ("away", "silent", "stopped", "due", "scheduled")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sibling:
    """A VM of the same group or scale set, or with the same tags."""

    vm_id: str
    name: str
    state: str
    """`away` (its event has started), `silent`, `stopped`, `due` or `scheduled`."""
    shares: str
    since: float
    """When it was last heard."""
    event_id: str | None = None
    start: float | None = None
    """When its event may start."""


def siblings(
    snapshot: Snapshot, item: Mapping[str, Any], grouping: Grouping, person: Person
) -> list[Sibling]:
    """The siblings of the VMs that an event names, as the API describes it, those that the person
    sees: the worst first.
    """
    vm_ids = [each["vmId"] for each in item["resources"] if each["vmId"]]
    mates = _mates(snapshot, grouping, vm_ids)
    found = snapshot.vms.siblings(vm_ids, limit=_MAX_SIBLINGS, also=sorted(mates)[:_MAX_MATES])
    found = [each for each in found if sees_vm(person, each.vm)]
    if not found:
        return []
    places = {each.vm.place for each in snapshot.vms.some(vm_ids) if each.vm.scale_set}
    expected = snapshot.vms.expectations([each.vm.vm_id for each in found])
    event_ids = {event_id for each in expected.values() for event_id in each.events}
    events = {each.event.event_id: each for each in snapshot.events.some(event_ids)}
    due = {
        event_id
        for event_id, known in events.items()
        if decision_on(known, snapshot.now, snapshot.listening).state in ("due", "second")
    }
    several = []
    for each in found:
        mine = expected.get(each.vm.vm_id, Expectation())
        event_id = next((one for one in mine.events if one in due), next(iter(mine.events), None))
        known = None if event_id is None else events.get(event_id)
        several.append(
            Sibling(
                vm_id=each.vm.vm_id,
                name=each.vm.name,
                state=_state(each, mine, is_due=event_id in due),
                shares=_shared(each, places, mates),
                since=each.vm.heard_at,
                event_id=event_id,
                start=None if known is None else known.event.not_before,
            )
        )
    return sorted(several, key=lambda each: _RANKS.index(each.state))


def _mates(snapshot: Snapshot, grouping: Grouping, vm_ids: Sequence[str]) -> dict[str, str]:
    """The VMs that share a group with some others, and the key of that group."""
    if not grouping.rules:
        return {}
    connection = snapshot.connection
    mine = frozenset().union(*keys_among(connection, grouping, vm_ids).values())
    if not mine:
        return {}
    others = snapshot.vms.away_or_expecting() - set(vm_ids)
    found = keys_among(connection, grouping, others)
    return {vm_id: min(keys & mine) for vm_id, keys in found.items() if keys & mine}


def _shared(heard: HeardVm, places: Collection[str], mates: Mapping[str, str]) -> str:
    if (key := mates.get(heard.vm.vm_id)) is not None:
        return f"group {key}"
    return f"scale set {heard.vm.scale_set}" if heard.vm.place in places else "tags"


def _state(heard: HeardVm, expectation: Expectation, *, is_due: bool) -> str:
    if expectation.condition == "started":
        return "away"
    if heard.contact in ("silent", "stopped"):
        return heard.contact
    return "due" if is_due else "scheduled"
