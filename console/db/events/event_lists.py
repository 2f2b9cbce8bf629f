"""The lists of open and of ended events, each in its order and page after page."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Row, Select, case, func, literal, select, tuple_

from console.db.events.event_filters import WantedEvents, filtered, matches_many
from console.db.events.known_events import KnownEvents, event_query
from console.db.schema.tables import event
from console.fleet.values.event import OPEN, KnownEvent

ENDED: Final = "ended"
NEVER: Final = 1e18
"""Sorts after the notBefore of every event."""
_MAX_SIGNS: Final = 1_000_000
"""The limit of all names of the past events in one answer, in characters. With short names the
whole answer is fifty times as long.
"""
ListPosition = tuple[float, str, str]
"""Where a listing continues: the sort value, the id and the scope of the event before."""


class EventLists:
    """Reads lists of events within one transaction."""

    def __init__(self, connection: Connection, known: KnownEvents) -> None:
        self._connection = connection
        self._known = known

    def open_events(
        self,
        wanted: WantedEvents | None = None,
        *,
        limit: int | None = None,
        after: ListPosition | None = None,
    ) -> list[KnownEvent]:
        """Return open events: started ones first, then by the time that is left. `after` is the
        last one of the page before: its `time_left`, id and scope.
        """
        left = _time_left()
        query = event_query().where(event.c.state.in_(OPEN))
        query = filtered(query, wanted, by_event=True)  # they are few
        if after is not None:
            order = tuple_(left, event.c.event_id, event.c.scope)
            query = query.where(order > tuple_(*map(literal, after)))
        query = query.order_by(left, event.c.event_id, event.c.scope)
        return self._known.read(query.limit(limit))

    def ended_events(
        self,
        wanted: WantedEvents | None = None,
        *,
        limit: int | None = None,
        after: ListPosition | None = None,
    ) -> list[KnownEvent]:
        """Return ended events, the newest first; `after` is the position of the last one of the
        page before.
        """
        return self._known.read(self._over(event_query(), wanted, after).limit(limit))

    def page_of_ended(
        self, wanted: WantedEvents, *, limit: int, after: ListPosition | None = None
    ) -> tuple[list[KnownEvent], bool]:
        """Return the first events that `ended_events` finds, and whether there are more. It is at
        least one, and not more than fit into one answer, as each may name thousands of VMs.
        """
        c = event.c
        query = select(c.event_id, c.scope, func.length(c.search_text).label("size"))
        found = self._connection.execute(self._over(query, wanted, after).limit(limit + 1)).all()
        shown: list[Row[Any]] = []
        size = 0
        for row in found[:limit]:
            size += row.size
            if shown and size > _MAX_SIGNS:
                break
            shown.append(row)
        return self._known.in_order_of(shown), len(found) > len(shown)

    def count_open(self) -> int:
        """Return how many events are not over."""
        query = select(func.count()).select_from(event).where(event.c.state.in_(OPEN))
        found: int = self._connection.execute(query).scalar_one()
        return found

    def _over(
        self, query: Select[Any], wanted: WantedEvents | None, after: ListPosition | None
    ) -> Select[Any]:
        """Return the query of ended events, the newest first, after a position in that order."""
        c = event.c
        is_common = wanted is not None and matches_many(self._connection, wanted)
        query = filtered(query.where(c.state == ENDED), wanted, by_event=is_common)
        if after is not None:
            order = tuple_(c.shown_at, c.event_id, c.scope)
            query = query.where(order < tuple_(*map(literal, after)))
        return query.order_by(c.shown_at.desc(), c.event_id.desc(), c.scope.desc())


def time_left(known: KnownEvent) -> float:
    """Return the sort value of an open event: started ones first, then by notBefore."""
    if known.event.state == "started":
        return 0.0
    return NEVER if known.event.not_before is None else known.event.not_before


def _time_left() -> ColumnElement[float]:
    c = event.c
    return case((c.state == "started", 0.0), else_=func.coalesce(c.not_before, NEVER))
