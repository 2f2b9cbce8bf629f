"""VMs of the same kind as those of an event that are due, away or silent: beside the button."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from console.db.snapshot import Snapshot
from console.fleet.values import Expectation, HeardVm
from console.fleet.view import decision_on

_MOST: Final = 50
"""Siblings on the page: more of them would not change what somebody decides."""
_RANKS: Final = ("away", "silent", "stopped", "due", "scheduled")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sibling:
    """A VM of the same scale set, or with the same tags."""

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


def siblings(snapshot: Snapshot, item: Mapping[str, Any]) -> list[Sibling]:
    """The siblings of the VMs that an event names, as the API describes it: the worst first."""
    vm_ids = [each["vmId"] for each in item["resources"] if each["vmId"]]
    found = snapshot.vms.siblings(vm_ids, limit=_MOST)
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
                shares=f"scale set {each.vm.scale_set}" if each.vm.place in places else "tags",
                since=each.vm.heard_at,
                event_id=event_id,
                start=None if known is None else known.event.not_before,
            )
        )
    return sorted(several, key=lambda each: _RANKS.index(each.state))


def _state(heard: HeardVm, expectation: Expectation, *, is_due: bool) -> str:
    if expectation.condition == "started":
        return "away"
    if heard.contact in ("silent", "stopped"):
        return heard.contact
    return "due" if is_due else "scheduled"
