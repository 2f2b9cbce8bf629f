"""One reading of the situation at one time, and the room that is left in each group then."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Final

from console.turns.away import away_by_group
from console.turns.situation import Away, EventFacts, Turn, TurnSituation, VmFacts

TOO_LATE_SECONDS: Final = 30.0
"""This long before its notBefore, an event that is not prepared is not approved any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What turns are decided from at one time. It never changes: `with_away` returns a new one."""

    situation: TurnSituation
    away: Mapping[str, Mapping[str, Away]]
    """The VMs that count as away, by group key and vmId."""
    now: float
    """The time of the decision, in seconds since 1970."""

    @classmethod
    def at(cls, situation: TurnSituation, now: float) -> Reading:
        """Return the reading of a situation at that time."""
        return cls(situation=situation, away=away_by_group(situation, unsure_at=now), now=now)

    def event_of(self, turn: Turn) -> EventFacts | None:
        """Return the pending event of a turn, or None if it is over."""
        return self.situation.events.get(turn.event_key)

    def group_too_small(self, event: EventFacts) -> str | None:
        """Return the key of a group that is too small for this one event, or None."""
        for key in self.situation.groups_touched(event):
            if len(self._members(event, key)) > self.situation.groups[key].at_most:
                return key
        return None

    def over_budget(
        self, event: EventFacts, *, without: AbstractSet[str] = frozenset()
    ) -> tuple[str, ...]:
        """Return the keys of the groups that have no room for the VMs of this event. `without`:
        vmIds of VMs that are away and do not count.
        """
        return tuple(
            key
            for key in self.situation.groups_touched(event)
            if len(self.away.get(key, {}).keys() - without | self._members(event, key))
            > self.situation.groups[key].at_most
        )

    def away_besides(self, event: EventFacts) -> tuple[Away, ...]:
        """Return the VMs that are away in the groups of the event, without those that it names."""
        found = {
            each.vm_id: each
            for key in self.situation.groups_touched(event)
            for each in self.away.get(key, {}).values()
            if each.vm_id not in event.named
        }
        return tuple(found[vm_id] for vm_id in sorted(found))

    def is_too_late(self, event: EventFacts) -> bool:
        """Check whether Azure starts the event too soon for an approval."""
        return event.not_before is not None and event.not_before - self.now < TOO_LATE_SECONDS

    def with_away(self, event: EventFacts, vms: Iterable[VmFacts], since: float) -> Reading:
        """Return the reading in which these VMs are away too, by the turn of the event."""
        away = dict(self.away)
        for vm in vms:
            gone = Away(vm_id=vm.vm_id, why="turn", since=since, event_key=event.key)
            for key in vm.groups:
                away[key] = {vm.vm_id: gone, **away.get(key, {})}
        return replace(self, away=away)

    def _members(self, event: EventFacts, key: str) -> set[str]:
        """Return the vmIds of the VMs that the event names and that belong to the group."""
        return {vm.vm_id for vm in self.situation.named(event) if key in vm.groups}
