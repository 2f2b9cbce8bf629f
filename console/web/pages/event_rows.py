"""Events as the pages list them: the data of the API, ordered by what is to be done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from console.db.events.event_filters import WantedEvents
from console.db.snapshot import Snapshot
from console.fleet.decisions import only_hastens_deletion
from console.fleet.event_view import EventItem
from console.fleet.outcomes import reason_text
from console.fleet.values.event import FleetEvent, KnownEvent
from console.fleet.values.vm import DEFAULT_SITE
from console.web.api.events import item_of_event
from console.web.pages import labels

_NAMES_SHOWN: Final = 5
"""How many events of one kind that one VM shows come before those of other VMs."""
LATE_SECONDS: Final = 30.0
"""An approval that is not confirmed after this time is marked as late."""
_RANKS: Final = ("due", "second", "started", "note", "scheduled", "news", "ended")


@dataclass(frozen=True, slots=True, kw_only=True)
class LastTry:
    """The state of the newest attempt to approve an event; without `label` this console has made no
    attempt.
    """

    late: float | None
    """The seconds since the approval began, once they exceed `LATE_SECONDS`."""
    label: str | None = None
    ordinal: str = ""
    by: str | None = None
    """Who approves, unless the row shows it already."""
    at: float | None = None
    reason: str | None = None
    is_waiting: bool = False
    """Whether the VM has not answered yet."""
    sent: float | None = None
    until: float | None = None

    @property
    def patience(self) -> float | None:
        """How many seconds the console waits for an answer."""
        if self.sent is None or self.until is None:
            return None
        return max(0.0, self.until - self.sent)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventListRow:
    """An event as a list shows it."""

    event: EventItem
    heading: str
    type: labels.EventType
    section: str
    """What is to be done about it: one of `_RANKS`."""
    may_start: bool
    """Whether Azure may start it at any moment."""
    shown_by: str
    """The vmId of the reporter whose report is shown."""
    shown_at: float
    """The time of that report."""
    sites: Sequence[str]
    last_try: LastTry | None

    @property
    def named_sites(self) -> list[str]:
        """The event's sites without the default one, which VMs have to which no site was given."""
        return [site for site in self.sites if site != DEFAULT_SITE]


def open_rows(snapshot: Snapshot) -> list[EventListRow]:
    """Return all open events: decisions that are due first, then started events, then by the time
    that is left.
    """
    return in_order(rows_of(snapshot, snapshot.event_lists.open_events()))


def found_among(snapshot: Snapshot, rows: Sequence[EventListRow], q: str) -> list[EventListRow]:
    """Return the rows that a search finds among these, as `console.db.search` does."""
    if not q:
        return list(rows)
    keys = {each.event.key for each in snapshot.event_lists.open_events(WantedEvents(q=q))}
    return [row for row in rows if (row.event.event_id, row.event.scope) in keys]


def rows_of(snapshot: Snapshot, several: Iterable[KnownEvent]) -> list[EventListRow]:
    """Return events as rows."""
    return [row_of(item_of_event(snapshot, each), each.event, snapshot.now) for each in several]


def row_of(event: EventItem, row: FleetEvent, now: float) -> EventListRow:
    """Return an event as a list shows it; `row` is its row in the database."""
    return EventListRow(
        event=event,
        heading=labels.heading(event),
        type=labels.event_type(event.event_type),
        section=section_of(event),
        may_start=may_start(event, now),
        shown_at=row.shown_at,
        shown_by=row.shown_by,
        sites=row.sites,
        last_try=last_try(event, now),
    )


def may_start(event: EventItem, now: float) -> bool:
    """Check whether Azure may start an event at any moment from now on."""
    is_pending = event.state == "scheduled" and not event.is_news
    return is_pending and event.start is not None and event.start <= now


def section_of(event: EventItem) -> str:
    """Return the group in which an event is listed, by what is to be done about it: one of
    `_RANKS`.
    """
    decision = event.decision.state
    if decision in ("due", "second"):
        return "note" if only_hastens_deletion(event.event_type) else decision
    return "news" if event.is_news else event.state


def last_try(event: EventItem, now: float) -> LastTry | None:
    """Return the state of the newest attempt to approve an event; None without one, or once it is
    approved.
    """
    decision = event.decision
    tries = event.tries
    if decision.state not in ("due", "approving") or event.state != "scheduled":
        return None
    begun = decision.at if decision.state == "approving" else None
    late = now - begun if begun is not None and now - begun > LATE_SECONDS else None
    if not tries:
        return None if late is None else LastTry(late=late)
    last = tries[-1]
    # Who approves stands in the row already, as long as it is being approved.
    is_said = begun is not None and decision.by == last.by
    return LastTry(
        late=late,
        label=labels.COMMAND_STATES[last.state],
        ordinal=_ordinal(len(tries)),
        by=None if is_said else last.by,
        at=last.at,
        reason=reason_text(last.reason),
        is_waiting=last.state == "sent",
        sent=last.sent_at,
        until=last.until,
    )


def _ordinal(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{'th' if number % 100 in (11, 12, 13) else ending}"


def in_order(rows: Iterable[EventListRow]) -> list[EventListRow]:
    """Return rows by what is to be done, then by time left; events without a time come last.

    If one VM shows many, those after the first few come behind the events of all other VMs, so that
    they do not delay decisions on those.
    """
    found: list[tuple[int, bool, float, str, EventListRow]] = []
    shown: Counter[tuple[str, str]] = Counter()
    for row in sorted(rows, key=_by_time):
        key = (row.section, row.shown_by)
        shown[key] += 1
        rank = _RANKS.index(row.section)
        found.append((rank, shown[key] > _NAMES_SHOWN, *_by_time(row), row))
    return [each[-1] for each in sorted(found, key=lambda each: each[:-1])]


def _by_time(row: EventListRow) -> tuple[float, str]:
    start = row.event.start
    return (float("inf") if start is None else start, row.event.event_id)
