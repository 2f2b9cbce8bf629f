"""`/groups`: who is away in each group and why, and who waits for whom."""

from __future__ import annotations

from typing import Any, Final

from console.access.people import Person
from console.db.snapshot import Snapshot
from console.fleet.moments import seconds_of
from console.turns.groups import Grouping
from console.web.events import event_item
from console.web.groups import group_items
from console.web.pages import words

_MOST: Final = 200
"""Groups on the page; the API has all."""
_NAMES: Final = 3


def values(snapshot: Snapshot, grouping: Grouping, person: Person) -> dict[str, Any]:
    """What the template shows: groups in which something happens first."""
    items = group_items(snapshot, grouping, person)
    wanted = {one["eventId"] for each in items for one in each["waiting"]}
    events = {
        known.event.event_id: event_item(snapshot, known)
        for known in snapshot.events.some(sorted(wanted))
    }
    items.sort(key=lambda each: (not each["waiting"], not each["away"]))
    shown = items[:_MOST]
    for each in shown:
        for one in each["away"]:
            one.update(start=seconds_of(one["since"]))
        for one in each["waiting"]:
            one.update(_event(events.get(one["eventId"]), one["eventId"]))
    return {
        "groups": shown,
        "more": len(items) - len(shown),
        "waiting": len(wanted),
        "is_set": bool(grouping.rules),
        "why_words": words.AWAY,
    }


def _event(item: dict[str, Any] | None, event_id: str) -> dict[str, Any]:
    if item is None:
        return {"names": event_id, "start": None, "state": words.TURNS["waiting"]}
    names = [each["name"] for each in item["resources"]]
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return {
        "names": f"{item['eventType'] or 'Event'} of {', '.join(names[:_NAMES])}{more}",
        "start": seconds_of(item["notBefore"]),
        "state": words.TURNS[item["turn"]["state"]],
    }
