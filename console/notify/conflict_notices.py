"""Notices about VMs that report another identity than the one they are known by. Pure functions, as
in `vm_notices`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from console.db.notices import Incident
from console.fleet.values.vm import FleetName, Vm
from console.notify.incidents import IncidentNotices, group_notice, is_gathered, vm_path
from console.notify.notice import Notice, short

_TAKEN_SECONDS: Final = 300.0
"""How long a VM that was made again under its old name waits for the other one to fall silent."""
_MIN_SECONDS: Final = 600.0
"""The shortest time from the notice of a conflict to that of its end: a VM that keeps changing what
it reports makes no more than two notices in this time.
"""
_FLEET: Final = "/fleet"
KIND: Final = "vm-conflict"
_OVER: Final = "vm-conflict-over"


def conflict_notices(
    found: Sequence[Vm], incidents: Mapping[str, Incident], now: float
) -> IncidentNotices:
    """Return the notices about VMs that are in conflict now; `incidents` are the open ones, by
    vmId.
    """
    result = IncidentNotices()
    ready = [vm for vm in found if vm.vm_id not in incidents and _is_ready(vm, now)]
    if is_gathered((vm.conflict_at or now for vm in ready), now):
        ready.sort(key=lambda vm: (vm.name.lower(), vm.vm_id))
        result.open(
            KIND,
            [(vm, vm.conflict_at or now) for vm in ready],
            now,
            of_one=lambda vm: _of_one(vm, now),
            title="report other identities than before",
            advice="It has no effect until an admin accepts it.",
            path=_FLEET,
        )
    in_conflict = {vm.vm_id for vm in found}
    over: dict[str, Incident] = {}
    open_keys = set()
    for vm_id, incident in incidents.items():
        if vm_id in in_conflict or now - incident.at < _MIN_SECONDS:
            open_keys.add(incident.key)
        else:
            result.ended.append(vm_id)
            over[incident.key] = incident
    result.notices += [_end(each, now) for key, each in over.items() if key not in open_keys]
    return result


def _is_ready(vm: Vm, now: float) -> bool:
    return vm.reported_as is not None or now - (vm.conflict_at or now) >= _TAKEN_SECONDS


def _of_one(vm: Vm, now: float) -> Notice:
    name = short(vm.name)
    if vm.reported_as is None:
        title = f"another VM bears the name of {name}"
        text = "Events name the other one, until it is silent or an admin accepts this one."
    else:
        title = f"{name} reports another identity than before"
        text = f"It reports {_words(vm.reported_as)}; it is known as {_words(vm.known_as)}. "
        text += "It has no effect until an admin accepts it."
    return Notice(
        kind=KIND,
        subject=_key(vm.vm_id),
        key=(vm.conflict_at,),
        at=now,
        title=title,
        text=text,
        path=vm_path(vm.vm_id),
        vm={"vmId": vm.vm_id, "name": name},
    )


def _words(name: FleetName) -> str:
    place = (name.subscription_id, name.resource_group, name.scale_set)
    scope = "/".join(short(each) for each in place if each)
    return f"{short(name.name)} in {scope or 'no scope'}, site {short(name.site)}"


def _end(incident: Incident, now: float) -> Notice:
    text = "What it says was accepted, or it says again what it said before, or it is gone."
    if incident.size > 1:
        title = f"{incident.size} VMs are in no conflict any more"
        return group_notice(
            incident.key, _OVER, at=now, title=title, text=text, path=_FLEET, count=incident.size
        )
    return Notice(
        kind=_OVER,
        subject=incident.key,
        key=(incident.at,),
        at=now,
        title="A VM is in no conflict any more",
        text=text,
        path=vm_path(incident.vm_id),
        vm={"vmId": incident.vm_id, "name": incident.vm_id},
    )


def _key(vm_id: str) -> str:
    """Return the key of a conflict notice, which must differ from that of the VM's silence."""
    return f"{vm_id} conflict"
