"""Events as the pages list them: what the API shows, in the order of what is to be done."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from console.db.snapshot import Snapshot
from console.fleet import view
from console.fleet.moments import seconds_of
from console.fleet.values import Event, KnownEvent
from console.web.events import event_item
from console.web.pages import words

Row = dict[str, Any]
_NAMES: Final = 3
_RANKS: Final = ("due", "second", "started", "scheduled", "news", "ended")


def open_rows(snapshot: Snapshot) -> list[Row]:
    """All open events: decisions that are due first, then started ones, then by time left."""
    return in_order(rows_of(snapshot, snapshot.events.open()))


def rows_of(snapshot: Snapshot, several: Iterable[KnownEvent]) -> list[Row]:
    """Events as rows."""
    return [row_of(event_item(snapshot, each), each.event, snapshot.now) for each in several]


def row_of(item: view.Json, event: Event, now: float) -> Row:
    """What a row shows beside what the API does."""
    names = [resource["name"] for resource in item["resources"]]
    start = seconds_of(item["notBefore"])
    decision = item["decision"]["state"]
    group = "news" if words.is_news(item) else item["state"]
    return {
        **item,
        "type": words.event_type(item["eventType"]),
        "group": decision if decision in ("due", "second") else group,
        "start": start,
        "first": seconds_of(item["firstSeenAt"]),
        "shown_at": event.shown_at,
        "may_start": group == "scheduled" and start is not None and start <= now,
        "names": names[:_NAMES],
        "more_names": max(0, len(names) - _NAMES),
        "words": event.words,
        "all_sites": event.sites,
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
