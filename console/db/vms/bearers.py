"""Which VM each name of an event is."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import ColumnElement, Select, and_, case, func, select

from console.db.schema.tables import event, event_place, report, resource, vm

_SHOWN: Final = vm.alias("shown")
BEARER: Final = vm.alias("bearer")
"""The VM that bears a name, in `bearers_query`."""
_CONTACT_COLUMNS: Final = (
    "command_source",
    "pulled_at",
    "heard_at",
    "name_since",
    "site",
    "prepares",
)


def bearers_query(
    *columns: ColumnElement[Any], heard: ColumnElement[bool] | None = None
) -> Select[Any]:
    """Return which VM each name of each event is, as far as it is known: one that bears the name in
    the place of the reporter that shows the event, or else in the place of another reporter.

    If several VMs bear it, `rank` 1 has the one that counts, the first of these:

    1. the reporter that shows the event;
    2. one that reports the event too, and that it names it;
    3. with `heard`, of those that are heard the one that has borne the name longest;
    4. the one that was heard last.

    `columns` are further ones, of `BEARER` or of `event`.
    """
    is_elsewhere = case((BEARER.c.place == _SHOWN.c.place, 0), else_=1)
    best = case((BEARER.c.vm_id == event.c.shown_by, 0), (report.c.vm_id.is_not(None), 1), else_=2)
    order: list[ColumnElement[Any]] = [BEARER.c.heard_at.desc()]
    if heard is not None:
        order = [case((heard, 0), else_=1), BEARER.c.name_since, *order]
    rank = func.row_number().over(
        partition_by=(resource.c.event_id, resource.c.scope, resource.c.name_key),
        order_by=(is_elsewhere, best, *order, BEARER.c.vm_id),
    )
    both = and_(
        report.c.event_id == resource.c.event_id,
        report.c.vm_id == BEARER.c.vm_id,
        report.c.scope == resource.c.scope,
        report.c.is_own == 1,
    )
    same_event = and_(event.c.event_id == resource.c.event_id, event.c.scope == resource.c.scope)
    its_place = and_(
        event_place.c.event_id == event.c.event_id, event_place.c.scope == event.c.scope
    )
    bears = and_(BEARER.c.place == event_place.c.place, BEARER.c.name_key == resource.c.name_key)
    return (
        select(
            resource.c.event_id,
            resource.c.scope,
            resource.c.name_key,
            event.c.state,
            event.c.is_news,
            BEARER.c.vm_id,
            report.c.content_hash,
            report.c.over,
            rank.label("rank"),
            *(BEARER.c[name] for name in _CONTACT_COLUMNS),
            *columns,
        )
        .select_from(event)
        .join(resource, same_event)
        .join(_SHOWN, _SHOWN.c.vm_id == event.c.shown_by)
        .join(event_place, its_place)
        .join(BEARER, bears)
        .outerjoin(report, both)
    )
