"""`/fleet`: every VM, as a table or as a map; the URL says which VMs are shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Self
from urllib.parse import urlencode

from console.db.snapshot import Snapshot
from console.db.vms import SORTS, WantedVms
from console.fleet.contact import CONTACTS
from console.fleet.values import CLEAR, Expectation, HeardVm, Vm
from console.fleet.view import CONDITIONS
from console.web.pages import fleet_map
from console.web.pages.formatting import page_number

PAGE: Final = 100
"""VMs on one page of the table."""
_OPTIONS: Final = 300
"""The most values that a filter offers; others are reached by the URL and by the search."""
_FIELDS: Final[Mapping[str, str]] = {
    "site": "Site",
    "location": "Location",
    "zone": "Zone",
    "scale_set": "Scale set",
    "subscription_id": "Subscription",
    "resource_group": "Resource group",
    "heard_by": "Source",
}
_IN_URL: Final[Mapping[str, str]] = {
    "scale_set": "scaleSet",
    "subscription_id": "subscription",
    "resource_group": "resourceGroup",
    "heard_by": "source",
}
"""Fields that have another name in the URL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The parameters of the page's address; an unknown value shows no VM rather than all."""

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
    heard_by: str = ""
    sort: str = "name"
    page: int = 1

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Self:
        """Return the choice of a query string; a parameter that is missing has its default."""
        given = {
            name: value[:300]
            for name in cls.__slots__
            if (value := query.get(_IN_URL.get(name, name), "").strip())
        }
        page = page_number(given.pop("page", ""))
        given["view"] = "map" if given.get("view") == "map" else "table"
        given["by"] = given["by"] if given.get("by") in fleet_map.GROUPS else "site"
        given["sort"] = (
            given["sort"] if given.get("sort", "").removeprefix("-") in SORTS else "name"
        )
        return cls(**given, page=page)

    def url(self, **changed: object) -> str:
        """Return the address of this choice with some changes; a changed choice begins at
        page 1.
        """
        chosen = asdict(self) | {"page": 1} | changed
        usual = asdict(Choice())
        query = {_IN_URL.get(k, k): v for k, v in chosen.items() if v != usual[k]}
        return f"/fleet?{urlencode(query)}" if query else "/fleet"

    def sorted_by(self, column: str) -> str:
        """Return the address that sorts by a column, or in the other direction if the page is
        sorted by it already.
        """
        return self.url(sort=f"-{column}" if self.sort == column else column)

    def order(self, column: str) -> str | None:
        """Return the direction in which a column is sorted, in ARIA's words."""
        if self.sort.removeprefix("-") != column:
            return None
        return "descending" if self.sort.startswith("-") else "ascending"

    @property
    def filters(self) -> dict[str, str]:
        """The filters on fields of VMs that are set in the address."""
        return {name: value for name in _FIELDS if (value := getattr(self, name))}


PARAMETERS: Final = frozenset(_IN_URL.get(each, each) for each in Choice.__slots__)
"""The parameters of this page's address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One VM as the table shows it."""

    vm: Vm
    contact: str
    condition: str
    events: Sequence[str]


def values(snapshot: Snapshot, choice: Choice) -> dict[str, Any]:
    """Return the values of the template."""
    wanted = _wanted(choice)
    contacts = snapshot.vms.counted(replace(wanted, contact=""))
    count = contacts.get(choice.contact, 0) if choice.contact else sum(contacts.values())
    last = max(1, -(-count // PAGE))
    page = min(choice.page, last)
    first = (page - 1) * PAGE
    is_map = choice.view == "map"
    found = [] if is_map else snapshot.vms.page(wanted, limit=PAGE, skip=first)
    return {
        "choice": choice,
        "contacts": [(name, contacts.get(name, 0)) for name in CONTACTS],
        "conditions": _conditions(snapshot, wanted),
        "selects": _selects(snapshot, choice),
        "total": snapshot.vms.count(),
        "count": count,
        "groups": fleet_map.draw(snapshot.vms.cells(wanted), choice.by) if is_map else [],
        "shapes": fleet_map.SHAPES,
        "silent_too": fleet_map.SILENT_TOO,
        "group_words": fleet_map.GROUPS,
        "lines": _expecting(snapshot, found),
        "first": first,
        "page": page,
        "last": last,
    }


def _wanted(choice: Choice) -> WantedVms:
    return WantedVms(
        q=choice.q,
        contact=choice.contact,
        condition=choice.condition,
        equal=choice.filters,
        sort=choice.sort,
        names_first=True,
    )


def _conditions(snapshot: Snapshot, wanted: WantedVms) -> list[tuple[str, int]]:
    """Return how many of the chosen VMs have each condition."""
    any_condition = replace(wanted, condition="")
    counted = snapshot.vms.conditions(any_condition)
    contacts = snapshot.vms.counted(any_condition)
    clear = sum(contacts.values()) - sum(counted.values())
    return [(name, counted.get(name, 0) if name != CLEAR else clear) for name in CONDITIONS]


def _expecting(snapshot: Snapshot, several: Sequence[HeardVm]) -> list[Line]:
    expected = snapshot.vms.expectations([each.vm.vm_id for each in several])
    clear = Expectation()
    return [
        Line(
            vm=each.vm,
            contact=each.contact,
            condition=expected.get(each.vm.vm_id, clear).condition,
            events=expected.get(each.vm.vm_id, clear).events,
        )
        for each in several
    ]


def _selects(snapshot: Snapshot, choice: Choice) -> list[tuple[str, str, list[str], str]]:
    """Return the filters that divide the fleet: name, label, values, and the chosen value."""
    found = []
    every = snapshot.vms.options()
    for name, label in _FIELDS.items():
        options, chosen = list(every[name]), getattr(choice, name)
        if chosen and chosen not in options:
            options.insert(0, chosen)
        if len(options) > 1 or chosen:
            found.append((_IN_URL.get(name, name), label, options[:_OPTIONS], chosen))
    return found
