"""Which events a listing wants, and in which order: its filters and sorts, as SQL."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    CompoundSelect,
    Connection,
    Select,
    and_,
    case,
    func,
    literal,
    or_,
    select,
    tuple_,
    union,
)

from console.db.schema.decision_tables import decision, turn
from console.db.schema.tables import event, event_place, receipt, resource, vm
from console.db.search import ESCAPE, has_tag, is_pattern, pattern_of, tag_of
from console.fleet.values.event import OPEN
from console.fleet.values.keys import name_key

SORTS: Final[Mapping[str, ColumnElement[Any]]] = {
    "at": event.c.first_seen_at,
    "type": event.c.event_type,
    "status": event.c.status,
    "site": event.c.sites,
    "vms": func.substr(event.c.search_text, func.length(event.c.event_id) + 2),
    "started": event.c.started_at,
    "notice": event.c.notice,
    "downtime": event.c.downtime,
    "by": func.coalesce(
        select(func.max(decision.c.actor))
        .where(decision.c.event_id == event.c.event_id, decision.c.scope == event.c.scope)
        .correlate(event)
        .scalar_subquery(),
        select(func.max(receipt.c.actor))
        .where(receipt.c.event_id == event.c.event_id, receipt.c.state == "confirmed")
        .correlate(event)
        .scalar_subquery(),
    ),
}
"""The columns by which past events can be sorted."""
_ALWAYS_KNOWN: Final = ("at", "status", "site", "vms")
_BEARER: Final = vm.alias("named_vm")
_COMMON: Final = 0.2
"""If the wanted VMs are at least this share of all VMs, the database looks at one event after the
other, which is quicker.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedEvents:
    """The filter of a listing; None filters nothing."""

    q: str | None = None
    """A part of a name or of the id, a pattern such as `db-*`, `tag=role:db`, or a part of a
    decision's reason, such as the number of a change.
    """
    site: str | None = None
    type: str | None = None
    status: str | None = None
    by: str | None = None
    """A part of the name of the person or rule that approved it."""
    vm: str | None = None
    """Name or vmId of a VM that it names."""
    tag: str | None = None
    """A tag of a VM that it names: `role:db`, or only the tag's name."""
    since: float | None = None
    """Events that were open at this time or later."""
    until: float | None = None
    group: str | None = None
    """The key of a group, or its name."""


def filtered(
    query: Select[Any], wanted: WantedEvents | None, *, by_event: bool = False
) -> Select[Any]:
    """Add the wanted filters to a query of events. With `by_event` the database looks at one event
    after the other, and at its names; otherwise it looks up all events of the wanted names, which
    is quicker if those are few.
    """
    if wanted is None:
        return query
    c = event.c
    if wanted.q is not None:
        query = query.where(_matches_search(wanted.q, by_event=by_event))
    if wanted.site is not None:
        query = query.where(
            c.sites.contains(json.dumps(wanted.site, ensure_ascii=False), autoescape=True)
        )
    if wanted.type is not None:
        query = query.where(func.lower(c.event_type) == wanted.type.lower())
    if wanted.status is not None:
        query = query.where(func.lower(c.status) == wanted.status.lower())
    if wanted.since is not None:
        query = query.where(or_(c.state.in_(OPEN), c.shown_at >= wanted.since))
    if wanted.until is not None:
        query = query.where(c.first_seen_at <= wanted.until)
    return _with_subject_filters(query, wanted, by_event=by_event)


def sorted_by(sort: str, *, descending: bool) -> list[ColumnElement[Any]]:
    """Return the order of past events by one of `SORTS`; events without a value come last."""
    column = SORTS[sort]
    is_complete = sort in _ALWAYS_KNOWN
    if sort == "by":
        # The database looks up who approved an event once for each place in the query where that
        # stands, so one text says both: the name, and whether there is one. (NULLS LAST needs
        # SQLite 3.30.)
        known, unknown = ("1", "0") if descending else ("0", "1")
        column = func.coalesce(literal(known) + column, unknown)
        is_complete = True
    order = [column.desc() if descending else column]
    return order if is_complete else [column.is_(None), *order]


def matches_many(connection: Connection, wanted: WantedEvents) -> bool:
    """Check whether the wanted tag or name matches so many VMs that scanning events in order is
    quicker than looking up all events of those VMs.
    """
    conditions = [has_tag(vm, tag) for tag in (wanted.tag, tag_of(wanted.q or "")) if tag]
    if wanted.q is not None and is_pattern(wanted.q) and tag_of(wanted.q) is None:
        conditions.append(is_named_like(vm, wanted.q))
    if not conditions:
        return False
    count = select(func.count(), func.sum(case((and_(*conditions), 1), else_=0))).select_from(vm)
    every, some = connection.execute(count).one()
    return bool(every and some >= _COMMON * every)


def ids_found(q: str) -> Select[Any]:
    """Return a query of the ids of the events that match a search."""
    return select(event.c.event_id).where(_matches_search(q, by_event=False))


def in_names(q: str) -> ColumnElement[bool]:
    """Return the SQL for whether a name that an event lists matches a search; `search_text` has
    the names after the id.
    """
    found: ColumnElement[bool] = event.c.search_text.like(
        f"%\n%{pattern_of(q.casefold())}%", escape=ESCAPE
    )
    return found


def is_named_like(table: Any, q: str) -> ColumnElement[bool]:
    """Return the SQL for whether a key of a name in a table matches a pattern."""
    found: ColumnElement[bool] = table.c.name_key.like(pattern_of(name_key(q)), escape=ESCAPE)
    return found


def _with_subject_filters(
    query: Select[Any], wanted: WantedEvents, *, by_event: bool
) -> Select[Any]:
    """Add the filters by VM, group, tag and approver to a query of events."""
    c = event.c
    if wanted.by is not None:
        query = query.where(c.event_id.in_(_approved_by(wanted.by)))
    if wanted.vm is not None:
        name = name_key(wanted.vm)
        vm_ids = [wanted.vm, wanted.vm.lower()]
        # A name that an event lists also counts if its VM is not known.
        listing = select(resource.c.event_id).where(resource.c.name_key == name)
        same = _names_one(lambda each: each.c.vm_id.in_(vm_ids), by_event=by_event)
        query = query.where(or_(same, c.event_id.in_(listing)))
    if wanted.group is not None:
        touches = select(turn.c.event_id).where(
            turn.c.event_id == c.event_id, turn.c.scope == c.scope
        )
        whole = turn.c.groups.contains(json.dumps(wanted.group), autoescape=True)
        part = turn.c.groups.contains(json.dumps(wanted.group)[:-1] + "/", autoescape=True)
        query = query.where(touches.where(or_(whole, part)).exists())
    if wanted.tag is not None:
        tag = wanted.tag
        query = query.where(_names_one(lambda each: has_tag(each, tag), by_event=by_event))
    return query


def _matches_search(q: str, *, by_event: bool) -> ColumnElement[bool]:
    """Return the SQL for whether an event matches a search."""
    c = event.c
    tag = tag_of(q)
    if tag is not None:
        return _names_one(lambda each: has_tag(each, tag), by_event=by_event)
    if is_pattern(q):
        listing = select(resource.c.event_id, resource.c.scope).where(is_named_like(resource, q))
        return _is_among(listing, by_event=by_event)
    text = c.search_text.contains(q.casefold(), autoescape=True)
    reason = func.lower(decision.c.reason).contains(q.lower(), autoescape=True)
    why = func.lower(receipt.c.why).contains(q.lower(), autoescape=True)
    return or_(
        text,
        c.event_id.in_(select(decision.c.event_id).where(reason)),
        c.event_id.in_(select(receipt.c.event_id).where(why)),
    )


def _names_one(
    wanted: Callable[[Any], ColumnElement[bool]], *, by_event: bool
) -> ColumnElement[bool]:
    """Return the SQL for whether an event names a VM that fulfils `wanted`, which gets the table of
    VMs. A name stands for the VMs that bear it in the places of the reporters whose report is
    shown.
    """
    p = event_place.c
    r = resource.c
    names = select(r.event_id, r.scope)
    if by_event:
        bearer = (
            select(literal(1))
            .select_from(event_place)
            .join(_BEARER, and_(_BEARER.c.place == p.place, _BEARER.c.name_key == r.name_key))
            .where(p.event_id == r.event_id, p.scope == r.scope, wanted(_BEARER))
            .correlate(resource)
        )
        return _is_among(names.where(bearer.exists()), by_event=True)
    same = and_(p.event_id == r.event_id, p.scope == r.scope, p.place == _BEARER.c.place)
    names = names.select_from(_BEARER).join(resource, r.name_key == _BEARER.c.name_key)
    return _is_among(names.join(event_place, same).where(wanted(_BEARER)), by_event=False)


def _is_among(names: Select[Any], *, by_event: bool) -> ColumnElement[bool]:
    """Return the SQL for whether an event is in a query of ids and scopes of `resource`."""
    c = event.c
    r = resource.c
    if by_event:
        own = names.where(r.event_id == c.event_id, r.scope == c.scope)
        return own.correlate(event).exists()
    return tuple_(c.event_id, c.scope).in_(names)


def _approved_by(name: str) -> CompoundSelect[Any]:
    """Return a query of the ids of the events that somebody approved, in the console or
    elsewhere.
    """
    wanted = name.lower()
    d = decision.c
    r = receipt.c
    actors = func.lower(d.actor + ", " + func.coalesce(d.second_actor, ""))
    here = select(d.event_id).where(
        d.kind == "approve", d.outcome == "confirmed", actors.contains(wanted, autoescape=True)
    )
    elsewhere = select(r.event_id).where(
        r.state == "confirmed",
        r.event_id.is_not(None),
        func.lower(r.actor).contains(wanted, autoescape=True),
    )
    return union(here, elsewhere)
