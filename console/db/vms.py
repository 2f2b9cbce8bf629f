"""Queries of VMs: who they are, how they are heard, and which open events name them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    and_,
    case,
    func,
    or_,
    select,
    tuple_,
)

from console.db import rows
from console.db.bearers import BEARER, bearers_query
from console.db.bulk import portions, rows_in
from console.db.contact import contact_of
from console.db.search import ESCAPE, has_tag, is_pattern, pattern_of, tag_of
from console.db.tables import assignment, event, vm
from console.fleet.candidates import PULL_SECONDS
from console.fleet.contact import Contact, Listening
from console.fleet.values import CLEAR, OPEN, EventKey, Expectation, HeardVm, Vm, folded

_MAX_STEMS: Final = 100
"""How many kinds of names are looked for as siblings of one event: each is a condition in SQL."""
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


@dataclass(slots=True, kw_only=True)  # not frozen: 10,000 are made at each look
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


class Vms:
    """Queries of VMs within one transaction."""

    def __init__(self, connection: Connection, now: float, listening: Listening) -> None:
        self._connection = connection
        self._now = now
        self._listening = listening

    @cached_property
    def _contact(self) -> ColumnElement[str]:
        """The contact of each VM, which is read only by snapshots that need it."""
        return contact_of(vm, self._now, self._listening).label("contact")

    def one(self, vm_id: str) -> HeardVm | None:
        """Return the VM with this id, or None if nothing has come in from it."""
        return next(iter(self.some([vm_id])), None)

    def some(self, vm_ids: Iterable[str]) -> list[HeardVm]:
        """Return those of these VMs that are known."""
        found: list[HeardVm] = []
        for few in portions(vm_ids):
            found += self._heard(select(vm, self._contact).where(vm.c.vm_id.in_(few)))
        return found

    def page(
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
        query = self._matching(select(vm, self._contact), wanted)
        if after is not None:
            query = query.where(tuple_(vm.c.sort_name, vm.c.vm_id) > tuple_(*after))
        query = query.order_by(*self._order(wanted))
        return self._heard(query.limit(limit).offset(skip))

    def cells(self, wanted: WantedVms) -> list[VmCell]:
        """Return every wanted VM, in order, with what a map shows."""
        columns = [vm.c[name] for name in _CELL]
        query = self._matching(select(*columns, self._contact), wanted)
        query = query.order_by(*self._order(wanted))
        names = _conditions().subquery()
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

    def counted(self, wanted: WantedVms | None = None) -> dict[str, int]:
        """Return how many VMs have each contact."""
        counts: Any = select(self._contact, func.count())
        query = self._matching(counts, wanted or WantedVms())
        found = self._connection.execute(query.group_by(self._contact))
        return {row[0]: row[1] for row in found}

    def conditions(self, wanted: WantedVms | None = None) -> dict[str, int]:
        """Return how many VMs have each condition except clear."""
        names = _conditions().subquery()
        counts: Any = select(names.c.condition, func.count())
        counts = counts.join(vm, vm.c.vm_id == names.c.vm_id)
        query = self._matching(counts, wanted or WantedVms()).group_by(names.c.condition)
        return {row[0]: row[1] for row in self._connection.execute(query)}

    def count(self, *, heard_source: str | None = None) -> int:
        """Return how many VMs there are. With `heard_source` it counts only those that are not
        retired and were last heard over that source.
        """
        query = select(func.count()).select_from(vm)
        if heard_source is not None:
            query = query.where(vm.c.heard_source == heard_source, vm.c.retired_at.is_(None))
        found: int = self._connection.execute(query).scalar_one()
        return found

    def silent_by(self, *names: str) -> list[tuple[tuple[str | None, ...], int, int]]:
        """Return, for each combination of values of these columns with a silent VM, the values, the
        number of VMs that are not retired, and the number of silent ones.
        """
        columns = [vm.c[name] for name in names]
        silent = func.sum(case((self._contact == "silent", 1), else_=0))
        query: Any = select(*columns, func.count(), silent).where(vm.c.retired_at.is_(None))
        found = self._connection.execute(query.group_by(*columns).having(silent > 0)).all()
        return [(tuple(row[:-2]), row[-2], row[-1]) for row in found]

    def missing_records(self) -> int:
        """Return how many records are missing, of all VMs."""
        return int(self._connection.execute(select(func.sum(vm.c.missing_records))).scalar() or 0)

    def options(self) -> dict[str, list[str]]:
        """Return the values that each filter can have, in order."""
        columns = [vm.c[name] for name in FILTERS]
        found = self._connection.execute(select(*columns).distinct()).all()
        return {
            name: sorted({row[number] for row in found if row[number]})
            for number, name in enumerate(FILTERS)
        }

    def expectations(self, vm_ids: Iterable[str]) -> dict[str, Expectation]:
        """Return what is coming to these VMs, by vmId; those that no open event names are
        left out.
        """
        found: dict[str, list[tuple[str, str]]] = {}
        state = case((event.c.is_news == 1, CLEAR), else_=event.c.state).label("brings")
        names = bearers_query(state).where(event.c.state.in_(OPEN)).subquery()
        query = select(names.c.vm_id, names.c.event_id, names.c.brings)
        query = query.where(names.c.rank == 1).distinct()
        for row in rows_in(self._connection, query, names.c.vm_id, vm_ids):
            found.setdefault(row.vm_id, []).append((row.event_id, row.brings))
        return {vm_id: _expectation(several) for vm_id, several in found.items()}

    def changed_since(self, number: int) -> list[HeardVm]:
        """Return the VMs that a later transaction has changed."""
        assigned = select(assignment.c.subject).where(
            assignment.c.change_number > number, assignment.c.kind == "vm"
        )
        changed = or_(vm.c.change_number > number, vm.c.vm_id.in_(assigned))
        return self._heard(select(vm, self._contact).where(changed))

    def passed_since(self, then: float, before: Listening) -> list[HeardVm]:
        """Return the VMs whose contact or command channel has changed since `then` because time has
        passed. `before`: when consoles were connected until then.
        """
        polled = func.coalesce(vm.c.pulled_at, 0)
        return self._heard(
            select(vm, self._contact).where(
                or_(
                    self._contact != contact_of(vm, then, before),
                    (polled > then - PULL_SECONDS) != (polled > self._now - PULL_SECONDS),
                )
            )
        )

    def with_contact(
        self, contacts: Iterable[Contact], *, limit: int | None = None
    ) -> list[HeardVm]:
        """Return the VMs with one of these contacts; the VM that was heard last comes first."""
        query = select(vm, self._contact).where(self._contact.in_(list(contacts)))
        return self._heard(query.order_by(vm.c.heard_at.desc(), vm.c.sort_name).limit(limit))

    def siblings(
        self, vm_ids: Iterable[str], *, limit: int, also: Collection[str] = ()
    ) -> list[HeardVm]:
        """Return these VMs, and the VMs like them or in `also` that are silent or stopped, or that
        an open event names. `limit` is for the further ones.

        VMs are alike in the same scale set, with the same tags, or in the same resource group if
        their names differ only in the number at the end.
        """
        mine = self.some(vm_ids)
        places = {each.vm.place for each in mine if each.vm.scale_set}
        tags = {rows.vm_row(each.vm)["tags"] for each in mine if each.vm.tags}
        families = {found for each in mine if (found := each.vm.name_family) is not None}
        if not places and not tags and not families and not also:
            return []
        query = select(vm, self._contact).where(
            or_(
                and_(vm.c.place.in_(places), vm.c.scale_set.is_not(None)),
                vm.c.tags.in_(tags),
                vm.c.vm_id.in_(also),
                *(
                    and_(vm.c.place == place, vm.c.folded.startswith(stem, autoescape=True))
                    for place, stem in sorted(families)[:_MAX_STEMS]
                ),
            ),
            *self._away_or_expecting(),
        )
        most = limit + len(mine)
        return self._heard(query.order_by(vm.c.sort_name, vm.c.vm_id).limit(most))

    def away_or_expecting(self) -> set[str]:
        """Return the VMs that are silent or stopped, or that an open event names."""
        query = select(vm.c.vm_id).where(*self._away_or_expecting())
        return set(self._connection.execute(query).scalars())

    def _away_or_expecting(self) -> Sequence[ColumnElement[bool]]:
        names = _conditions().subquery()
        expecting = vm.c.vm_id.in_(select(names.c.vm_id))
        is_away = self._contact.in_(("silent", "stopped"))
        return vm.c.retired_at.is_(None), or_(is_away, expecting)

    def in_conflict(self) -> list[Vm]:
        """Return the VMs that report another identity than the one they are known as, or whose name
        another VM bears. Retired VMs are left out.
        """
        query = select(vm).where(vm.c.conflict_at.is_not(None), vm.c.retired_at.is_(None))
        return [rows.vm_of(row) for row in self._connection.execute(query)]

    def silenced_by(self, since: float) -> dict[str, EventKey]:
        """Return, for each silent or stopped VM, the newest event that may be the cause: one that
        has begun, or that has ended after `since` and after the VM was heard. A VM that is shut
        down for its event often cannot report the start.
        """
        e = event.c
        begun = or_(e.state == "started", and_(e.state == "scheduled", e.not_before <= self._now))
        ended = and_(e.state == "ended", e.shown_at > since)
        contact = contact_of(BEARER, self._now, self._listening).label("contact")
        names = (
            bearers_query(contact, e.shown_at).where(e.is_news == 0, or_(begun, ended)).subquery()
        )
        query = select(names.c.vm_id, names.c.event_id, names.c.scope).where(
            names.c.rank == 1,
            names.c.contact.in_(("silent", "stopped")),
            or_(names.c.state != "ended", names.c.heard_at < names.c.shown_at),
        )
        query = query.order_by(names.c.shown_at)
        found = self._connection.execute(query)
        return {row.vm_id: rows.key_of(row) for row in found}

    def _matching(self, query: Select[Any], wanted: WantedVms) -> Select[Any]:
        if wanted.q:
            query = query.where(_found(wanted.q))
        for name, value in wanted.equal.items():
            query = query.where(vm.c[name] == value)
        if wanted.contact:
            query = query.where(self._contact == wanted.contact)
        if wanted.condition:
            names = _conditions().subquery()
            those = select(names.c.vm_id)
            if wanted.condition == CLEAR:
                query = query.where(vm.c.vm_id.not_in(those))
            else:
                query = query.where(
                    vm.c.vm_id.in_(those.where(names.c.condition == wanted.condition))
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
            names = _conditions().subquery()
            started = select(names.c.vm_id).where(names.c.condition == "started")
            scheduled = select(names.c.vm_id).where(names.c.condition == "scheduled")
            worst = case(
                *((self._contact == word, rank) for rank, word in enumerate(_WORST_CONTACT)),
                else_=len(_WORST_CONTACT),
            )
            condition = case((vm.c.vm_id.in_(started), 0), (vm.c.vm_id.in_(scheduled), 1), else_=2)
            return [condition, worst] if sort == "contact" else [condition]
        return []

    def _heard(self, query: Select[Any]) -> list[HeardVm]:
        return [
            HeardVm(vm=rows.vm_of(row), contact=row.contact)
            for row in self._connection.execute(query)
        ]


def _found(q: str) -> ColumnElement[bool]:
    """Return the SQL for whether a VM matches a search: by its name, its id, a pattern or a tag."""
    tag = tag_of(q)
    if tag is not None:
        return has_tag(vm, tag)
    if is_pattern(q):
        return vm.c.folded.like(pattern_of(folded(q)), escape=ESCAPE)
    in_id = func.lower(vm.c.vm_id).contains(q.lower(), autoescape=True)
    return or_(_in_name(q), in_id)


def _in_name(q: str) -> ColumnElement[bool]:
    found: ColumnElement[bool] = vm.c.folded.contains(folded(q), autoescape=True)
    return found


def position_of(known: Vm) -> tuple[str, str]:
    """Return the place of a VM in the order of names."""
    return rows.vm_row(known)["sort_name"], known.vm_id


def _conditions() -> Select[Any]:
    """Return a query of the VMs that open events name, each with its condition."""
    names = bearers_query().where(event.c.state.in_(OPEN), event.c.is_news == 0).subquery()
    started = func.max(case((names.c.state == "started", 1), else_=0))
    condition = case((started == 1, "started"), else_="scheduled").label("condition")
    return select(names.c.vm_id, condition).where(names.c.rank == 1).group_by(names.c.vm_id)


def _expectation(events: Sequence[tuple[str, str]]) -> Expectation:
    brought = {state for _, state in events}
    worst = next(word for word in ("started", "scheduled", CLEAR) if word in brought)
    return Expectation(
        condition=worst,
        events=tuple(sorted(event_id for event_id, _ in events)),
    )
