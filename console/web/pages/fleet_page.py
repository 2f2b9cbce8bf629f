"""`/fleet`: every VM, as a table or as a map; the choice of what is shown stands in the URL."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, Final, Self
from urllib.parse import urlencode

from console.fleet.contact import CONTACTS, Ears, contact
from console.fleet.index import CLEAR
from console.fleet.values import Vm
from console.fleet.view import CONDITIONS
from console.web.desk import Desk
from console.web.pages import fleet_map

PAGE: Final = 100
"""VMs on one page of the table."""
_OPTIONS: Final = 300
"""Values of a filter that are offered; more are reached by the URL and by the search."""
_FIELDS: Final[Mapping[str, str]] = {
    "site": "Site",
    "location": "Location",
    "zone": "Zone",
    "scale_set": "Scale set",
    "subscription_id": "Subscription",
    "resource_group": "Resource group",
}
_IN_URL: Final[Mapping[str, str]] = {
    "scale_set": "scaleSet",
    "subscription_id": "subscription",
    "resource_group": "resourceGroup",
}
"""Names that the URL spells in another way."""
_SORTS: Final = ("name", "heard", "contact")
_DIGITS: Final = re.compile(r"([0-9]{1,18})")
_WORST: Final = ("silent", "late", "learning", "stopped", "heard", "retired")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What the URL asks for; a value that is unknown shows nothing rather than everything."""

    view: str = "table"
    by: str = "site"
    contact: str = ""
    condition: str = ""
    q: str = ""
    site: str = ""
    location: str = ""
    zone: str = ""
    scale_set: str = ""
    subscription_id: str = ""
    resource_group: str = ""
    sort: str = "name"
    page: int = 1

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Self:
        """The choice that a query string makes; what it does not name is the usual."""
        given = {
            name: value[:300]
            for name in cls.__slots__
            if (value := query.get(_IN_URL.get(name, name), "").strip())
        }
        number = given.pop("page", "1")
        page = int(number) if number.isascii() and number.isdecimal() and len(number) < 7 else 1  # noqa: PLR2004
        given["view"] = "map" if given.get("view") == "map" else "table"
        given["by"] = given["by"] if given.get("by") in fleet_map.GROUPS else "site"
        given["sort"] = given["sort"] if given.get("sort") in _SORTS else "name"
        return cls(**given, page=max(1, page))  # type: ignore[arg-type]  # page alone is a number

    def url(self, **changed: object) -> str:
        """The address of this choice, some of it changed; another choice begins at page 1."""
        chosen = asdict(self) | {"page": 1} | changed
        usual = asdict(Choice())
        query = {_IN_URL.get(k, k): v for k, v in chosen.items() if v != usual[k]}
        return f"/fleet?{urlencode(query)}" if query else "/fleet"

    @property
    def filters(self) -> dict[str, str]:
        """The filters on facts of the VM that are set."""
        return {name: value for name in _FIELDS if (value := getattr(self, name))}


@dataclass(slots=True, kw_only=True)  # not frozen: 10,000 are made at each look
class Line:
    """One VM as the table shows it."""

    vm: Vm
    contact: str
    condition: str
    events: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The fleet at one moment. It does not change, so that another thread can draw it."""

    now: float
    ears: Ears
    vms: Sequence[Vm]
    expecting: Mapping[str, tuple[str, Sequence[str]]]
    """Condition and events of the VMs that an open event names."""


def look(desk: Desk) -> Look:
    """The fleet as it is now; on the event loop's thread."""
    fleet = desk.fleet
    return Look(
        now=desk.now(),
        ears=desk.ears(),
        vms=list(fleet.vms.values()),
        expecting={vm_id: fleet.condition(vm_id) for vm_id in fleet.expecting()},
    )


def values(look: Look, choice: Choice) -> dict[str, Any]:
    """What the template shows. 10,000 VMs take a tenth of a second, so never on the event loop."""
    now, ears, everything = look.now, look.ears, look.vms
    clear: tuple[str, Sequence[str]] = (CLEAR, ())
    lines = []
    for vm in _matching(everything, choice):
        condition, events = look.expecting.get(vm.vm_id, clear)
        lines.append(
            Line(vm=vm, contact=contact(vm, now, ears), condition=condition, events=events)
        )
    contacts, conditions = (
        Counter(line.contact for line in lines if choice.condition in ("", line.condition)),
        Counter(line.condition for line in lines if choice.contact in ("", line.contact)),
    )
    chosen = _sorted(
        (
            line
            for line in lines
            if choice.contact in ("", line.contact) and choice.condition in ("", line.condition)
        ),
        choice.sort,
    )
    last = max(1, -(-len(chosen) // PAGE))
    page = min(choice.page, last)
    first = (page - 1) * PAGE
    is_map = choice.view == "map"
    return {
        "choice": choice,
        "contacts": [(name, contacts[name]) for name in CONTACTS],
        "conditions": [(name, conditions[name]) for name in CONDITIONS],
        "selects": _selects(everything, choice),
        "total": len(everything),
        "count": len(chosen),
        "groups": fleet_map.draw(chosen, choice.by) if is_map else [],
        "shapes": fleet_map.SHAPES,
        "group_words": fleet_map.GROUPS,
        "lines": [] if is_map else chosen[first : first + PAGE],
        "first": first,
        "page": page,
        "last": last,
    }


def _matching(vms: Sequence[Vm], choice: Choice) -> Sequence[Vm]:
    part, filters = choice.q.casefold(), choice.filters
    if part:
        vms = [vm for vm in vms if part in vm.name.casefold() or part in vm.vm_id.casefold()]
    for name, value in filters.items():
        vms = [vm for vm in vms if (getattr(vm, name) or "") == value]
    return vms


@lru_cache(maxsize=50_000)  # the same names at each look
def _natural(name: str) -> list[str | int]:
    """web-2 before web-10. Words and numbers take turns, so that alike stands beside alike."""
    parts = _DIGITS.split(name.casefold())
    return [int(part) if n % 2 else part for n, part in enumerate(parts)]


def _sorted(lines: Iterable[Line], sort: str) -> list[Line]:
    if sort == "heard":
        return sorted(lines, key=lambda line: (line.vm.heard_at, line.vm.vm_id))
    if sort == "contact":
        return sorted(
            lines,
            key=lambda line: (
                -CONDITIONS.index(line.condition),
                _WORST.index(line.contact),
                _natural(line.vm.name),
                line.vm.vm_id,
            ),
        )
    return sorted(lines, key=lambda line: (_natural(line.vm.name), line.vm.vm_id))


def _selects(vms: Sequence[Vm], choice: Choice) -> list[tuple[str, str, list[str], str]]:
    """Filters that divide the fleet: name, label, values, the one that is chosen."""
    found = []
    for name, label in _FIELDS.items():
        options = sorted({value for vm in vms if (value := getattr(vm, name))})
        chosen = getattr(choice, name)
        if chosen and chosen not in options:
            options.insert(0, chosen)
        if len(options) > 1 or chosen:
            found.append((_IN_URL.get(name, name), label, options[:_OPTIONS], chosen))
    return found
