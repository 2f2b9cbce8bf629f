"""Events as the pages list them: what the API shows, in the order of what is to be done."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from console.fleet import view
from console.fleet.values import UNDECIDED, Event
from console.web.desk import Desk
from console.web.pages import text, words

Row = dict[str, Any]
_NAMES: Final = 3
_RANKS: Final = ("due", "second", "started", "scheduled", "ended")


def open_rows(desk: Desk, now: float) -> list[Row]:
    """All open events: decisions that are due first, then started ones, then by time left."""
    fleet, ears = desk.fleet, desk.ears()
    rows = []
    for event in list(fleet.events.values()):
        item = view.event_item(
            fleet,
            event,
            fleet.sightings[event.event_id],
            fleet.receipts.get(event.event_id, ()),
            fleet.decided.get(event.event_id, UNDECIDED),
            now=now,
            ears=ears,
        )
        rows.append(row_of(item, event, now))
    return in_order(rows)


def row_of(item: view.Json, event: Event, now: float) -> Row:
    """What a row shows beside what the API does."""
    names = [resource["name"] for resource in item["resources"]]
    start = text.seconds_of(item["notBefore"])
    decision = item["decision"]["state"]
    group = decision if decision in ("due", "second") else item["state"]
    return {
        **item,
        "type": words.event_type(item["eventType"]),
        "group": group,
        "start": start,
        "first": text.seconds_of(item["firstSeenAt"]),
        "shown_at": event.shown_at,
        "may_start": item["state"] == "scheduled" and start is not None and start <= now,
        "names": names[:_NAMES],
        "more_names": max(0, len(names) - _NAMES),
        "sites": [site for site in event.sites if site != "default"],
        "asked_by": words.ASKED_BY.get(item["eventSource"] or ""),
    }


def in_order(rows: Iterable[Row]) -> list[Row]:
    """By what is to be done, then by time left; events without a time come last."""
    far = float("inf")
    return sorted(
        rows,
        key=lambda row: (
            _RANKS.index(row["group"]),
            far if row["start"] is None else row["start"],
            row["eventId"],
        ),
    )
