"""How a VM's row changes by what is heard of it."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, Final

from console.fleet.values import DEFAULT_SITE, Vm
from console.records.incoming import IncomingRecord, IncomingState, IncomingStatus

Contact = tuple[float, str, float | None, float | None, str | None]
_CLOCK_SECONDS: Final = 300.0
"""A record from further ahead was made by a clock that was wrong, and is not newer than others."""
_NAME: Final = ("name", "subscription_id", "resource_group", "scale_set")
_NOT_SHOWN: Final = (
    "heard_at",
    "record_time",
    "sequence",
    "stream",
    "session",
    "lost_session",
    "changed",
)
"""Fields that change with each heartbeat, or that nothing shows."""
_SHOWN: Final = tuple(each.name for each in fields(Vm) if each.name not in _NOT_SHOWN)
_CONTACT: Final = ("heard_at", "heard_by", "lost_at", "retired_at", "retired_by")


def with_record(vm: Vm | None, record: IncomingRecord) -> Vm:
    """The row after a record that is not a duplicate; an older one only proves contact."""
    if vm is None:
        vm = Vm(vm_id=record.vm.vm_id, name=record.vm.name)
    if vm.stream is not None and not _is_newer(vm, record):
        return _heard(vm, record.sent_at, record.source)
    identity = record.vm
    heard_at, heard_by, lost_at, retired_at, retired_by = _contact(
        vm, record.sent_at, record.source
    )
    return Vm(  # not `replace`: there are thousands a second, and few fields stay
        vm_id=vm.vm_id,
        name=identity.name,
        site=record.site or vm.site,
        resource_id=identity.resource_id,
        subscription_id=identity.subscription_id,
        resource_group=identity.resource_group,
        location=identity.location,
        zone=identity.zone,
        scale_set=identity.scale_set,
        tags=identity.tags,
        version=record.version,
        session=record.session,
        stream=record.stream,
        sequence=record.sequence,
        record_time=record.time,
        interval=record.interval or vm.interval,
        stopped_at=record.sent_at if record.kind == "stopped" else None,
        lost_session=vm.lost_session,
        commands=vm.commands,
        prepares=vm.prepares if record.prepares is None else record.prepares,
        missing=vm.missing,
        pulled_at=vm.pulled_at,
        first_at=vm.first_at,
        changed=vm.changed,
        heard_at=heard_at,
        heard_by=heard_by,
        lost_at=lost_at,
        retired_at=retired_at,
        retired_by=retired_by,
    )


def with_contact(vm: Vm, record: IncomingRecord) -> Vm:
    """The row after a heartbeat that says nothing new but that the VM is there."""
    heard = _heard(vm, record.sent_at, record.source)
    return replace(heard, record_time=record.time)


def with_status(vm: Vm | None, status: IncomingStatus) -> Vm:
    """The row after a status; one that was lost is silent at once, unless it had stopped."""
    if vm is None:
        vm = _new(status.vm_id, status.name, status.site, status.resource_id, status.source)
    commands = status.source if status.commands else None
    if vm.commands != commands and (commands or vm.commands == status.source):
        vm = replace(vm, commands=commands)
    if status.lost:
        if vm.lost_session == status.session:  # a retained will says it again at each connect
            return vm
        return replace(vm, lost_at=status.received_at, lost_session=status.session)
    if status.heard_at is not None:
        vm = _heard(vm, status.heard_at, status.source)
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


def with_state(vm: Vm | None, state: IncomingState) -> Vm:
    """The row after a state document, which proves contact at the time that it names."""
    if vm is None:
        vm = _new(state.vm_id, state.name, state.site, state.resource_id, state.source)
    return _heard(vm, min(state.time, state.received_at), state.source)


def _new(vm_id: str, name: str | None, site: str, resource_id: str | None, source: str) -> Vm:
    subscription, group = _of_resource(resource_id)
    return Vm(
        vm_id=vm_id,
        name=name or vm_id,
        site=site or DEFAULT_SITE,
        resource_id=resource_id,
        subscription_id=subscription,
        resource_group=group,
        heard_by=source,
    )


def _of_resource(resource_id: str | None) -> tuple[str | None, str | None]:
    """Subscription and resource group of an ARM id."""
    parts = (resource_id or "").split("/")
    lower = [part.lower() for part in parts]
    if lower[1:2] == ["subscriptions"] and lower[3:4] == ["resourcegroups"] and len(parts) > 4:  # noqa: PLR2004
        return parts[2], parts[4]
    return None, None


def _heard(vm: Vm, at: float, source: str) -> Vm:
    if at <= vm.heard_at:
        return vm
    heard: dict[str, Any] = dict(zip(_CONTACT, _contact(vm, at, source), strict=True))
    return replace(vm, **heard)


def _contact(vm: Vm, at: float, source: str) -> Contact:
    """The fields of `_CONTACT` by hearing it at a time; as they are if it was heard later."""
    if at <= vm.heard_at:
        return vm.heard_at, vm.heard_by, vm.lost_at, vm.retired_at, vm.retired_by
    is_found = vm.lost_at is not None and at > vm.lost_at
    is_back = vm.retired_at is not None and at > vm.retired_at
    return (
        at,
        source,
        None if is_found else vm.lost_at,
        None if is_back else vm.retired_at,
        None if is_back else vm.retired_by,
    )


def _is_newer(vm: Vm, record: IncomingRecord) -> bool:
    if vm.stream == record.stream:
        return record.sequence > vm.sequence
    was_ahead = vm.record_time > record.received_at + _CLOCK_SECONDS
    return was_ahead or record.time >= vm.record_time


def bears_the_same_name(one: Vm, other: Vm) -> bool:
    """Whether a VM has the name, in the place, that it had before: one that takes another's name is
    a newcomer there, however long it has been known.
    """
    return all(getattr(one, name) == getattr(other, name) for name in _NAME)


def is_heard(vm: Vm, now: float, patience: float) -> bool:
    """Whether the VM's contact is `heard`, as `console.db.contact` finds it from the rows."""
    is_away = (vm.retired_at, vm.stopped_at, vm.lost_at) != (None, None, None)
    return not is_away and now - vm.heard_at <= patience / 2


def is_change(before: Vm | None, after: Vm, patience: float) -> bool:
    """Whether more than the time of its contact has changed: something that pages show, or that it
    is heard again after it was late; `patience` is the VM's, in seconds.
    """
    if before is None:
        return True
    if after.heard_at - before.heard_at > patience / 2:
        return True
    return any(getattr(before, name) != getattr(after, name) for name in _SHOWN)
