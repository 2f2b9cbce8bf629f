"""The notices that open and end incidents of VMs. Many that happen at once are one notice with a
count, and have one end.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

from console.db.notices import Incident
from console.fleet.values.vm import Vm
from console.notify.notice import Notice, NoticeKind, short
from sinks.shared.text import listed

GATHER_SECONDS: Final = 60.0
"""For how long incidents of several VMs are gathered."""
MANY_VMS: Final = 10
"""Up to so many VMs have a notice each; more of them share one."""
_NAMES_LISTED: Final = 20
_VM_IDS_LISTED: Final = 100
_NAMESPACE: Final = uuid.UUID("7c1f8a52-54c6-4c39-a3c1-2b0a5d0f6a3e")


@dataclass(slots=True, kw_only=True)
class IncidentNotices:
    """The result of a check: notices, and changes of the incidents."""

    notices: list[Notice] = field(default_factory=list)
    opened: list[Incident] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    """The vmIds of incidents that are over."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing has opened or ended."""
        return not (self.notices or self.opened or self.ended)

    def open(
        self,
        kind: NoticeKind,
        vms: Sequence[tuple[Vm, float]],
        now: float,
        *,
        of_one: Callable[[Vm], Notice],
        title: str,
        advice: str,
        path: str,
    ) -> None:
        """Add incidents of VMs, with a notice for each, or one for all of them if they are many.
        Each VM comes with a time that tells this incident from the VM's earlier ones. `title` says
        what many VMs do.
        """
        if len(vms) > MANY_VMS:
            title = f"{len(vms)} VMs {title}"
            self._open_group(kind, vms, now, title=title, advice=advice, path=path)
            return
        for vm, _ in vms:
            notice = of_one(vm)
            self.notices.append(notice)
            self.opened.append(Incident(vm_id=vm.vm_id, key=notice.subject, kind=kind))

    def _open_group(
        self,
        kind: NoticeKind,
        vms: Iterable[tuple[Vm, float]],
        now: float,
        *,
        title: str,
        advice: str,
        path: str,
    ) -> None:
        """Add one notice about many VMs, and their incidents with its key."""
        known = sorted(vms, key=lambda each: (each[0].name.lower(), each[0].vm_id))
        parts = [kind, *(f"{vm.vm_id} {at}" for vm, at in known)]
        ordered = [vm for vm, _ in known]
        key = f"vms-{uuid.uuid5(_NAMESPACE, ' '.join(parts)).hex[:16]}"
        names = listed([short(vm.name) for vm in ordered], _NAMES_LISTED)
        self.notices.append(
            group_notice(
                key,
                kind,
                at=now,
                title=title,
                text=f"{names}. {advice}",
                path=path,
                count=len(ordered),
                vm_ids=[vm.vm_id for vm in ordered[:_VM_IDS_LISTED]],
            )
        )
        self.opened += [
            Incident(vm_id=vm.vm_id, key=key, kind=kind, size=len(ordered)) for vm in ordered
        ]


def is_gathered(due: Iterable[float], now: float) -> bool:
    """Check whether the notices of incidents that are due at these times can be made. One that is
    alone does not wait; several are gathered for `GATHER_SECONDS` from the first one on.
    """
    times = list(due)
    until = min(times, default=now) + GATHER_SECONDS
    return now >= until or sum(each < until for each in times) <= 1


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
