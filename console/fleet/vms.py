"""Changes of a VM's row by the messages that come from it."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Final, NamedTuple

from console.fleet.arm_ids import names_by_kind, subscription_and_group
from console.fleet.clocks import with_clock_not_behind
from console.fleet.tags import merged_tags, replaced_tags
from console.fleet.values.keys import name_key
from console.fleet.values.vm import DEFAULT_SITE, FleetName, Vm
from console.records.incoming import IncomingMessage, IncomingRecord, IncomingState, IncomingStatus

_CLOCK_SECONDS: Final = 300.0
"""A record with a time further ahead was made by a wrong clock, and does not count as newer."""
_WITHOUT_SITE: Final = "0.1.0"
"""The version of the bridge whose records have no site."""
_MAX_EARLIER_RUNS: Final = 10
"""How many runs are known again, if their wills come late."""
_NOT_SHOWN: Final = (
    "heard_at",
    "state_at",
    "record_waited",
    "record_time",
    "sequence",
    "stream",
    "instance_id",
    "earlier_instance_ids",
    "lost_instance_id",
    "clock_behind",
    "change_number",
)
"""Fields that change with each heartbeat, or that nothing shows."""
_SHOWN: Final = tuple(each.name for each in fields(Vm) if each.name not in _NOT_SHOWN)


class BorneName(NamedTuple):
    """A VM's place, and the key of its name. Of two VMs with the same, events name only one."""

    place: str
    name_key: str


class LastContact(NamedTuple):
    """When a VM was last heard, over which source, and whether it was lost or retired since."""

    heard_at: float
    heard_source: str
    lost_at: float | None
    retired_at: float | None
    retired_by: str | None


def with_record(
    vm: Vm | None,
    record: IncomingRecord,
    *,
    is_restored: bool = False,
    has_new_store: bool = False,
    clock_behind: float | None = None,
    waited: float = 0.0,
) -> Vm:
    """Return the row after a record that is not a duplicate; an older record only proves contact.

    `is_restored`: its place in the stream was known already, from an earlier state of the disk.
    `has_new_store`: its stream is new, so the record is the newest, whatever the VM's clock says.
    `clock_behind`: from `measured_clock_behind`; None if unchanged. `waited`: from
    `seconds_waited`.
    """
    if vm is None:
        vm = new_vm(record.vm.vm_id, record.vm.name, "", None, record.source)
    counts_again = is_restored and is_later(vm, record)
    is_next = counts_again or has_new_store
    if vm.stream is not None and not is_next and not _is_newer(vm, record):
        return _heard(vm, record.sent_at, record.source)
    identity = record.vm
    known, reported = _known_and_reported_names(vm, record)
    last = _last_contact(vm, record.sent_at, record.source)
    return Vm(  # not `replace`: there are thousands a second, and few fields stay
        vm_id=vm.vm_id,
        name=known.name,
        site=known.site,
        resource_id=known.resource_id,
        subscription_id=known.subscription_id,
        resource_group=known.resource_group,
        location=identity.location,
        zone=identity.zone,
        scale_set=known.scale_set,
        tags=merged_tags(identity.tags, vm.bound_tags) if vm.bound_tags else identity.tags,
        bound_tags=vm.bound_tags,
        replaced_tags=replaced_tags(identity.tags, vm.bound_tags) if vm.bound_tags else {},
        version=record.version,
        instance_id=record.instance_id,
        earlier_instance_ids=_earlier_runs(vm, record.instance_id),
        stream=record.stream,
        sequence=record.sequence,
        record_time=record.time,
        interval=record.interval or vm.interval,
        stopped_at=record.sent_at if record.kind == "stopped" else None,
        lost_instance_id=vm.lost_instance_id,
        record_waited=waited,
        command_source=vm.command_source,
        status_site=vm.status_site,
        prepares=vm.prepares if record.prepares is None else record.prepares,
        missing_records=vm.missing_records,
        pulled_at=vm.pulled_at,
        name_since=vm.name_since,
        reported_as=reported,
        withheld=vm.withheld,
        conflict_at=vm.conflict_at,
        accepted_at=vm.accepted_at,
        clock_behind=vm.clock_behind if clock_behind is None else clock_behind,
        change_number=vm.change_number,
        heard_at=last.heard_at,
        heard_source=last.heard_source,
        state_at=vm.state_at,
        lost_at=last.lost_at,
        retired_at=last.retired_at,
        retired_by=last.retired_by,
    )


def _known_and_reported_names(vm: Vm, record: IncomingRecord) -> tuple[FleetName, FleetName | None]:
    """Return the name by which the fleet knows a VM from now on, and the different one that the
    record reports, or None.

    What is not known yet is learned: everything from the first record; subscription, resource group
    and scale set together, from the first record that has them. What a record leaves out is kept.
    """
    before = vm.known_as
    given = record.vm
    is_first = vm.stream is None
    has_scope = bool(before.subscription_id and before.resource_group)
    says_scope = bool(given.subscription_id and given.resource_group)
    may_say_site = not before.site or (
        before.site == DEFAULT_SITE and vm.version == _WITHOUT_SITE and not vm.accepted_at
    )
    reported = FleetName(
        name=given.name,
        subscription_id=given.subscription_id if says_scope else before.subscription_id,
        resource_group=given.resource_group if says_scope else before.resource_group,
        scale_set=given.scale_set if says_scope else before.scale_set,
        site=record.site or before.site or DEFAULT_SITE,
        resource_id=given.resource_id or before.resource_id,
    )
    if reported == before:
        return reported, None
    is_fresh_name = is_first and before.name == vm.vm_id
    is_fresh_set = not has_scope or (is_first and not before.scale_set)
    known = replace(
        before,
        name=reported.name if is_fresh_name else before.name,
        subscription_id=before.subscription_id if has_scope else reported.subscription_id,
        resource_group=before.resource_group if has_scope else reported.resource_group,
        scale_set=reported.scale_set if is_fresh_set else before.scale_set,
        site=reported.site if may_say_site else before.site,
    )
    return (reported, None) if reported.compared == known.compared else (known, reported)


def as_if_newest(vm: Vm | None, heard: IncomingMessage) -> Vm:
    """Return the row of a VM after a message from it, as if that message were the newest."""
    if isinstance(heard, IncomingRecord):
        return with_record(vm, heard, has_new_store=True)
    return with_status(vm, heard) if isinstance(heard, IncomingStatus) else with_state(vm, heard)


def says_the_same(vm: Vm, heard: IncomingMessage) -> bool:
    """Check whether a message cannot change anything about the VM's name."""
    if vm.conflict_at is not None:
        return False
    if not isinstance(heard, IncomingRecord):
        return True
    reported = heard.vm
    return (
        vm.name == reported.name
        and vm.subscription_id == reported.subscription_id
        and vm.resource_group == reported.resource_group
        and vm.scale_set == reported.scale_set
        and heard.site in (None, vm.site)
    )


def with_status(vm: Vm | None, status: IncomingStatus) -> Vm:
    """Return the row after a status. A VM whose connection was lost is silent at once, unless it
    had stopped.
    """
    if vm is None:
        site = status.site or DEFAULT_SITE
        vm = new_vm(status.vm_id, status.name, site, status.resource_id, status.source)
    if _is_of_earlier_run(status, vm):
        return vm
    source = status.source if status.takes_commands else None
    if vm.command_source != source and (source or vm.command_source == status.source):
        vm = replace(vm, command_source=source)
    if status.is_lost:
        # A retained will is delivered again at each connect.
        if vm.lost_instance_id == status.instance_id:
            return vm
        return replace(vm, lost_at=status.received_at, lost_instance_id=status.instance_id)
    if status.heard_at is not None:
        vm = with_clock_not_behind(vm, status.heard_at, status.received_at)
        at = vm.reported_at(status.heard_at, status.received_at)
        vm = _heard(vm, at, status.source)
    if not status.is_online:
        return vm
    vm = replace(vm, prepares=status.prepares, status_site=status.site)
    returned = vm.stopped_at is not None and status.instance_id != vm.instance_id
    run = status.instance_id if vm.stopped_at is None or returned else vm.instance_id
    return replace(
        vm,
        version=status.version,
        instance_id=run,
        earlier_instance_ids=_earlier_runs(vm, run),
        stopped_at=None if returned else vm.stopped_at,
        lost_at=None,
        lost_instance_id=None,
    )


def _is_of_earlier_run(status: IncomingStatus, vm: Vm) -> bool:
    """Check whether the bridge's run of a status was over when it sent its newest record. A broker
    may bring such a status late: it kept it for a session, or was put back. A record whose time is
    later than its arrival was made by a clock that was ahead: then its arrival is compared. A will
    has no time: it is late if it is that of a run before, or at the topic of a former site.
    """
    if status.instance_id == vm.instance_id:
        return False
    if status.is_lost:
        is_elsewhere = vm.status_site not in (None, status.site)
        return is_elsewhere or status.instance_id in vm.earlier_instance_ids
    if status.heard_at is None:
        return False
    return status.heard_at < min(vm.record_time, vm.heard_at)


def _earlier_runs(vm: Vm, instance_id: str | None) -> tuple[str, ...]:
    """Return the runs before this one, of a VM that is now in this run."""
    if vm.instance_id is None or instance_id == vm.instance_id:
        return vm.earlier_instance_ids
    return (vm.instance_id, *vm.earlier_instance_ids)[:_MAX_EARLIER_RUNS]


def with_state(vm: Vm | None, state: IncomingState) -> Vm:
    """Return the row after a state document, which proves contact at its time."""
    if vm is None:
        site = state.site or DEFAULT_SITE
        vm = new_vm(state.vm_id, state.name, site, state.resource_id, state.source)
    vm = with_clock_not_behind(vm, state.time, state.received_at)
    vm = replace(vm, state_at=state.received_at)
    return _heard(vm, vm.reported_at(state.time, state.received_at), state.source)


def new_vm(vm_id: str, name: str | None, site: str, resource_id: str | None, source: str) -> Vm:
    """Return the row of a VM of which nothing is known but this."""
    subscription, group = subscription_and_group(resource_id)
    scale_set = names_by_kind(resource_id).get("virtualmachinescalesets")
    return Vm(
        vm_id=vm_id,
        name=name or vm_id,
        site=site,
        resource_id=resource_id,
        subscription_id=subscription,
        resource_group=group,
        scale_set=scale_set,
        heard_source=source,
    )


def _heard(vm: Vm, at: float, source: str) -> Vm:
    if at <= vm.heard_at:
        return vm
    return replace(vm, **_last_contact(vm, at, source)._asdict())


def _last_contact(vm: Vm, at: float, source: str) -> LastContact:
    """Return the contact after the VM was heard at a time; unchanged if it was heard
    later already.
    """
    if at <= vm.heard_at:
        return LastContact(vm.heard_at, vm.heard_source, vm.lost_at, vm.retired_at, vm.retired_by)
    is_found = vm.lost_at is not None and at > vm.lost_at
    is_back = vm.retired_at is not None and at > vm.retired_at
    return LastContact(
        heard_at=at,
        heard_source=source,
        lost_at=None if is_found else vm.lost_at,
        retired_at=None if is_back else vm.retired_at,
        retired_by=None if is_back else vm.retired_by,
    )


def is_later(vm: Vm, record: IncomingRecord) -> bool:
    """Check by the VM's clock whether a record was made after its newest one, wherever it is in its
    stream.
    """
    return record.time > vm.record_time


def _is_newer(vm: Vm, record: IncomingRecord) -> bool:
    if vm.stream == record.stream:
        return record.sequence > vm.sequence
    was_ahead = vm.record_time > record.received_at + _CLOCK_SECONDS
    return was_ahead or record.time >= vm.record_time


def borne_name(vm: Vm) -> BorneName:
    """Return a VM's place and the key of its name, as if its name were not withheld."""
    place = (replace(vm, withheld=False) if vm.withheld else vm).place
    return BorneName(place, name_key(vm.name))


def bears_the_same_name(one: Vm, other: Vm) -> bool:
    """Check whether a VM still has its name in its place."""
    if one.known_as == other.known_as:
        return one.withheld == other.withheld
    return borne_name(one) == borne_name(other) and one.withheld == other.withheld


def as_reported(vm: Vm) -> Vm:
    """Return the VM as it will be once a person accepts what it reports of itself."""
    reported = vm.reported_as
    if reported is None:
        return vm
    return replace(
        vm,
        name=reported.name,
        subscription_id=reported.subscription_id,
        resource_group=reported.resource_group,
        scale_set=reported.scale_set,
        site=reported.site,
        resource_id=reported.resource_id,
        reported_as=None,
    )


def is_before(one: Vm, other: Vm) -> bool:
    """Check whether `one` comes before `other` where both keep one name from others: the VM that
    a person accepted last bears it, or else the one that has borne it longer.
    """
    if one.accepted_at != other.accepted_at:
        return one.accepted_at > other.accepted_at
    return one.name_since < other.name_since


def keeps_its_name(vm: Vm, now: float, silent_seconds: float) -> bool:
    """Check whether a VM keeps its name from others: it was heard within `silent_seconds`. A VM
    that has stopped since keeps it too, because an event takes it away only for a while.
    """
    return vm.retired_at is None and now - vm.heard_at <= silent_seconds


def was_heard_lately(vm: Vm, now: float, silent_seconds: float) -> bool:
    """Check whether the VM was heard within half of its silent time, and has not gone since. By
    `console.db.vms.contact` it may be heard for longer: that asks whether a console has listened.
    """
    is_away = (vm.retired_at, vm.stopped_at, vm.lost_at) != (None, None, None)
    return not is_away and now - vm.heard_at <= silent_seconds / 2


def is_change(before: Vm | None, after: Vm, silent_seconds: float) -> bool:
    """Check whether more than the time of its contact has changed: something that pages show, or
    that it is heard again after it was late. `silent_seconds` is the VM's.
    """
    if before is None:
        return True
    if after.heard_at - before.heard_at > silent_seconds / 2:
        return True
    return any(getattr(before, name) != getattr(after, name) for name in _SHOWN)
