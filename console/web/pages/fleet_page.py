"""`/fleet`: every VM, as a table or as a map; the URL says which VMs are shown."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from console.db.snapshot import Snapshot
from console.db.vms.expectations import expectations_of
from console.db.vms.vm_lists import SORTS, WantedVms
from console.fleet.contact import CONTACTS
from console.fleet.fleet_view import CONDITIONS
from console.fleet.values.vm import CLEAR, Expectation, HeardVm, Vm
from console.web.pages import fleet_map
from console.web.pages.list_address import ListAddress

PAGE_VMS: Final = 100
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
    "heard_source": "Source",
}
_IN_URL: Final[Mapping[str, str]] = {
    "scale_set": "scaleSet",
    "subscription_id": "subscription",
    "resource_group": "resourceGroup",
    "heard_source": "source",
}
"""Fields that have another name in the URL."""


_NAMES: Final = (
    "view",
    "by",
    "contact",
    "condition",
    "q",
    *(_IN_URL.get(each, each) for each in _FIELDS),
)
PARAMETERS: Final = (*_NAMES, "sort", "page")
"""The parameters of this page's address; with an unknown value the page shows no VM."""


def address_of(query: Mapping[str, str]) -> ListAddress:
    """Return the address of the page with this query."""
    usual = {"view": "table", "by": "site", "sort": "name", "page": "1"}
    known: dict[str, Collection[str]] = {"view": ("map",), "by": fleet_map.GROUPS}
    query = {name: value for name, value in query.items() if value in known.get(name, (value,))}
    return ListAddress("/fleet", query, names=_NAMES, usual=usual, sorts=SORTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRow:
    """One VM as the table shows it."""

    vm: Vm
    contact: str
    condition: str
    events: Sequence[str]


def template_values(snapshot: Snapshot, address: ListAddress) -> dict[str, Any]:
    """Return the values of the template."""
    wanted = _query_of(address)
    contacts = snapshot.vm_lists.count_by_contact(replace(wanted, contact=""))
    count = contacts.get(address["contact"], 0) if address["contact"] else sum(contacts.values())
    last = max(1, -(-count // PAGE_VMS))
    page = min(address.page, last)
    first = (page - 1) * PAGE_VMS
    is_map = address["view"] == "map"
    cells = snapshot.vm_lists.map_cells(wanted) if is_map else []
    found = [] if is_map else snapshot.vm_lists.page_of_vms(wanted, limit=PAGE_VMS, skip=first)
    return {
        "address": address,
        "is_map": is_map,
        "contacts": [(name, contacts.get(name, 0)) for name in CONTACTS],
        "conditions": _conditions(snapshot, wanted),
        "selects": _selects(snapshot, address),
        "total": snapshot.vm_lists.count_vms(),
        "count": count,
        "groups": fleet_map.draw(cells, address["by"]),
        "shapes": fleet_map.SHAPES,
        "silent_too": fleet_map.SILENT_TOO,
        "grouping_labels": fleet_map.GROUPS,
        "lines": _rows_with_condition(snapshot, found),
        "first": first,
        "page": page,
        "last": last,
    }


def _query_of(address: ListAddress) -> WantedVms:
    return WantedVms(
        q=address["q"],
        contact=address["contact"],
        condition=address["condition"],
        equal={name: value for name in _FIELDS if (value := address[_IN_URL.get(name, name)])},
        sort=address["sort"],
        names_first=True,
    )


def _conditions(snapshot: Snapshot, wanted: WantedVms) -> list[tuple[str, int]]:
    """Return how many of the chosen VMs have each condition."""
    any_condition = replace(wanted, condition="")
    counted = snapshot.vm_lists.count_by_condition(any_condition)
    contacts = snapshot.vm_lists.count_by_contact(any_condition)
    clear = sum(contacts.values()) - sum(counted.values())
    return [(name, counted.get(name, 0) if name != CLEAR else clear) for name in CONDITIONS]


def _rows_with_condition(snapshot: Snapshot, several: Sequence[HeardVm]) -> list[FleetRow]:
    expected = expectations_of(snapshot.connection, [each.vm.vm_id for each in several])
    clear = Expectation()
    return [
        FleetRow(
            vm=each.vm,
            contact=each.contact,
            condition=expected.get(each.vm.vm_id, clear).condition,
            events=expected.get(each.vm.vm_id, clear).events,
        )
        for each in several
    ]


def _selects(snapshot: Snapshot, address: ListAddress) -> list[tuple[str, str, list[str], str]]:
    """Return the filters that divide the fleet: name, label, values, and the chosen value."""
    found = []
    every = snapshot.vm_lists.filter_values()
    for name, label in _FIELDS.items():
        parameter = _IN_URL.get(name, name)
        options = list(every[name])
        chosen = address[parameter]
        if chosen and chosen not in options:
            options.insert(0, chosen)
        if len(options) > 1 or chosen:
            found.append((parameter, label, options[:_OPTIONS], chosen))
    return found
