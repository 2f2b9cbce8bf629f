"""Notices about VMs that have fallen silent, have not come back after their event, or are heard
again.

The open incidents are an argument, so that several consoles, or one and its restart, send each
notice once. An incident ends with the key that it was opened with.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from console.db.notices import Incident
from console.fleet.contact import Contact
from console.fleet.moments import moment
from console.fleet.values.event import KnownEvent
from console.fleet.values.vm import Vm
from console.notify.incidents import IncidentNotices, group_notice, is_gathered, vm_path
from console.notify.notice import Notice, NoticeKind, short

PATIENCE_SECONDS: Final = 30.0
"""How long a VM must be silent until there is a notice: connections come and go."""
RETURN_SECONDS: Final = 600.0
"""How long a VM may take to come back after the start of its event, in addition to its duration."""
AWAY_SECONDS: Final = 3600.0
"""The longest time for which a VM is awaited in addition to that, whatever duration its event is
said to have: once the VM is silent, peers can report any duration.
"""
_DELETES: Final = "delete"
_SILENT_VMS: Final = "/fleet?contact=silent"


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitedReturn:
    """The event that has taken a VM away, and when the VM should be back (`due`)."""

    event_id: str
    kind: str
    due: float


@dataclass(frozen=True, slots=True, kw_only=True)
class VmToCheck:
    """A VM at the time of one check; `since`: when it fell silent, if it is."""

    vm: Vm
    contact: Contact
    since: float
    awaited_return: AwaitedReturn | None = None


def vm_notices(
    vms: Sequence[VmToCheck], incidents: Mapping[str, Incident], now: float
) -> IncidentNotices:
    """Return the notices about VMs, given the open incidents, by vmId."""
    result = IncidentNotices()
    _add_not_back(result, vms, incidents, now)
    _add_silent(result, [each for each in vms if each.vm.vm_id not in incidents], now)
    _add_ends(result, vms, incidents, now)
    return result


def _add_not_back(
    result: IncidentNotices, vms: Sequence[VmToCheck], incidents: Mapping[str, Incident], now: float
) -> None:
    """Add notices about VMs that went away for their event and were not heard since.

    Several of them are gathered: the maintenance of a whole site may stop hundreds.
    """
    awaited: dict[str, tuple[Vm, AwaitedReturn]] = {}
    for each in vms:
        case = each.awaited_return
        incident = incidents.get(each.vm.vm_id)
        has_notice = incident is not None and incident.kind == "vm-not-back"
        if case is not None and each.contact in ("silent", "stopped") and not has_notice:
            awaited[each.vm.vm_id] = (each.vm, case)
    if not is_gathered((case.due for _, case in awaited.values()), now):
        return

    def of_one(vm: Vm) -> Notice:
        _, case = awaited[vm.vm_id]
        text = f"Its bridge was last heard at {moment(vm.heard_at)}, before its {case.kind} event."
        return _about(
            vm,
            "vm-not-back",
            key=(case.event_id, vm.heard_at),
            at=now,
            title=f"{short(vm.name)} has not come back after its {case.kind}",
            text=f"{text} Look at the VM, and at its bridge: systemctl status seb",
            more={"eventId": case.event_id},
        )

    result.open(
        "vm-not-back",
        [(vm, vm.heard_at) for vm, case in awaited.values() if now >= case.due],
        now,
        of_one=of_one,
        title="have not come back after their events",
        advice="Look at the VMs, their bridges (systemctl status seb), and their network.",
        path=_SILENT_VMS,
    )


def _add_silent(result: IncidentNotices, vms: Iterable[VmToCheck], now: float) -> None:
    """Add notices about VMs without an incident that have been silent for long enough.

    A VM that falls silent alone has a notice after `PATIENCE_SECONDS`. Several are gathered, so
    that a broker that is down does not page four hundred times.
    """
    silent = [each for each in vms if each.contact == "silent" and each.awaited_return is None]
    if not is_gathered((each.since + PATIENCE_SECONDS for each in silent), now):
        return

    def of_one(vm: Vm) -> Notice:
        return _about(
            vm,
            "vm-silent",
            key=(vm.heard_at,),
            at=now,
            title=f"{short(vm.name)} is silent",
            text=f"Its bridge was last heard at {moment(vm.heard_at)}. Look at the VM, at "
            "its bridge (systemctl status seb), and at its network.",
        )

    ready = [each.vm for each in silent if now - each.since >= PATIENCE_SECONDS]
    result.open(
        "vm-silent",
        [(vm, vm.heard_at) for vm in ready],
        now,
        of_one=of_one,
        title="are silent",
        advice="So many at once point to a network or a broker.",
        path=_SILENT_VMS,
    )


def _add_ends(
    result: IncidentNotices, vms: Sequence[VmToCheck], incidents: Mapping[str, Incident], now: float
) -> None:
    """Add the notices that end incidents: their VMs are heard again, or are not awaited any
    more.
    """
    by_id = {each.vm.vm_id: each for each in vms}
    moved = {each.vm_id: each for each in result.opened}
    open_keys = {each.key for each in result.opened}
    over: dict[str, list[Incident]] = {}
    for vm_id, incident in incidents.items():
        if vm_id in moved:
            if moved[vm_id].key != incident.key:
                over.setdefault(incident.key, []).append(incident)
        elif _is_over(incident, by_id.get(vm_id)):
            result.ended.append(vm_id)
            over.setdefault(incident.key, []).append(incident)
        else:
            open_keys.add(incident.key)
    for key, several in over.items():
        if key not in open_keys:
            one = by_id.get(several[0].vm_id) if key == several[0].vm_id else None
            result.notices.append(_end(several[0], one, now))


def _is_over(incident: Incident, checked: VmToCheck | None) -> bool:
    """Check whether an incident has ended: its VM was heard since, was retired, or is not known any
    more.
    """
    if checked is None or checked.contact in ("heard", "late", "retired"):
        return True
    return checked.contact == "stopped" and incident.kind != "vm-not-back"


def _end(incident: Incident, checked: VmToCheck | None, now: float) -> Notice:
    """Return the notice that ends an incident; `checked` is its VM, if it is one VM's."""
    if incident.size > 1:
        is_back = incident.kind == "vm-not-back"
        return group_notice(
            incident.key,
            "vm-heard",
            at=now,
            title=f"{incident.size} VMs are {'back' if is_back else 'not silent any more'}",
            text="Each of them was heard again, was retired, or has an incident of its own.",
            path=_SILENT_VMS,
            count=incident.size,
        )
    if checked is None or checked.contact == "retired":
        name = incident.vm_id if checked is None else short(checked.vm.name)
        return Notice(
            kind="vm-retired",
            subject=incident.vm_id,
            key=(incident.kind, round(now)),
            at=now,
            title=f"{name} is retired",
            text="It is not expected any more.",
            path=vm_path(incident.vm_id),
            vm={"vmId": incident.vm_id, "name": name},
        )
    vm = checked.vm
    return _about(
        vm,
        "vm-heard",
        key=(incident.kind, round(vm.heard_at)),
        at=now,
        title=f"{short(vm.name)} is heard again",
        text=f"Its bridge was last heard at {moment(vm.heard_at)}.",
    )


def awaited_return(known: KnownEvent, vm_id: str, silent_since: float) -> AwaitedReturn | None:
    """Return when a VM that an event has taken away should be back. None if it is not awaited: the
    event deletes it, costs it nothing, or did not take place. If only other VMs have reported the
    event, the wait is short.
    """
    report = known.shown.report
    event = known.event
    if report.impact in (_DELETES, "none") or report.event.event_status == "Canceled":
        return None
    is_coming = event.state == "scheduled" and event.not_before is not None
    begun = event.not_before if is_coming and event.not_before else event.shown_at
    says_so = any(
        each.vm_id == vm_id and each.content_hash is not None for each in known.named.values()
    )
    latest = silent_since + RETURN_SECONDS + (AWAY_SECONDS if says_so else RETURN_SECONDS)
    due = begun + max(0, report.event.duration_in_seconds or 0) + RETURN_SECONDS
    return AwaitedReturn(
        event_id=event.event_id,
        kind=short(report.event.event_type or "event"),
        due=min(due, latest),
    )


def _about(vm: Vm, kind: NoticeKind, **given: object) -> Notice:
    values: dict[str, object] = {
        "subject": vm.vm_id,
        "path": vm_path(vm.vm_id),
        "vm": {
            "vmId": vm.vm_id,
            "name": short(vm.name),
            "resourceId": vm.resource_id,
            "location": vm.location,
        },
    }
    return Notice(kind=kind, **values, **given)  # type: ignore[arg-type]
