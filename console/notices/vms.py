"""Which VMs have fallen silent, have not come back after their event, and are heard again.

Values and `now` in, notices out; what was seen before is kept in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from console.fleet.contact import Ears, contact
from console.fleet.index import Fleet
from console.fleet.moments import moment
from console.fleet.values import Event, Past, Sighting, Vm
from console.notices.notice import Kind, Notice
from console.text import visible

PATIENCE: Final = 30.0
"""Seconds for which a VM stays silent before people are told: connections come and go."""
RETURN_SECONDS: Final = 600.0
"""Seconds that a VM may take to come back after the start of its event, beyond its duration."""
MANY: Final = 10
"""Silent VMs in one look; more than that are told as one notice."""
_LISTED: Final = 20
_DELETES: Final = "delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """An event that a VM should have come back from by `due`."""

    event_id: str
    kind: str
    due: float


class VmWatch:
    """What one console saw of its VMs."""

    def __init__(self, told: Mapping[str, Kind]) -> None:
        """`told`: the last notice about each VM."""
        self._told = dict(told)
        self._silent_since: dict[str, float] = {}

    def look(self, fleet: Fleet, past: Iterable[Past], now: float, ears: Ears) -> list[Notice]:
        """What there is to tell about VMs at `now`, in seconds since 1970."""
        cases = _cases(fleet, past)
        silent, found = [], []
        for vm in fleet.vms.values():
            state = contact(vm, now, ears)
            if state == "silent":
                since = self._silent_since.setdefault(vm.vm_id, now)
                case = cases.get(vm.vm_id)
                if case is not None:
                    found += self._not_back(vm, case, now)
                elif now - since >= PATIENCE and self._told.get(vm.vm_id) != "vm-silent":
                    silent.append(vm)
            else:
                self._silent_since.pop(vm.vm_id, None)
                found += self._heard(vm, state, now)
        return found + self._silent(silent, now)

    def _not_back(self, vm: Vm, case: _Case, now: float) -> list[Notice]:
        if now < case.due or self._told.get(vm.vm_id) == "vm-not-back":
            return []
        self._told[vm.vm_id] = "vm-not-back"
        name = visible(vm.name)
        text = f"Its bridge was last heard at {moment(vm.heard_at)}, before its {case.kind} event."
        return [
            _about(
                vm,
                "vm-not-back",
                fact=(case.event_id, vm.heard_at),
                at=now,
                title=f"{name} has not come back after its {case.kind}",
                text=f"{text} Look at the VM, and at its bridge: systemctl status seb",
                more={"eventId": case.event_id},
            )
        ]

    def _heard(self, vm: Vm, state: str, now: float) -> list[Notice]:
        if state not in ("heard", "late") or self._told.get(vm.vm_id) in (None, "vm-heard"):
            return []
        before = self._told[vm.vm_id]
        self._told[vm.vm_id] = "vm-heard"
        return [
            _about(
                vm,
                "vm-heard",
                fact=(before, round(vm.heard_at)),
                at=now,
                title=f"{visible(vm.name)} is heard again",
                text=f"Its bridge reports since {moment(vm.heard_at)}.",
            )
        ]

    def _silent(self, vms: list[Vm], now: float) -> list[Notice]:
        for vm in vms:
            self._told[vm.vm_id] = "vm-silent"
        if len(vms) <= MANY:
            return [
                _about(
                    vm,
                    "vm-silent",
                    fact=(vm.heard_at,),
                    at=now,
                    title=f"{visible(vm.name)} is silent",
                    text=f"Its bridge was last heard at {moment(vm.heard_at)}. Look at the VM, at "
                    "its bridge (systemctl status seb), and at its network.",
                )
                for vm in vms
            ]
        ordered = sorted(vms, key=lambda vm: (vm.name.lower(), vm.vm_id))
        names = ", ".join(visible(vm.name) for vm in ordered[:_LISTED])
        more = f" and {len(vms) - _LISTED} more" if len(vms) > _LISTED else ""
        return [
            Notice(
                kind="vm-silent",
                subject="fleet",
                fact=tuple((vm.vm_id, vm.heard_at) for vm in ordered),
                at=now,
                title=f"{len(vms)} VMs are silent",
                text=f"{names}{more}. So many at once point to a network or a broker.",
                path="/fleet?contact=silent",
                vm={"name": f"{len(vms)} VMs"},
                more={"vmIds": [vm.vm_id for vm in ordered]},
            )
        ]


def _cases(fleet: Fleet, past: Iterable[Past]) -> dict[str, _Case]:
    """For each VM: the event that it should be back from, and when. A VM that its event deletes
    is not awaited.
    """
    found: dict[str, _Case] = {}
    for event_id, event in fleet.events.items():
        if event.state == "started":
            witnesses = fleet.sightings[event_id]
            _await(found, event, witnesses, fleet.named_by(event_id).values())
    for each in past:
        named = fleet.resolve(each.event, each.witnesses).values()
        away = [vm_id for vm_id in named if fleet.vms[vm_id].heard_at < each.event.shown_at]
        _await(found, each.event, each.witnesses, away)
    return found


def _await(
    found: dict[str, _Case],
    event: Event,
    witnesses: Mapping[str, Sighting],
    named: Iterable[str],
) -> None:
    facts = witnesses[event.shown_by].facts
    if facts.impact == _DELETES or facts.status == "Canceled":
        return
    kind = visible(facts.event_type or "event")
    due = event.shown_at + max(0, facts.duration or 0) + RETURN_SECONDS
    for vm_id in named:
        found[vm_id] = _Case(event_id=event.event_id, kind=kind, due=due)


def _about(vm: Vm, kind: Kind, **given: object) -> Notice:
    values: dict[str, object] = {
        "subject": vm.vm_id,
        "path": f"/vms/{quote(vm.vm_id, safe='')}",
        "vm": {
            "vmId": vm.vm_id,
            "name": visible(vm.name),
            "resourceId": vm.resource_id,
            "location": vm.location,
        },
    }
    return Notice(kind=kind, **values, **given)  # type: ignore[arg-type]
