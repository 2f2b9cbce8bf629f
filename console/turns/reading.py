"""Whether groups have room for an event, with the VMs that count as away at one time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Final

from console.turns.away import Away, away_by_group, started_by_vm
from console.turns.facts import EventFacts, Turn, TurnFacts, VmFacts

TOO_LATE_SECONDS: Final = 30.0
"""This long before its notBefore, an event that is not prepared is not approved any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What turns are decided from at one time. It never changes: `with_away` returns a new one."""

    facts: TurnFacts
    away: Mapping[str, Mapping[str, Away]]
    """The VMs that count as away, by group key and vmId."""
    now: float
    """The time of the decision, in seconds since 1970."""

    @classmethod
    def at(cls, facts: TurnFacts, now: float) -> Reading:
        """Return the reading of these facts at that time."""
        return cls(facts=facts, away=away_by_group(facts, unsure_at=now), now=now)

    def event_of(self, turn: Turn) -> EventFacts | None:
        """Return the pending event of a turn, or None if it is over."""
        return self.facts.events.get(turn.event_key)

    def group_too_small(self, event: EventFacts) -> str | None:
        """Return the key of a group that is too small for this one event, or None."""
        for key in self.facts.groups_touched(event):
            named = [vm for vm in self.facts.named(event) if vm.is_described and key in vm.groups]
            if len(named) > self.facts.groups[key].at_most:
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
            for key, members in self._members(event).items()
            if len(self.away.get(key, {}).keys() - without | members)
            > self.facts.groups[key].at_most
        )

    def away_besides(self, event: EventFacts) -> tuple[Away, ...]:
        """Return the VMs that are away in the groups of the event, without those that it names."""
        found = {
            away.vm_id: away
            for key in self._members(event)
            for away in self.away.get(key, {}).values()
            if away.vm_id not in event.named
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

    def _members(self, event: EventFacts) -> dict[str, set[str]]:
        """Return the vmIds of the VMs that the event names, by the key of each group in which they
        count: their groups of now, and those in which they already hold its turn. In order.
        """
        turn = self.facts.turns.get(event.key)
        held = {} if turn is None else {part.vm_id: part.groups for part in turn.still_away}
        members: dict[str, set[str]] = {}
        for vm in self.facts.named(event):
            for key in vm.groups | held.get(vm.vm_id, frozenset()):
                if key in self.facts.groups:
                    members.setdefault(key, set()).add(vm.vm_id)
        return dict(sorted(members.items()))


def waits_for_room(turn: Turn, event: EventFacts, reading: Reading) -> bool:
    """Check whether no VM of a turn may prepare now: the budget is full."""
    if turn.state != "preparing" or event.fingerprint != turn.fingerprint:
        return False
    return not turn.is_overridden and is_full_for(turn, event, reading)


def is_full_for(turn: Turn, event: EventFacts, reading: Reading) -> bool:
    """Check whether the budget has no room for the VMs of a turn.

    If a group has become too small for its turns, the first of these does not wait for the others
    if each of its VMs has begun to prepare: they are away already, also if they prepare again.
    """
    if not reading.over_budget(event):
        return False
    named = reading.facts.named(event)
    all_prepare = event.named <= turn.vm_ids and not any(
        vm.has_recovered(event.key) for vm in named
    )
    return not (all_prepare and _others_wait_behind(event, reading))


def has_room(turn: Turn, event: EventFacts, reading: Reading) -> bool:
    """Check whether an event whose VMs are prepared may be approved, with the VMs that are away.

    If a group has become too small for its turns, and the VMs of all of these are away already,
    they do not wait for each other: their VMs come back one after the other.
    """
    return turn.is_overridden or _others_wait_behind(event, reading)


def _others_wait_behind(event: EventFacts, reading: Reading) -> bool:
    """Check whether all that fills the groups of the event besides its own VMs waits behind it."""
    return all(
        _waits_behind(away, event, reading)
        for key in reading.over_budget(event)
        for away in reading.away.get(key, {}).values()
        if away.vm_id not in event.named
    )


def _waits_behind(away: Away, event: EventFacts, reading: Reading) -> bool:
    """Check whether a VM that counts as away is heard, and waits for events that come later, for
    which it is prepared or has begun to prepare, and for nothing else.
    """
    facts = reading.facts
    vm = facts.vms.get(away.vm_id)
    if vm is None or not vm.is_heard_or_late or vm.vm_id in started_by_vm(facts):
        return False
    turns = [turn for turn in facts.turns.values() if turn.is_held and vm.vm_id in turn.vm_ids]
    return bool(turns) and all(_waits_after(turn, vm, event, reading) for turn in turns)


def _waits_after(turn: Turn, vm: VmFacts, event: EventFacts, reading: Reading) -> bool:
    """Check whether the event of a turn comes after `event`, and the VM is away already: it has
    begun to prepare, so the turn sends it away no more.
    """
    own = reading.event_of(turn)
    if own is None or turn.is_overridden or own.order <= event.order:
        return False
    if own.may_begin or own.approval in ("open", "confirmed"):
        return False  # Azure may have been told to start it
    if turn.state == "prepared":
        return True
    return turn.state in ("preparing", "failed") and not vm.has_recovered(own.key)
