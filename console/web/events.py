"""`/api/v1/events`: the open ones by time left, then those that are over, the newest first."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from console.access.people import Person
from console.access.scope import sees_event
from console.fleet import view
from console.fleet.timeline import timeline
from console.fleet.values import UNDECIDED, Decided, Event, Receipt, Sighting
from console.records.parse import seconds
from console.store import history
from console.web.answers import (
    Json,
    answer,
    choice_of,
    cursor,
    cursor_of,
    limit_of,
    refuse,
    word_of,
)
from console.web.desk import Desk
from console.web.security import person_of

_NEVER = 1e18
"""Behind every event that has a notBefore."""
Wanted = history.Wanted


class Events:
    """Answers about events, from memory if they are open and from the database if not."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def listed(self, request: Request) -> Response:
        """A page of events."""
        state = choice_of(request, "state", ("open", "over"))
        site, own = word_of(request, "site"), person_of(request).site
        if own is not None and site not in (None, own):
            return answer({"items": [], "next": None})
        wanted = Wanted(q=word_of(request, "q"), site=own or site, type=word_of(request, "type"))
        items, following = await self.page(
            wanted,
            state=state,
            limit=limit_of(request),
            after=cursor_of(request, str, (int, float), str),  # type: ignore[arg-type]
        )
        return answer({"items": items, "next": following})

    async def page(
        self, wanted: Wanted, *, state: str | None, limit: int, after: list[Any] | None = None
    ) -> tuple[list[Json], str | None]:
        """Items and the cursor of the next page; `state` is open, over or None for both."""
        items: list[Json] = []
        if state != "over" and (after is None or after[0] == "open"):
            items, following = self._open(wanted, limit, after)
            if following is not None or state == "open":
                return items, following
            after = None
        if len(items) < limit:
            place = None if after is None else (float(after[1]), str(after[2]))
            more, following = await self._over(wanted, limit - len(items), place)
            return items + more, following
        return items, cursor("over", _NEVER, "")

    async def one(self, request: Request) -> Response:
        """One event, with its timeline."""
        found = await self.detail(request.path_params["eventId"], person_of(request))
        if found is None:
            raise refuse(404, "there is no such event")
        return answer(found)

    async def detail(self, event_id: str, person: Person) -> Json | None:
        """One event with its timeline; None if there is none of that id that the person sees."""
        desk = self._desk
        past = await asyncio.to_thread(history.read_event, desk.database.reading, event_id)
        if past is None:
            return None
        # What is in memory is at least as new as what was read before.
        event = desk.fleet.events.get(event_id, past.event)
        if not sees_event(person, event):
            return None
        witnesses = {each.vm_id: each for each in past.sightings}
        witnesses |= desk.fleet.sightings.get(event_id, {})
        item = self._item(event, witnesses, past.receipts, past.decided)
        return item | {
            "witnesses": [
                view.witness_item(desk.fleet, each, desk.now(), desk.ears())
                for each in sorted(witnesses.values(), key=lambda each: each.time)
            ],
            "timeline": timeline(past.records, past.decisions, past.decided.commands),
        }

    def _open(
        self, wanted: Wanted, limit: int, after: list[Any] | None
    ) -> tuple[list[Json], str | None]:
        fleet = self._desk.fleet
        ordered = sorted(
            (_time_left(event, fleet.sightings), event.event_id) for event in self._those(wanted)
        )
        if after is not None:
            ordered = [place for place in ordered if place > (after[1], after[2])]
        shown = [
            self._item(
                fleet.events[event_id],
                fleet.sightings[event_id],
                fleet.receipts.get(event_id, []),
                fleet.decided.get(event_id, UNDECIDED),
            )
            for _, event_id in ordered[:limit]
        ]
        following = cursor("open", *ordered[limit - 1]) if len(ordered) > limit else None
        return shown, following

    def _those(self, wanted: Wanted) -> Iterable[Event]:
        q = None if wanted.q is None else wanted.q.lower()
        for event in self._desk.fleet.events.values():
            if q is not None and q not in event.words:
                continue
            if wanted.site is not None and wanted.site not in event.sites:
                continue
            if wanted.type is not None and wanted.type.lower() != (event.event_type or "").lower():
                continue
            yield event

    async def _over(
        self, wanted: Wanted, limit: int, after: tuple[float, str] | None
    ) -> tuple[list[Json], str | None]:
        engine = self._desk.database.reading
        past = await asyncio.to_thread(history.read_over, engine, wanted, limit + 1, after)
        items = [
            self._item(
                each.event,
                {one.vm_id: one for one in each.sightings},
                each.receipts,
                each.decided,
            )
            for each in past[:limit]
        ]
        if len(past) <= limit:
            return items, None
        last = past[limit - 1].event
        return items, cursor("over", last.shown_at, last.event_id)

    def _item(
        self,
        event: Event,
        witnesses: dict[str, Sighting],
        receipts: list[Receipt],
        decided: Decided,
    ) -> Json:
        desk = self._desk
        return view.event_item(
            desk.fleet, event, witnesses, receipts, decided, now=desk.now(), ears=desk.ears()
        )


def _time_left(event: Event, sightings: dict[str, dict[str, Sighting]]) -> float:
    """What open events are sorted by: started ones first, then by notBefore."""
    if event.state == "started":
        return 0.0
    not_before = sightings[event.event_id][event.shown_by].facts.not_before
    return _NEVER if not_before is None else seconds(not_before)
