"""A VM as the API and the pages show it: the class of each answer, and the function that makes
it.
"""

from __future__ import annotations

from console.fleet.contact import Contact
from console.fleet.model import Model, Moment
from console.fleet.timeline import MissingRecords, PastEvent, TimelineEntry
from console.fleet.values.decision import Assignment
from console.fleet.values.vm import Condition, Expectation, HeardVm, Vm


class ReportedIdentity(Model):
    """What a VM reports of itself."""

    name: str
    site: str
    resource_id: str | None
    subscription_id: str | None
    resource_group: str | None
    scale_set: str | None


class VmConflict(Model):
    """The contradiction about a VM: it reports another identity than it is known by, or its name is
    that of another VM that was heard lately (`isTaken`). A person sends `id` back to accept what it
    reports.
    """

    id: str
    since: Moment | None
    is_taken: bool
    said: ReportedIdentity


class VmItem(Model):
    """A VM as a list shows it."""

    vm_id: str
    name: str
    site: str
    resource_id: str | None
    location: str | None
    zone: str | None
    scale_set: str | None
    contact: Contact
    condition: Condition
    last_heard_at: Moment | None
    bridge_version: str | None
    prepares: bool
    gaps: int
    conflict: VmConflict | None
    events: list[str]
    taken_by: str | None
    taken_until: Moment | None


class VmDetail(VmItem):
    """A VM with its history."""

    subscription_id: str | None
    resource_group: str | None
    tags: dict[str, str]
    takes_commands: bool
    retired_by: str | None
    missing: list[MissingRecords]
    history: list[PastEvent]
    timeline: list[TimelineEntry]


def vm_item(
    heard: HeardVm,
    expectation: Expectation,
    assigned: Assignment | None = None,
) -> VmItem:
    """Return a VM as `/api/v1/vms` lists it."""
    vm = heard.vm
    return VmItem(
        vm_id=vm.vm_id,
        name=vm.name,
        site=vm.site,
        resource_id=vm.resource_id,
        location=vm.location,
        zone=vm.zone,
        scale_set=vm.scale_set,
        contact=heard.contact,
        condition=expectation.condition,
        last_heard_at=vm.heard_at,
        bridge_version=vm.version,
        prepares=vm.prepares,
        gaps=vm.missing_records,
        conflict=_vm_conflict(vm),
        events=list(expectation.events),
        taken_by=None if assigned is None else assigned.actor,
        taken_until=None if assigned is None else assigned.until,
    )


def _vm_conflict(vm: Vm) -> VmConflict | None:
    """Return what contradicts a VM's name or place, or None."""
    if vm.conflict_at is None:
        return None
    reported = vm.reported_as or vm.known_as
    return VmConflict(
        id=reported.id,
        since=vm.conflict_at,
        is_taken=vm.withheld,
        said=ReportedIdentity(
            name=reported.name,
            site=reported.site,
            resource_id=reported.resource_id,
            subscription_id=reported.subscription_id,
            resource_group=reported.resource_group,
            scale_set=reported.scale_set,
        ),
    )
