"""Common causes of silent VMs: a zone, a site, a source or a scale set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from console.db.snapshot import Snapshot
from console.db.vms.silent_vms import count_silent_by
from console.fleet.values.vm import Vm

_MIN_VMS: Final = 2
"""The least number of silent VMs for a common cause."""
_MAX_CAUSES: Final = 4
"""The most causes that are shown."""
_SHARED: Final = (("location", "zone"), ("site",), ("heard_source",), ("scale_set",))


@dataclass(frozen=True, slots=True, kw_only=True)
class SilenceCause:
    """Something that silent VMs have in common, and that few of the heard VMs have."""

    label: str
    query: str
    """The filter of the fleet that shows them."""
    silent: int
    total: int
    values: Mapping[str, str | None]
    """The shared values of a VM's fields."""

    def is_of(self, vm: Vm) -> bool:
        """Check whether a VM shares it."""
        return all(getattr(vm, name) == value for name, value in self.values.items())


def silence_causes(snapshot: Snapshot, silent: int, total: int) -> list[SilenceCause]:
    """Return the causes that explain most of the silence. `silent`: how many VMs are silent;
    `total`: how many there are. A cause is something that more silent VMs share than others, and
    that not all VMs share.
    """
    if silent < _MIN_VMS:
        return []
    found = []
    for names in _SHARED:
        for values, count, lost in count_silent_by(snapshot.vms, *names):
            if values[-1] and lost >= _MIN_VMS and lost * 2 > count and count < total:
                found.append(_cause(names, values, lost, count))
    return sorted(found, key=lambda each: (-each.silent, each.total))[:_MAX_CAUSES]


def _cause(
    names: tuple[str, ...], values: tuple[str | None, ...], silent: int, total: int
) -> SilenceCause:
    labels = {"heard_source": "Source", "scale_set": "Scale set", "site": "Site"}
    asked = {"heard_source": "source", "scale_set": "scaleSet"}
    first = values[0] or ""
    last = values[-1] or ""
    label = f"Zone {last} of {first}" if "zone" in names else f"{labels[names[0]]} {last}"
    several = {asked.get(name, name): value for name, value in zip(names, values, strict=True)}
    query = urlencode({"contact": "silent", **{k: v for k, v in several.items() if v}})
    shared = dict(zip(names, values, strict=True))
    return SilenceCause(label=label, query=query, silent=silent, total=total, values=shared)
