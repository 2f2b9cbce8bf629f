"""`/api/v1/events`: open events by the time that is left, then ended ones, the newest first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from console.access.people import Person
from console.access.site_access import sees_event, sees_vm
from console.db.decisions import decision_rows, prepare_commands
from console.db.events.event_filters import WantedEvents
from console.db.events.event_lists import NEVER, time_left
from console.db.events.event_reports import latest_reports
from console.db.events.past_records import records_of_event
from console.db.snapshot import Snapshot, Snapshots
from console.fleet import event_view
from console.fleet.event_choice import choose_event
from console.fleet.event_view import EventDetail, EventItem
from console.fleet.model import Model
from console.fleet.timeline import timeline
from console.fleet.values.event import KnownEvent
from console.web.answers import answer, refuse
from console.web.api.cursors import cursor, position_in
from console.web.api.events_csv import csv_lines
from console.web.api.models import MAX_ITEMS, EventQuery, EventsQuery
from console.web.caller import person_of


class EventPage(Model):
    """One page of events; `next` is the cursor of the following one."""

    items: list[EventItem]
    next: str | None


class EventRoutes:
    """Answers requests for events."""

    def __init__(self, snapshots: Snapshots) -> None:
        self._snapshots = snapshots

    def list_(self, request: Request, query: EventsQuery) -> Response:
        """Answer with a page of events."""
        own = person_of(request).site
        if own is not None and query.site not in (None, own):
            return answer(EventPage(items=[], next=None))
        wanted = wanted_of(query, own)
        if query.format == "csv":
            return csv_answer(self._rows(wanted, query, own))
        after = position_in(query.cursor, str, (int, float), str, str)  # type: ignore[arg-type]
        with self._snapshots.open() as snapshot:
            items, following = events_page(
                snapshot,
                wanted,
                state=query.state,
                limit=query.items,
                after=after,
                shows_other_scopes=own is None,
            )
        return answer(EventPage(items=items, next=following))

    def _rows(
        self, wanted: WantedEvents, query: EventsQuery, own: str | None
    ) -> Iterator[EventItem]:
        """Yield all wanted events, or as many as were requested; they are read page by page."""
        left = query.limit
        following = query.cursor
        while left is None or left > 0:
            after = position_in(following, str, (int, float), str, str)  # type: ignore[arg-type]
            limit = MAX_ITEMS if left is None else min(MAX_ITEMS, left)
            with self._snapshots.open() as snapshot:
                items, following = events_page(
                    snapshot,
                    wanted,
                    state=query.state,
                    limit=limit,
                    after=after,
                    shows_other_scopes=own is None,
                )
            yield from items
            left = None if left is None else left - len(items)
            if following is None:
                return

    def one(self, request: Request, query: EventQuery) -> Response:
        """Answer with an event and its timeline."""
        event_id = request.path_params["eventId"]
        person = person_of(request)
        with self._snapshots.open() as snapshot:
            found = event_detail(snapshot, event_id, person, query.scope)
        if found is None:
            raise refuse(404, "there is no such event")
        return answer(found)


def wanted_of(query: EventsQuery, site: str | None) -> WantedEvents:
    """Return the filter that a query asks for; `site` is the only one that the person sees."""
    return WantedEvents(
        q=query.q,
        site=site or query.site,
        type=query.type,
        status=query.status,
        by=query.by,
        vm=query.vm,
        tag=query.tag,
        group=query.group,
        since=query.since,
        until=query.until,
    )


def csv_answer(events: Iterator[EventItem]) -> Response:
    """Return events as a table; each row is sent when it is made."""
    return StreamingResponse(
        csv_lines(events),
        headers={
            "Cache-Control": "no-store",
            "Content-Disposition": 'attachment; filename="events.csv"',
        },
        media_type="text/csv",
    )


def events_page(
    snapshot: Snapshot,
    wanted: WantedEvents,
    *,
    state: str | None,
    limit: int,
    after: list[Any] | None = None,
    shows_other_scopes: bool = True,
) -> tuple[list[EventItem], str | None]:
    """Return items and the cursor of the next page; `state` is open, over or None for both.
    `shows_other_scopes` as in `event_view.event_item`.
    """

    def items(several: list[KnownEvent]) -> list[EventItem]:
        return [
            item_of_event(snapshot, each, shows_other_scopes=shows_other_scopes) for each in several
        ]

    position = None if after is None else (float(after[1]), str(after[2]), str(after[3]))
    found: list[KnownEvent] = []
    if state != "over" and (after is None or after[0] == "open"):
        found = snapshot.event_lists.open_events(wanted, limit=limit + 1, after=position)
        if len(found) > limit:
            last = found[limit - 1]
            place_of_last = cursor("open", time_left(last), *last.event.key)
            return items(found[:limit]), place_of_last
        if state == "open":
            return items(found), None
        position = None
    rest = limit - len(found)
    if not rest:
        return items(found), cursor("over", NEVER, "", "")
    over, has_more = snapshot.event_lists.page_of_ended(wanted, limit=rest, after=position)
    following = None
    if has_more:
        last = over[-1]
        following = cursor("over", last.event.shown_at, *last.event.key)
    return items([*found, *over]), following


def event_detail(
    snapshot: Snapshot, event_id: str, person: Person, scope: str | None = None
) -> EventDetail | None:
    """Return an event with its timeline; None if the person sees no event with that id, in that
    scope if one is given.
    """
    several = [
        each for each in snapshot.events.events_with_id(event_id) if sees_event(person, each.event)
    ]
    known = choose_event(several, scope)
    if known is None:
        return None
    key = known.event.key
    reports = latest_reports(snapshot.connection, key)
    heard = {
        each.vm.vm_id: each for each in snapshot.vms.vms_with_ids([one.vm_id for one in reports])
    }
    reporters = []
    for each in reports:
        vm = heard.get(each.vm_id)
        if person.site is None or (vm is not None and sees_vm(person, vm.vm)):
            reporters.append(event_view.reporter_item(each, vm, known.shown))
    records = records_of_event(snapshot.connection, key, person.site)
    prepares = prepare_commands.read(snapshot.connection, [key.event_id])
    asked = [sent[-1] for (event_key, *_), sent in prepares.items() if event_key == key]
    every = decision_rows.decisions_on(snapshot.connection, key)
    return EventDetail(
        **dict(item_of_event(snapshot, known, shows_other_scopes=person.site is None)),
        witnesses=reporters,
        timeline=timeline(records, every, [*known.decided.commands, *asked]),
    )


def item_of_event(
    snapshot: Snapshot, known: KnownEvent, *, shows_other_scopes: bool = True
) -> EventItem:
    """Return an event as the API lists it; see `event_view.event_item`."""
    return event_view.event_item(
        known, snapshot.now, snapshot.listening, shows_other_scopes=shows_other_scopes
    )
