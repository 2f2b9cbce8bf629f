"""`/groups`: which VMs are away in each group and why, and which events wait for others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from console.access.people import Person
from console.db.snapshot import Snapshot
from console.turns.away import AWAY_WORDS
from console.turns.facts import EventFacts, TurnFacts
from console.turns.groups import Grouping
from console.web.api.groups import GroupItem, WaitingEvent, group_items
from console.web.pages import labels
from sinks.shared.text import listed

_MAX_GROUPS: Final = 200
"""The most groups on the page; the API has all."""
_NAMES_SHOWN: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingRow:
    """An event that waits for its turn."""

    event_id: str
    heading: str
    state: str
    """The turn's state in words."""
    reason: str | None
    start: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """A group, and the events that wait in it."""

    group: GroupItem
    waiting: Sequence[WaitingRow]


def template_values(
    facts: TurnFacts, snapshot: Snapshot, grouping: Grouping, person: Person
) -> dict[str, Any]:
    """Return the values of the template: groups with waiting events first, then those with VMs
    away.
    """
    groups = group_items(facts, snapshot, grouping, person)
    events = {each.event_id: each for each in facts.events.values()}
    states = {each.event_id: each.state for each in facts.turns.values()}

    def waiting_row(waiting: WaitingEvent) -> WaitingRow:
        event = events.get(waiting.event_id)
        return WaitingRow(
            event_id=waiting.event_id,
            heading=waiting.event_id if event is None else _heading(event, facts),
            state=labels.TURNS[states.get(waiting.event_id, "waiting")],
            reason=waiting.reason,
            start=None if event is None else event.not_before,
        )

    groups.sort(key=lambda each: (not each.waiting, not each.away))
    return {
        "groups": [
            GroupRow(group=each, waiting=[waiting_row(one) for one in each.waiting])
            for each in groups[:_MAX_GROUPS]
        ],
        "more": max(0, len(groups) - _MAX_GROUPS),
        "waiting": len({one.event_id for each in groups for one in each.waiting}),
        "is_set": bool(grouping.settings),
        "away_labels": AWAY_WORDS,
    }


def _heading(event: EventFacts, facts: TurnFacts) -> str:
    """Return a heading with the event's type and its VMs."""
    known = (facts.vms[vm_id].name for vm_id in event.named if vm_id in facts.vms)
    names = [*sorted(known), *event.unknown_names]
    return f"{event.reported.event_type or 'Event'} of {listed(names, _NAMES_SHOWN)}"
