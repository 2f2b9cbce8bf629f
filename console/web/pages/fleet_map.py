"""The map of a fleet: a cell for each VM, drawn as a few paths per group, so that 10,000 VMs are
still fast.

A VM that needs attention is a link; the others are reached by the link to their group's table.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from console.db.vms.vm_lists import VmCell

GROUPS: Final[Mapping[str, str]] = MappingProxyType(
    {"site": "Site", "location": "Location", "zone": "Zone", "scale_set": "Scale set"}
)
CELL: Final = 10
"""The distance of cells, in units; a shape is 8 units wide."""
_NARROW = 32
_WIDE = 128
_NARROW_UP_TO: Final = 512
LINKS: Final = 400
"""The most cells with a link of their own, in the whole map: more would not help."""
# One shape each, drawn from the cell's upper left corner; colour only repeats what it says.
SHAPES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "heard": "h8v8h-8z",
        "late": "v8h8z",
        "silent": "m1-1l3 3 3-3 2 2-3 3 3 3-2 2-3-3-3 3-2-2 3-3-3-3z",
        "stopped": "h8v8h-8zm2 2v4h4v-4z",
        "learning": "m2.5 2.5h3v3h-3z",
        "retired": "m0 3.5h8v1h-8z",
        "scheduled": "m4-1l5 5-5 5-5-5zm0 3l-2 2 2 2 2-2z",
        "started": "m4-1l5.5 9.5h-11z",
    }
)
SILENT_TOO: Final = "m-1-1h10v10h-10zm.7.7v8.6h8.6v-8.6z"
"""A frame around the shape of an event: the VM is silent as well."""
_QUIET: Final = ("heard", "retired")


@dataclass(frozen=True, slots=True, kw_only=True)
class CellLink:
    """A cell that is a link."""

    vm: VmCell
    label: str
    x: int
    y: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MapGroup:
    """VMs that are drawn together."""

    name: str
    filters: Mapping[str, str]
    """The parameters of the table's address that show the same VMs."""
    count: int
    marks: Sequence[tuple[str, int]]
    """How many VMs have each mark, the rare marks first."""
    is_wide: bool
    width: int
    height: int
    paths: Mapping[str, str]
    """The path of each mark."""
    frames: str
    """The path around VMs that an event names and that are silent as well."""
    links: Sequence[CellLink]


def mark(cell: VmCell) -> str:
    """Return the shape of a VM's cell: an event comes before the contact. A silent VM that an event
    names has a frame as well.
    """
    return cell.contact if cell.condition == "clear" else cell.condition


def draw(cells: Sequence[VmCell], by: str) -> list[MapGroup]:
    """Return the groups in the order of their names."""
    key_of = _KEYS[by]
    members: dict[tuple[str, ...], list[VmCell]] = defaultdict(list)
    for cell in cells:
        members[key_of(cell)].append(cell)
    left = LINKS
    groups = []
    for key in sorted(members):
        group = _group(key, members[key], by, left)
        left -= len(group.links)
        groups.append(group)
    return groups


def _group(key: tuple[str, ...], cells: Sequence[VmCell], by: str, most_links: int) -> MapGroup:
    wide = len(cells) > _NARROW_UP_TO
    columns = _WIDE if wide else _NARROW
    shapes: dict[str, list[str]] = defaultdict(list)
    links: list[CellLink] = []
    counted: Counter[str] = Counter()
    frames = []
    for number, cell in enumerate(cells):
        y, x = divmod(number, columns)
        x = x * CELL + 1
        y = y * CELL + 1
        name = mark(cell)
        counted[name] += 1
        shapes[name].append(f"M{x} {y}{SHAPES[name]}")
        if name != cell.contact == "silent":
            counted["silent"] += 1
            frames.append(f"M{x} {y}{SILENT_TOO}")
        if name not in _QUIET and len(links) < most_links:
            label = cell.contact if cell.condition == "clear" else f"{name}, {cell.contact}"
            links.append(CellLink(vm=cell, label=label, x=x - 1, y=y - 1))
    rows = -(-len(cells) // columns)
    name, filters = _named(key, by)
    return MapGroup(
        name=name,
        filters=filters,
        count=len(cells),
        marks=[(each, counted[each]) for each in reversed(list(SHAPES)) if counted[each]],
        is_wide=wide,
        width=columns * CELL,
        height=rows * CELL,
        paths={each: "".join(paths) for each, paths in shapes.items()},
        frames="".join(frames),
        links=links,
    )


_KEYS: Final[Mapping[str, Callable[[VmCell], tuple[str, ...]]]] = MappingProxyType(
    {
        "site": lambda vm: (vm.site,),
        "location": lambda vm: (vm.location or "",),
        "zone": lambda vm: (vm.location or "", vm.zone or ""),
        "scale_set": lambda vm: (vm.scale_set or "",),
    }
)


def _named(key: tuple[str, ...], by: str) -> tuple[str, dict[str, str]]:
    if by == "zone":
        location, zone = key
        name = f"{location or 'no location'}, {f'zone {zone}' if zone else 'no zone'}"
        return name, {k: v for k, v in (("location", location), ("zone", zone)) if v}
    (value,) = key
    parameter = "scaleSet" if by == "scale_set" else by
    return value or f"no {GROUPS[by].lower()}", {parameter: value} if value else {}
