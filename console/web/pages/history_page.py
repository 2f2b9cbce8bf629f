"""`/history`: past events with their VMs, their times, how they ended, and who approved them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlencode

from console.access.people import Person
from console.db.event_filters import SORTS, WantedEvents
from console.db.events import Total
from console.db.snapshot import Snapshot
from console.fleet.values import KnownEvent
from console.fleet.view import Event
from console.web.api.events import event_item, wanted_of
from console.web.api.models import EventsQuery
from console.web.pages import labels
from console.web.pages.event_rows import group_of
from console.web.pages.formatting import DAY, HOUR, page_number

PAGE: Final = 100
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


class Choice:
    """The parameters of the page's address."""

    def __init__(self, query: Mapping[str, str]) -> None:
        self.given: Final = {
            name: value for name in PARAMETERS if (value := query.get(name, "").strip()[:300])
        }
        asked = self.given.get("sort", "-at")
        self.sort: Final = asked.lstrip("-") if asked.lstrip("-") in SORTS else "at"
        self.descending: Final = asked.startswith("-") or asked.lstrip("-") not in SORTS
        self.page: Final = page_number(self.given.get("page", ""))

    def __getitem__(self, name: str) -> str:
        return self.given.get(name, "")

    @property
    def filters(self) -> dict[str, str]:
        """The filters that are set in the address: names and values as in the API."""
        return {name: value for name in _FILTERS if (value := self.given.get(name))}

    def url(self, **changed: object) -> str:
        """Return the address of this choice with some changes; a changed choice begins at
        page 1.
        """
        chosen = {**self.given, "page": "", **changed}
        query = {name: value for name, value in chosen.items() if value}
        return f"/history?{urlencode(query)}" if query else "/history"

    def sorted_by(self, column: str) -> str:
        """Return the address that sorts by a column, or in the other direction if the page is
        sorted by it already.
        """
        is_same = column == self.sort
        return self.url(sort=column if is_same and self.descending else f"-{column}")

    def order(self, column: str) -> str | None:
        """Return the direction in which a column is sorted, in ARIA's words."""
        if column != self.sort:
            return None
        return "descending" if self.descending else "ascending"


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRow:
    """An event as the table shows it."""

    event: Event
    group: str
    sites: Sequence[str]
    promised: float | None
    """Seconds of notice that Azure promises for its type."""
    announced: int | None
    """Seconds of interruption that Azure announced."""


def values(
    snapshot: Snapshot, choice: Choice, person: Person, *, has_groups: bool
) -> dict[str, Any]:
    """Return the values of the template. Raises pydantic's `ValidationError` for a time that is not
    valid.
    """
    wanted = wanted_of(EventsQuery.model_validate(choice.filters), person.site)
    page, (found, total) = choice.page, _past(snapshot, wanted, choice, choice.page)
    if not found and page > 1:  # behind the last page
        page = _pages(snapshot.events.count(wanted))
        found, total = _past(snapshot, wanted, choice, page)
    last = _pages(total.number + total.has_more)
    first = (page - 1) * PAGE
    exported = urlencode(choice.filters)
    return {
        "choice": choice,
        "has_groups": has_groups,
        "columns": COLUMNS,
        "rows": [_row(event_item(snapshot, each), each.event.sites) for each in found],
        "total": total,
        "first": first,
        "page": page,
        "last": last,
        "types": snapshot.events.words_of("event_type"),
        "statuses": snapshot.events.words_of("status"),
        "sites": [person.site] if person.site else snapshot.vms.options()["site"],
        "periods": [(words_, _moment(snapshot.now - length)) for words_, length in _PERIODS],
        "night": _last_night(snapshot.now),
        "json_url": f"/api/v1/events?{urlencode({**choice.filters, 'limit': 1000})}",
        "csv_url": f"/api/v1/events?{f'{exported}&' if exported else ''}format=csv",
    }


def _past(
    snapshot: Snapshot, wanted: WantedEvents, choice: Choice, page: int
) -> tuple[list[KnownEvent], Total]:
    """Return the events of a page, and how many there are in all."""
    return snapshot.events.past(
        wanted,
        sort=choice.sort,
        descending=choice.descending,
        limit=PAGE,
        skip=(page - 1) * PAGE,
    )


def _pages(count: int) -> int:
    return max(1, -(-count // PAGE))


def _row(event: Event, sites: Sequence[str]) -> HistoryRow:
    notice, announced = labels.event_type(event.event_type).notice, event.duration_in_seconds
    return HistoryRow(
        event=event,
        group=group_of(event),
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
