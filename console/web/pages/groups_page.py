"""`/groups`: who is away in each group and why, and who waits for whom."""

from __future__ import annotations

from typing import Any, Final

from console.access.people import Person
from console.db.snapshot import Snapshot
from console.db.turn_situation import read_situation
from console.fleet.moments import seconds_of
from console.turns.groups import Grouping
from console.turns.situation import EventFacts, TurnSituation
from console.web.answers import as_json
from console.web.groups import group_items
from console.web.pages import words

_MAX_GROUPS: Final = 200
"""Groups on the page; the API has all."""
_NAMES: Final = 3


def values(snapshot: Snapshot, grouping: Grouping, person: Person) -> dict[str, Any]:
    """What the template shows: groups in which something happens first."""
    situation = read_situation(snapshot, grouping)
    items = [as_json(each) for each in group_items(situation, snapshot, grouping, person)]
    wanted = {one["eventId"] for each in items for one in each["waiting"]}
    events = {each.event_id: each for each in situation.events.values()}
    states = {each.event_id: each.state for each in situation.turns.values()}
    items.sort(key=lambda each: (not each["waiting"], not each["away"]))
    shown = items[:_MAX_GROUPS]
    for each in shown:
        for one in each["away"]:
            one.update(start=seconds_of(one["since"]))
        for one in each["waiting"]:
            event = events.get(one["eventId"])
            one.update(
                names=one["eventId"] if event is None else _named(event, situation),
                start=None if event is None else event.not_before,
                state=words.TURNS[states.get(one["eventId"], "waiting")],
            )
    return {
        "groups": shown,
        "more": len(items) - len(shown),
        "waiting": len(wanted),
        "is_set": bool(grouping.rules),
        "why_words": words.AWAY,
    }


def _named(event: EventFacts, situation: TurnSituation) -> str:
    """What it is, and of which VMs."""
    known = (situation.vms[vm_id].name for vm_id in event.named if vm_id in situation.vms)
    names = [*sorted(known), *event.unknown_names]
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return f"{event.event_type or 'Event'} of {', '.join(names[:_NAMES])}{more}"
