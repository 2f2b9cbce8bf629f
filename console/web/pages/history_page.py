"""`/history`: past events with their VMs, their times, how they ended, and who approved them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlencode

from console.access.people import Person
from console.db.events.event_filters import SORTS, WantedEvents
from console.db.events.event_history import Total
from console.db.snapshot import Snapshot
from console.fleet.event_view import EventItem
from console.fleet.values.event import KnownEvent
from console.web.api.events import item_of_event, wanted_of
from console.web.api.models import EventsQuery
from console.web.pages import labels
from console.web.pages.event_rows import section_of
from console.web.pages.formatting import DAY, HOUR
from console.web.pages.list_address import ListAddress

PAGE_EVENTS: Final = 100
"""Events on one page."""
_FILTERS: Final = ("q", "since", "until", "type", "status", "site", "group", "vm", "tag", "by")
PARAMETERS: Final = (*_FILTERS, "sort", "page")
"""The parameters of this page's address."""
COLUMNS: Final = (
    ("at", "First seen"),
    ("type", "Event"),
    ("vms", "VMs"),
    ("site", "Site"),
    ("status", "Ended"),
    ("notice", "Notice"),
    ("downtime", "Away"),
    ("by", "Approved"),
)
"""For each column, the value that it is sorted by, and its heading."""
_PERIODS: Final = (("last hour", HOUR), ("last 12 hours", 12 * HOUR), ("last 7 days", 7 * DAY))
_EVENING: Final = 20 * HOUR
_MORNING: Final = 8 * HOUR
"""A night lasts from `_EVENING` to `_MORNING`: in the browser's time zone where the page's script
runs, otherwise in UTC.
"""


def address_of(query: Mapping[str, str]) -> ListAddress:
    """Return the address of the page with this query."""
    return ListAddress(
        "/history",
        query,
        names=_FILTERS,
        usual={"sort": "-at", "page": "1"},
        sorts=SORTS,
        descends_first=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRow:
    """An event as the table shows it."""

    event: EventItem
    section: str
    sites: Sequence[str]
    promised: float | None
    """Seconds of notice that Azure promises for its type."""
    announced: int | None
    """Seconds of interruption that Azure announced."""


def template_values(
    snapshot: Snapshot, address: ListAddress, person: Person, *, has_groups: bool
) -> dict[str, Any]:
    """Return the values of the template. Raises pydantic's `ValidationError` for a time that is not
    valid.
    """
    wanted = wanted_of(EventsQuery.model_validate(address.filters), person.site)
    page = address.page
    found, total = _past(snapshot, wanted, address, address.page)
    if not found and page > 1:  # behind the last page
        page = _pages(snapshot.event_history.count_events(wanted))
        found, total = _past(snapshot, wanted, address, page)
    last = _pages(total.number + total.has_more)
    first = (page - 1) * PAGE_EVENTS
    exported = urlencode(address.filters)
    return {
        "address": address,
        "has_groups": has_groups,
        "columns": COLUMNS,
        "rows": [_row(item_of_event(snapshot, each), each.event.sites) for each in found],
        "total": total,
        "first": first,
        "page": page,
        "last": last,
        "types": snapshot.event_history.frequent_values("event_type"),
        "statuses": snapshot.event_history.frequent_values("status"),
        "sites": [person.site] if person.site else snapshot.vm_lists.filter_values()["site"],
        "periods": [(words_, _moment(snapshot.now - length)) for words_, length in _PERIODS],
        "night": _last_night(snapshot.now),
        "json_url": f"/api/v1/events?{urlencode({**address.filters, 'limit': 1000})}",
        "csv_url": f"/api/v1/events?{f'{exported}&' if exported else ''}format=csv",
    }


def _past(
    snapshot: Snapshot, wanted: WantedEvents, address: ListAddress, page: int
) -> tuple[list[KnownEvent], Total]:
    """Return the events of a page, and how many there are in all."""
    return snapshot.event_history.sorted_events(
        wanted,
        sort=address.column,
        descending=address.descends,
        limit=PAGE_EVENTS,
        skip=(page - 1) * PAGE_EVENTS,
    )


def _pages(count: int) -> int:
    return max(1, -(-count // PAGE_EVENTS))


def _row(event: EventItem, sites: Sequence[str]) -> HistoryRow:
    notice = labels.event_type(event.event_type).notice
    announced = event.duration_in_seconds
    return HistoryRow(
        event=event,
        section=section_of(event),
        sites=sites,
        promised=None if notice is None else notice[0],
        announced=announced if announced is not None and announced >= 0 else None,
    )


def _last_night(now: float) -> dict[str, str]:
    """Return the filters for the present night, or else for the last one."""
    midnight = now - now % DAY
    morning = midnight + _MORNING
    since = _moment(midnight - DAY + _EVENING)
    return {"since": since, "until": _moment(morning) if morning <= now else ""}


def _moment(at: float) -> str:
    """Return a time in the form that a browser's field for times needs."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M")
