"""`/api/v1/groups`: who is away in each group and why, and which events wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from starlette.requests import Request
from starlette.responses import Response

from console.access.people import Person
from console.db.schema.tables import vm
from console.db.snapshot import Snapshot
from console.db.vms.grouping import groups_now
from console.fleet.model import Count, Model, Moment
from console.turns.away import Away, away_by_group
from console.turns.facts import Turn, TurnFacts
from console.turns.groups import Group, Grouping
from console.web.answers import answer
from console.web.app_state import AppState
from console.web.caller import person_of


class AwayVm(Model):
    """A VM that is away, and why."""

    vm_id: str
    name: str
    why: Literal["turn", "preparing", "started", "silent", "stopped"]
    event_id: str | None
    since: Moment | None


class WaitingEvent(Model):
    """An event that waits for its turn, and the events that come before it."""

    event_id: str
    behind: list[str]
    reason: str | None
    since: Moment | None


class GroupItem(Model):
    """VMs of one service, with a limit of how many may be away at once."""

    name: str
    key: str
    members: Count
    at_most: Count
    away: list[AwayVm]
    waiting: list[WaitingEvent]


class GroupList(Model):
    """Every group, in the order of the settings."""

    items: list[GroupItem]


class GroupRoutes:
    """Answers requests for groups."""

    def __init__(self, state: AppState) -> None:
        self._state = state

    def list_(self, request: Request) -> Response:
        """Answer with every group that has a member."""
        grouping = self._state.grouping
        person = person_of(request)
        with self._state.snapshots.open() as snapshot:
            facts = self._state.turn_facts.facts_to_show(snapshot)
            items = group_items(facts, snapshot, grouping, person)
        return answer(GroupList(items=items))


def group_items(
    facts: TurnFacts, snapshot: Snapshot, grouping: Grouping, person: Person
) -> list[GroupItem]:
    """Return every group as the API shows it; for a person of one site those with a VM of that
    site.
    """
    own = None
    if person.site is not None:
        own = groups_now(snapshot.connection, grouping, vm.c.site == person.site).keys()
    away = away_by_group(facts)
    waiting: dict[str, list[Turn]] = {}
    for turn in facts.turns.values():
        if turn.state in ("waiting", "forced"):
            for key in turn.groups:
                waiting.setdefault(key, []).append(turn)
    return [
        _item(group, away.get(group.key, {}), waiting.get(group.key, ()), facts)
        for group in facts.groups.values()
        if own is None or group.key in own
    ]


def _item(
    group: Group, away: Mapping[str, Away], waiting: Sequence[Turn], facts: TurnFacts
) -> GroupItem:
    order = sorted(waiting, key=lambda turn: _order(turn, facts))
    return GroupItem(
        name=group.settings.name,
        key=group.key,
        members=group.size,
        at_most=group.at_most,
        away=[_away(each, facts) for each in away.values()],
        waiting=[
            WaitingEvent(
                event_id=turn.event_id,
                behind=[key.event_id for key in turn.behind],
                reason=turn.reason,
                since=turn.since,
            )
            for turn in order
        ],
    )


def _order(turn: Turn, facts: TurnFacts) -> tuple[float, str]:
    event = facts.events.get(turn.event_key)
    return (float("inf"), turn.event_id) if event is None else event.order


def _away(away: Away, facts: TurnFacts) -> AwayVm:
    vm = facts.vms.get(away.vm_id)
    return AwayVm(
        vm_id=away.vm_id,
        name=away.vm_id if vm is None else vm.name,
        why=away.why,
        event_id=None if away.event_key is None else away.event_key.event_id,
        since=away.since,
    )
