"""The lists of VMs, by any filter and sort, and how many VMs they have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Select, case, func, or_, select, tuple_

from console.db import rows
from console.db.schema.tables import vm
from console.db.search import ESCAPE, has_tag, is_pattern, pattern_of, tag_of
from console.db.vms.expectations import conditions_query
from console.db.vms.known_vms import KnownVms
from console.fleet.values.keys import name_key
from console.fleet.values.vm import CLEAR, HeardVm, Vm

FILTERS: Final = (
    "site",
    "location",
    "zone",
    "scale_set",
    "subscription_id",
    "resource_group",
    "heard_source",
)
"""The columns by which lists can be filtered."""
_COLUMNS: Final = {
    "site": ("site",),
    "location": ("location", "zone"),
    "scaleSet": ("scale_set",),
    "bridge": ("version",),
}
SORTS: Final = ("name", "contact", "condition", "heard", "missing", *_COLUMNS)
"""The columns by which VMs can be sorted."""
_WORST_CONTACT: Final = ("silent", "late", "learning", "stopped", "heard", "retired")
_CELL: Final = ("vm_id", "name", "site", "location", "zone", "scale_set")


@dataclass(slots=True, kw_only=True)  # not frozen: 10,000 are made for one page
class VmCell:
    """A VM with what a map shows, and no more."""

    vm_id: str
    name: str
    site: str
    location: str | None
    zone: str | None
    scale_set: str | None
    contact: str
    condition: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedVms:
    """The filter and the order of a listing; an empty text filters nothing."""

    q: str = ""
    contact: str = ""
    condition: str = ""
    equal: Mapping[str, str] = field(default_factory=dict)
    """The wanted values by column, one of `FILTERS`."""
    sort: str = "name"
    """One of `SORTS`. With a minus before it, the order is descending."""
    names_first: bool = False
    """Whether VMs with a matching name come before those with a matching id."""


class VmLists:
    """Reads lists of VMs within one transaction."""

    def __init__(self, connection: Connection, known: KnownVms) -> None:
        self._connection = connection
        self._known = known

    def page_of_vms(
        self,
        wanted: WantedVms,
        *,
        limit: int,
        after: tuple[str, str] | None = None,
        skip: int = 0,
    ) -> list[HeardVm]:
        """Return VMs in their order; `after` is the last one of the page before, as `position_of`
        gives it.
        """
        query = self._with_filters(select(vm, self._known.contact), wanted)
        if after is not None:
            query = query.where(tuple_(vm.c.sort_name, vm.c.vm_id) > tuple_(*after))
        query = query.order_by(*self._order(wanted))
        return self._known.read(query.limit(limit).offset(skip))

    def map_cells(self, wanted: WantedVms) -> list[VmCell]:
        """Return every wanted VM, in order, with what a map shows."""
        columns = [vm.c[name] for name in _CELL]
        query = self._with_filters(select(*columns, self._known.contact), wanted)
        query = query.order_by(*self._order(wanted))
        names = conditions_query().subquery()
        rows_of_names = self._connection.execute(select(names.c.vm_id, names.c.condition))
        conditions = {row.vm_id: row.condition for row in rows_of_names}
        return [
            VmCell(
                vm_id=vm_id,
                name=name,
                site=site,
                location=location,
                zone=zone,
                scale_set=scale_set,
                contact=contact,
                condition=conditions.get(vm_id, CLEAR),
            )
            for vm_id, name, site, location, zone, scale_set, contact in self._connection.execute(
                query
            ).all()
        ]

    def count_by_contact(self, wanted: WantedVms | None = None) -> dict[str, int]:
        """Return how many VMs have each contact."""
        counts: Any = select(self._known.contact, func.count())
        query = self._with_filters(counts, wanted or WantedVms())
        found = self._connection.execute(query.group_by(self._known.contact))
        return {row[0]: row[1] for row in found}

    def count_by_condition(self, wanted: WantedVms | None = None) -> dict[str, int]:
        """Return how many VMs have each condition except clear."""
        names = conditions_query().subquery()
        counts: Any = select(names.c.condition, func.count())
        counts = counts.join(vm, vm.c.vm_id == names.c.vm_id)
        query = self._with_filters(counts, wanted or WantedVms()).group_by(names.c.condition)
        return {row[0]: row[1] for row in self._connection.execute(query)}

    def count_vms(self, *, heard_source: str | None = None) -> int:
        """Return how many VMs there are. With `heard_source` it counts only those that are not
        retired and were last heard over that source.
        """
        query = select(func.count()).select_from(vm)
        if heard_source is not None:
            query = query.where(vm.c.heard_source == heard_source, vm.c.retired_at.is_(None))
        found: int = self._connection.execute(query).scalar_one()
        return found

    def count_missing_records(self) -> int:
        """Return how many records are missing, of all VMs."""
        return int(self._connection.execute(select(func.sum(vm.c.missing_records))).scalar() or 0)

    def filter_values(self) -> dict[str, list[str]]:
        """Return the values that each filter can have, in order."""
        columns = [vm.c[name] for name in FILTERS]
        found = self._connection.execute(select(*columns).distinct()).all()
        return {
            name: sorted({row[number] for row in found if row[number]})
            for number, name in enumerate(FILTERS)
        }

    def _with_filters(self, query: Select[Any], wanted: WantedVms) -> Select[Any]:
        if wanted.q:
            query = query.where(_matches_search(wanted.q))
        for name, value in wanted.equal.items():
            query = query.where(vm.c[name] == value)
        if wanted.contact:
            query = query.where(self._known.contact == wanted.contact)
        if wanted.condition:
            names = conditions_query().subquery()
            vm_ids = select(names.c.vm_id)
            if wanted.condition == CLEAR:
                query = query.where(vm.c.vm_id.not_in(vm_ids))
            else:
                query = query.where(
                    vm.c.vm_id.in_(vm_ids.where(names.c.condition == wanted.condition))
                )
        return query

    def _order(self, wanted: WantedVms) -> Sequence[ColumnElement[Any]]:
        sort = wanted.sort.lstrip("-")
        descending = wanted.sort.startswith("-")
        columns = [*self._sorted_by(sort), *([vm.c.sort_name] if sort == "name" else [])]
        order = [column.desc() if descending else column for column in columns]
        if wanted.names_first and wanted.q and sort == "name":
            order.insert(0, case((_in_name(wanted.q), 0), else_=1))
        return [*order, vm.c.sort_name, vm.c.vm_id]

    def _sorted_by(self, sort: str) -> Sequence[ColumnElement[Any]]:
        if sort in _COLUMNS:
            return [func.coalesce(vm.c[name], "") for name in _COLUMNS[sort]]
        if sort in ("heard", "missing"):
            return [vm.c.heard_at if sort == "heard" else vm.c.missing_records]
        if sort in ("contact", "condition"):
            names = conditions_query().subquery()
            started = select(names.c.vm_id).where(names.c.condition == "started")
            scheduled = select(names.c.vm_id).where(names.c.condition == "scheduled")
            worst = case(
                *((self._known.contact == word, rank) for rank, word in enumerate(_WORST_CONTACT)),
                else_=len(_WORST_CONTACT),
            )
            condition = case((vm.c.vm_id.in_(started), 0), (vm.c.vm_id.in_(scheduled), 1), else_=2)
            return [condition, worst] if sort == "contact" else [condition]
        return []


def _matches_search(q: str) -> ColumnElement[bool]:
    """Return the SQL for whether a VM matches a search: by its name, its id, a pattern or a tag."""
    tag = tag_of(q)
    if tag is not None:
        return has_tag(vm, tag)
    if is_pattern(q):
        return vm.c.name_key.like(pattern_of(name_key(q)), escape=ESCAPE)
    in_id = func.lower(vm.c.vm_id).contains(q.lower(), autoescape=True)
    return or_(_in_name(q), in_id)


def _in_name(q: str) -> ColumnElement[bool]:
    found: ColumnElement[bool] = vm.c.name_key.contains(name_key(q), autoescape=True)
    return found


def position_of(known: Vm) -> tuple[str, str]:
    """Return the position of a VM in the order of names."""
    return rows.vm_row(known)["sort_name"], known.vm_id
