"""Changes of a VM's row by the messages that come from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Final, NamedTuple

from console.fleet.contact import DEFAULT_INTERVAL
from console.fleet.values import DEFAULT_SITE, FleetName, Stream, Vm, folded
from console.records.incoming import Incoming, IncomingRecord, IncomingState, IncomingStatus

Bearing = tuple[str, str]
"""A VM's place and folded name. If two VMs have the same, events name only one of them."""
_CLOCK_SECONDS: Final = 300.0
"""A record with a time further ahead was made by a wrong clock, and does not count as newer."""
_RIGHT_SECONDS: Final = 60.0
"""A clock that is behind by no more counts as right: records take some time to arrive."""
_STEADY_SECONDS: Final = 5.0
"""How much the delays of two heartbeats may differ that came without waiting."""
_WITHOUT_SITE: Final = "0.1.0"
"""The version of the bridge whose records have no site."""
_NOT_SHOWN: Final = (
    "heard_at",
    "record_time",
    "sequence",
    "stream",
    "session",
    "lost_session",
    "clock_behind",
    "change_number",
)
"""Fields that change with each heartbeat, or that nothing shows."""
_SHOWN: Final = tuple(each.name for each in fields(Vm) if each.name not in _NOT_SHOWN)


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
    put_back: bool = False,
    has_new_store: bool = False,
    clock_behind: float | None = None,
) -> Vm:
    """Return the row after a record that is not a duplicate; an older record only proves contact.

    `put_back`: its place in the stream was known already, from an earlier state of the VM's disk.
    `has_new_store`: its stream is new, so the record is the newest, whatever the VM's clock says.
    `clock_behind`: from `measured_clock_behind`; None if unchanged.
    """
    if vm is None:
        vm = _new(record.vm.vm_id, record.vm.name, "", None, record.source)
    counts_again = put_back and is_later(vm, record)
    is_next = counts_again or has_new_store
    if vm.stream is not None and not is_next and not _is_newer(vm, record):
        return _heard(vm, record.sent_at, record.source)
    identity = record.vm
    known, reported = _identified(vm, record)
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
        version=record.version,
        session=record.session,
        stream=record.stream,
        sequence=record.sequence,
        record_time=record.time,
        interval=record.interval or vm.interval,
        stopped_at=record.sent_at if record.kind == "stopped" else None,
        lost_session=vm.lost_session,
        command_source=vm.command_source,
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
        lost_at=last.lost_at,
        retired_at=last.retired_at,
        retired_by=last.retired_by,
    )


def measured_clock_behind(
    vm: Vm | None, stream: Stream | None, record: IncomingRecord
) -> float | None:
    """Return how many seconds a VM's clock is behind the console's, after a record; None if the
    record does not show it. `stream`: as it was before.

    A record may arrive hours late, with the time at which it was made. But if two heartbeats arrive
    as far apart as they were made, neither of them has waited.
    """
    if vm is None:
        return None
    lag = record.sent_at - record.time
    if lag < vm.clock_behind:
        return _not_behind(vm, record.time, record.sent_at).clock_behind
    if record.kind != "heartbeat" or lag <= _RIGHT_SECONDS or stream is None:
        return None
    if stream.beat_time is None or stream.beat_lag is None or record.sequence <= stream.high:
        return None
    steady = min(_STEADY_SECONDS, (record.interval or DEFAULT_INTERVAL) / 4)
    is_later = record.time - stream.beat_time > steady
    is_steady = is_later and abs(lag - stream.beat_lag) <= steady
    return min(lag, stream.beat_lag) if is_steady else None


def _not_behind(vm: Vm, time: float, received_at: float) -> Vm:
    """Return the VM after a time that it reported. If that came in sooner than the clock was
    thought to allow, the clock is less far behind.
    """
    lag = received_at - time
    if lag >= vm.clock_behind:
        return vm
    return replace(vm, clock_behind=lag if lag > _RIGHT_SECONDS else 0.0)


def _identified(vm: Vm, record: IncomingRecord) -> tuple[FleetName, FleetName | None]:
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


def as_if_newest(vm: Vm | None, heard: Incoming) -> Vm:
    """Return the row of a VM after a message from it, as if that message were the newest."""
    if isinstance(heard, IncomingRecord):
        return with_record(vm, heard, has_new_store=True)
    return with_status(vm, heard) if isinstance(heard, IncomingStatus) else with_state(vm, heard)


def says_the_same(vm: Vm, heard: Incoming) -> bool:
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
        vm = _new(status.vm_id, status.name, site, status.resource_id, status.source)
    if _is_of_earlier_run(status, vm):
        return vm
    source = status.source if status.commands else None
    if vm.command_source != source and (source or vm.command_source == status.source):
        vm = replace(vm, command_source=source)
    if status.lost:
        if vm.lost_session == status.session:  # a retained will is delivered again at each connect
            return vm
        return replace(vm, lost_at=status.received_at, lost_session=status.session)
    if status.heard_at is not None:
        vm = _not_behind(vm, status.heard_at, status.received_at)
        at = vm.reported_at(status.heard_at, status.received_at)
        vm = _heard(vm, at, status.source)
    if not status.online:
        return vm
    vm = replace(vm, prepares=status.prepares)
    returned = vm.stopped_at is not None and status.session != vm.session
    return replace(
        vm,
        version=status.version,
        session=status.session if vm.stopped_at is None or returned else vm.session,
        stopped_at=None if returned else vm.stopped_at,
        lost_at=None,
        lost_session=None,
    )


def _is_of_earlier_run(status: IncomingStatus, vm: Vm) -> bool:
    """Check whether the bridge's run of a status was over when it sent its newest record. A broker
    may bring such a status late: it kept it for a session, or was put back.
    """
    if status.heard_at is None or status.session == vm.session:
        return False
    return status.heard_at < vm.record_time


def with_state(vm: Vm | None, state: IncomingState) -> Vm:
    """Return the row after a state document, which proves contact at its time."""
    if vm is None:
        site = state.site or DEFAULT_SITE
        vm = _new(state.vm_id, state.name, site, state.resource_id, state.source)
    vm = _not_behind(vm, state.time, state.received_at)
    return _heard(vm, vm.reported_at(state.time, state.received_at), state.source)


def _new(vm_id: str, name: str | None, site: str, resource_id: str | None, source: str) -> Vm:
    subscription, group = _of_resource(resource_id)
    scale_set = _kinds_of(resource_id).get("virtualmachinescalesets")
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


def enrolled(vm_id: str, resource_id: str | None, site: str | None, *, at: float) -> Vm:
    """Return the row of a VM that was not heard yet, from what an admin gave at a moment."""
    kinds = _kinds_of(resource_id)
    # The id of an instance of a scale set has its number, and not its name.
    name = None if "virtualmachinescalesets" in kinds else kinds.get("virtualmachines")
    vm = _new(vm_id, name, site or "", resource_id, "")
    return replace(vm, accepted_at=at if name else 0.0)


def with_enrolled_identity(vm: Vm, *, resource_id: str | None, site: str | None) -> Vm:
    """Return a VM as if it reported what an admin gave, so that this can be accepted."""
    reported = enrolled(vm.vm_id, resource_id, site, at=0.0)
    known = vm.reported_as or vm.known_as
    if resource_id is not None:
        known = replace(
            known,
            name=known.name if reported.name == vm.vm_id else reported.name,
            subscription_id=reported.subscription_id,
            resource_group=reported.resource_group,
            scale_set=reported.scale_set or known.scale_set,
            resource_id=resource_id,
        )
    else:
        known = vm.known_as
    return replace(vm, reported_as=replace(known, site=site or known.site))


def with_bound_tags(vm: Vm, tags: Mapping[str, str]) -> Vm:
    """Return the row of a VM with these tags from an admin, instead of earlier ones."""
    former = {name.casefold() for name in vm.bound_tags}
    own = {name: value for name, value in vm.tags.items() if name.casefold() not in former}
    return replace(vm, bound_tags=tags, tags=merged_tags(own, tags))


def merged_tags(tags: Mapping[str, str], bound: Mapping[str, str]) -> dict[str, str]:
    """Return tags with those of an admin, which replace tags of the same name in any case: to
    Azure, and to groups, that is one name.
    """
    names = {name.casefold() for name in bound}
    return {name: value for name, value in tags.items() if name.casefold() not in names} | {**bound}


def is_resource_id(text: str) -> bool:
    """Check whether a text is the ARM id of a VM, or of an instance of a scale set."""
    parts = text.split("/")
    is_whole = text.isprintable() and len(parts) % 2 == 1 and all(parts[1:]) and not parts[0]
    kinds = {each.lower() for each in parts[1::2]}
    return is_whole and None not in _of_resource(text) and "virtualmachines" in kinds


def _kinds_of(resource_id: str | None) -> dict[str, str]:
    """Return the names in an ARM id, by their kinds in lower case."""
    parts = (resource_id or "").split("/")
    return {kind.lower(): name for kind, name in zip(parts[1::2], parts[2::2], strict=False)}


def _of_resource(resource_id: str | None) -> tuple[str | None, str | None]:
    """Return subscription and resource group of an ARM id."""
    parts = (resource_id or "").split("/")
    lower = [part.lower() for part in parts]
    if lower[1:2] == ["subscriptions"] and lower[3:4] == ["resourcegroups"] and len(parts) > 4:  # noqa: PLR2004
        return parts[2], parts[4]
    return None, None


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


def bearing(vm: Vm) -> Bearing:
    """Return the place and folded name of a VM, as if its name were not withheld."""
    return (replace(vm, withheld=False) if vm.withheld else vm).place, folded(vm.name)


def bears_the_same_name(one: Vm, other: Vm) -> bool:
    """Check whether a VM still has its name in its place."""
    if one.known_as == other.known_as:
        return one.withheld == other.withheld
    return bearing(one) == bearing(other) and one.withheld == other.withheld


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


def is_heard(vm: Vm, now: float, silent_seconds: float) -> bool:
    """Check whether the VM's contact is `heard`, as `console.db.vms.contact` finds it in SQL."""
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
