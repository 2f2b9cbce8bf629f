"""The history of events: open and over, by any filter and sort, with their number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Row, case, func, null, select, tuple_

from console.db.events.event_filters import (
    WantedEvents,
    filtered,
    in_names,
    matches_many,
    sorted_by,
)
from console.db.events.known_events import KnownEvents
from console.db.schema.tables import event
from console.db.search import is_text
from console.fleet.values.event import KnownEvent

_MAX_VALUES: Final = 50
_AHEAD: Final = 6
"""How many events the database looks at for each event that is wanted, if the filters match many
VMs.
"""
COUNTED: Final = 1000
"""The limit up to which events are counted in that case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """The number of events; with `has_more` there are more than that."""

    number: int
    has_more: bool = False


class EventHistory:
    """Reads the history of events within one transaction."""

    def __init__(self, connection: Connection, known: KnownEvents) -> None:
        self._connection = connection
        self._known = known

    def sorted_events(
        self, wanted: WantedEvents, *, sort: str, descending: bool, limit: int, skip: int = 0
    ) -> tuple[list[KnownEvent], Total]:
        """Return events, open or over, by one of `SORTS`, and how many there are in all. Events
        without a value come last. In the order of time, events with a matching name come before
        those with a matching id. Beyond the last event the number is zero.
        """
        ordered = sorted_by(sort, descending=descending)
        if wanted.q is not None and sort == "at" and is_text(wanted.q):
            ordered.insert(0, case((in_names(wanted.q), 0), else_=1))
        # Sorted without the reports: only those of the events that are returned are read.
        order = (*ordered, event.c.event_id)
        if skip + limit <= COUNTED and matches_many(self._connection, wanted):
            first = self._first(wanted, order, COUNTED + 1)
            if len(first) > COUNTED:
                total = Total(number=COUNTED, has_more=True)
                return self._known.in_order_of(first[skip : skip + limit]), total
        # With a filter, the rows are counted in the same query; without, `count_events` is quicker.
        in_one_go = wanted != WantedEvents()
        counted = func.count().over() if in_one_go else null()
        query = filtered(select(event.c.event_id, event.c.scope, counted), wanted)
        query = query.order_by(*order).limit(limit).offset(skip)
        found = self._connection.execute(query).all()
        number = (found[0][2] if found else 0) if in_one_go else self.count_events(wanted)
        return self._known.in_order_of(found), Total(number=number)

    def count_events(self, wanted: WantedEvents) -> int:
        """Return how many events are wanted, open or over."""
        query = filtered(select(func.count()).select_from(event), wanted)
        found: int = self._connection.execute(query).scalar_one()
        return found

    def frequent_values(self, column_name: str) -> list[str]:
        """Return the most frequent values of a column, sorted: `event_type` or `status`. Azure has
        a few values; a VM may make up others.
        """
        column = event.c[column_name]
        query = select(column).group_by(column).order_by(func.count().desc(), column)
        found = self._connection.execute(query.limit(_MAX_VALUES)).scalars()
        return sorted(value for value in found if value)

    def _first(
        self, wanted: WantedEvents, order: Sequence[ColumnElement[Any]], limit: int
    ) -> Sequence[Row[Any]]:
        """Return the first matching events of an order, for filters that match many VMs. It reads
        the head of the order, because looking up the events of each VM would be slower.
        """
        columns = (event.c.event_id, event.c.scope)
        q = wanted.q if wanted.q is not None and is_text(wanted.q) else None
        some = filtered(select(*columns), replace(wanted, q=q, tag=None))
        some = some.order_by(*order).limit(limit * _AHEAD)
        query = filtered(select(*columns), wanted, by_event=True)
        query = query.where(tuple_(*columns).in_(some)).order_by(*order).limit(limit)
        return self._connection.execute(query).all()
