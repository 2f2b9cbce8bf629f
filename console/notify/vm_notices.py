"""Notices about VMs that have fallen silent, have not come back after their event, or are heard
again.

The open incidents are an argument, so that several consoles, or one and its restart, send each
notice once. An incident ends with the key that it was opened with.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

from console.db.notices import Incident
from console.fleet.contact import Contact
from console.fleet.moments import moment
from console.fleet.values.event import KnownEvent
from console.fleet.values.vm import Vm
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
GATHER_SECONDS: Final = 60.0
"""For how long VMs that fall silent are gathered, if there are several."""
MANY_VMS: Final = 10
"""Up to so many VMs have a notice each; more of them share one."""
_NAMES_LISTED: Final = 20
_VM_IDS_LISTED: Final = 100
_NAMESPACE: Final = uuid.UUID("7c1f8a52-54c6-4c39-a3c1-2b0a5d0f6a3e")
_SILENT_VMS: Final = "/fleet?contact=silent"


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitedReturn:
    """The event that has taken a VM away, and when the VM should be back (`due`)."""

    event_id: str
    kind: str
    due: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedVm:
    """A VM at the time of one look; `since`: when it fell silent, if it is."""

    vm: Vm
    contact: Contact
    since: float
    case: AwaitedReturn | None = None


@dataclass(slots=True, kw_only=True)
class VmNotices:
    """The result of a look: notices, and changes of the incidents."""

    notices: list[Notice] = field(default_factory=list)
    opened: list[Incident] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    """The vmIds of incidents that are over."""

    def open_group(
        self,
        kind: NoticeKind,
        vms: Iterable[tuple[Vm, float]],
        now: float,
        *,
        title: str,
        advice: str,
        path: str,
    ) -> None:
        """Add one notice about many VMs, and their incidents with its key. Each VM comes with a
        time that tells this silence, or this conflict, from the VM's earlier ones.
        """
        known = sorted(vms, key=lambda each: (each[0].name.lower(), each[0].vm_id))
        facts = [kind, *(f"{vm.vm_id} {at}" for vm, at in known)]
        ordered = [vm for vm, _ in known]
        key = f"vms-{uuid.uuid5(_NAMESPACE, ' '.join(facts)).hex[:16]}"
        names = ", ".join(short(vm.name) for vm in ordered[:_NAMES_LISTED])
        more = f" and {len(ordered) - _NAMES_LISTED} more" if len(ordered) > _NAMES_LISTED else ""
        self.notices.append(
            group_notice(
                key,
                kind,
                at=now,
                title=title,
                text=f"{names}{more}. {advice}",
                path=path,
                count=len(ordered),
                vm_ids=[vm.vm_id for vm in ordered[:_VM_IDS_LISTED]],
            )
        )
        self.opened += [
            Incident(vm_id=vm.vm_id, key=key, kind=kind, size=len(ordered)) for vm in ordered
        ]


def vm_notices(
    seen: Sequence[JudgedVm], incidents: Mapping[str, Incident], now: float
) -> VmNotices:
    """Return the notices about VMs, given the open incidents, by vmId."""
    result = VmNotices()
    _add_not_back(result, seen, incidents, now)
    _add_silent(result, [each for each in seen if each.vm.vm_id not in incidents], now)
    _add_ends(result, seen, incidents, now)
    return result


def _add_not_back(
    result: VmNotices, seen: Sequence[JudgedVm], incidents: Mapping[str, Incident], now: float
) -> None:
    """Add notices about VMs that went away for their event and were not heard since.

    Several of them are gathered: the maintenance of a whole site may stop hundreds.
    """
    awaited = []
    for each in seen:
        case = each.case
        incident = incidents.get(each.vm.vm_id)
        has_notice = incident is not None and incident.kind == "vm-not-back"
        if case is not None and each.contact in ("silent", "stopped") and not has_notice:
            awaited.append((each.vm, case))
    first = min((case.due for _, case in awaited), default=now)
    if (
        now < first + GATHER_SECONDS
        and sum(case.due < first + GATHER_SECONDS for _, case in awaited) > 1
    ):
        return
    missed = [(vm, case) for vm, case in awaited if now >= case.due]
    if len(missed) > MANY_VMS:
        result.open_group(
            "vm-not-back",
            [(vm, vm.heard_at) for vm, _ in missed],
            now,
            title=f"{len(missed)} VMs have not come back after their events",
            advice="Look at the VMs, their bridges (systemctl status seb), and their network.",
            path=_SILENT_VMS,
        )
        return
    for vm, case in missed:
        name = short(vm.name)
        text = f"Its bridge was last heard at {moment(vm.heard_at)}, before its {case.kind} event."
        result.notices.append(
            _about(
                vm,
                "vm-not-back",
                key=(case.event_id, vm.heard_at),
                at=now,
                title=f"{name} has not come back after its {case.kind}",
                text=f"{text} Look at the VM, and at its bridge: systemctl status seb",
                more={"eventId": case.event_id},
            )
        )
        result.opened.append(Incident(vm_id=vm.vm_id, key=vm.vm_id, kind="vm-not-back"))


def _add_silent(result: VmNotices, seen: Iterable[JudgedVm], now: float) -> None:
    """Add notices about VMs without an incident that have been silent for long enough.

    A VM that falls silent alone has a notice after `PATIENCE_SECONDS`. Several are gathered, so
    that a broker that is down does not page four hundred times.
    """
    silent = [each for each in seen if each.contact == "silent" and each.case is None]
    if not silent:
        return
    first = min(each.since for each in silent)
    if now - first < PATIENCE_SECONDS + (GATHER_SECONDS if len(silent) > 1 else 0):
        return
    vms = [each.vm for each in silent if now - each.since >= PATIENCE_SECONDS]
    if len(vms) > MANY_VMS:
        result.open_group(
            "vm-silent",
            [(vm, vm.heard_at) for vm in vms],
            now,
            title=f"{len(vms)} VMs are silent",
            advice="So many at once point to a network or a broker.",
            path=_SILENT_VMS,
        )
        return
    for vm in vms:
        result.notices.append(
            _about(
                vm,
                "vm-silent",
                key=(vm.heard_at,),
                at=now,
                title=f"{short(vm.name)} is silent",
                text=f"Its bridge was last heard at {moment(vm.heard_at)}. Look at the VM, at "
                "its bridge (systemctl status seb), and at its network.",
            )
        )
        result.opened.append(Incident(vm_id=vm.vm_id, key=vm.vm_id, kind="vm-silent"))


def _add_ends(
    result: VmNotices, seen: Sequence[JudgedVm], incidents: Mapping[str, Incident], now: float
) -> None:
    """Add the notices that end incidents: their VMs are heard again, or are not awaited any
    more.
    """
    by_id = {each.vm.vm_id: each for each in seen}
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


def _is_over(incident: Incident, seen: JudgedVm | None) -> bool:
    """Check whether an incident has ended: its VM was heard since, was retired, or is not known any
    more.
    """
    if seen is None or seen.contact in ("heard", "late", "retired"):
        return True
    return seen.contact == "stopped" and incident.kind != "vm-not-back"


def _end(incident: Incident, seen: JudgedVm | None, now: float) -> Notice:
    """Return the notice that ends an incident; `seen` is its VM, if it is one VM's."""
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
    if seen is None or seen.contact == "retired":
        name = incident.vm_id if seen is None else short(seen.vm.name)
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
    vm = seen.vm
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


def group_notice(
    key: str, kind: NoticeKind, *, count: int, vm_ids: Sequence[str] = (), **given: object
) -> Notice:
    """Return a notice about many VMs, whose incidents have this key."""
    return Notice(
        kind=kind,
        subject=key,
        key=(),
        vm={"name": f"{count} VMs"},
        more={"count": count, "vmIds": list(vm_ids)},
        **given,  # type: ignore[arg-type]
    )


def vm_path(vm_id: str) -> str:
    """Return the path of a VM's page."""
    return f"/vms/{quote(vm_id, safe='')}"
