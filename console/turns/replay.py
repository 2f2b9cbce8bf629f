"""Replays the stored past with groups: which events they would have approved, when, and which
waited.

It takes the steps that a console takes. It assumes that every VM was heard, that preparing takes no
time, and that an event lasts as long as it did.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from console.fleet.values.keys import EventKey
from console.turns.changed_turns import after_condition
from console.turns.facts import EventFacts, Turn, TurnFacts, VmFacts
from console.turns.groups import Group
from console.turns.plan import Plan, plan
from console.turns.transitions import Occurrence, TurnCondition

_STEP_SECONDS: Final = 30.0
"""The shortest time between two steps about the waiting events: a window may open."""
_STEPS: Final = 1000
"""The time between two steps is the time until the next start, divided by this: an event may start
in years.
"""
_MAX_STEPS: Final = 12
"""The limit of steps at one moment: a turn ends, and the next is taken, prepared and approved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedEvent:
    """One event of the past; times are seconds since 1970."""

    facts: EventFacts
    """The event as it was announced."""
    announced_at: float
    seconds: float
    """How long it kept its VMs away, in seconds."""

    @property
    def starts_at(self) -> float:
        """The time at which Azure would have started it without an approval."""
        known = self.facts.not_before
        return self.announced_at if known is None else max(known, self.announced_at)


@dataclass(slots=True, kw_only=True)
class ReplayOutcome:
    """What would have happened to an event."""

    past: ReplayedEvent
    groups: tuple[str, ...]
    approved_at: float | None = None
    waited_for: set[EventKey] = field(default_factory=set)
    """Keys of the events that had their turn before it."""
    reason: str = ""
    """Why it was not approved."""

    @property
    def waited(self) -> float:
        """The seconds from the announcement to the approval."""
        at = self.approved_at
        return 0.0 if at is None else at - self.past.announced_at


def replay(
    groups: Mapping[str, Group], vms: Mapping[str, VmFacts], past: Iterable[ReplayedEvent]
) -> list[ReplayOutcome]:
    """Return what would have happened to each event that touches a group, in their order."""
    ordered = sorted(past, key=lambda each: (each.announced_at, each.facts.key))
    run = _Run(groups, vms, ordered)
    for at in run.moments():
        run.advance(at)
    return list(run.outcomes.values())


class _Run:
    """The simulated console, from the first event to the last."""

    def __init__(
        self,
        groups: Mapping[str, Group],
        vms: Mapping[str, VmFacts],
        past: Sequence[ReplayedEvent],
    ) -> None:
        self._groups = groups
        wanted = {vm_id for each in past for vm_id in each.facts.named}
        self._vms = {vm_id: _as_heard(vms[vm_id]) for vm_id in sorted(wanted & vms.keys())}
        empty = TurnFacts(groups=groups, vms=self._vms)
        self._past = [each for each in past if empty.groups_touched(each.facts)]
        self._pending = list(reversed(self._past))
        self._open: dict[EventKey, EventFacts] = {}
        self._ends: dict[EventKey, float] = {}
        self._now = 0.0
        self._turns: Mapping[EventKey, Turn] = {}
        self.outcomes = {
            each.facts.key: ReplayOutcome(past=each, groups=empty.groups_touched(each.facts))
            for each in self._past
        }

    def moments(self) -> Iterable[float]:
        """Yield the times at which something may happen, until every event is over."""
        while self._pending or self._open:
            times = [*self._ends.values()]
            if self._pending:
                times.append(self._pending[-1].announced_at)
            waiting = [key for key in self._open if key not in self._ends]
            if waiting:
                starts = min(self.outcomes[key].past.starts_at for key in waiting)
                pause = max(_STEP_SECONDS, (starts - self._now) / _STEPS)
                times += [starts, self._now + pause]
            self._now = min(times)
            yield self._now

    def advance(self, now: float) -> None:
        """Do everything that happens at one moment."""
        while self._pending and self._pending[-1].announced_at <= now:
            each = self._pending.pop()
            self._open[each.facts.key] = each.facts
        for key, at in list(self._ends.items()):
            if at <= now:
                del self._ends[key], self._open[key]
        for key in [each for each in self._open if each not in self._ends]:
            if self.outcomes[key].past.starts_at <= now:
                self._start(key, now)
        for _ in range(_MAX_STEPS):
            if not self._step(now):
                return

    def _start(self, key: EventKey, now: float) -> None:
        self._open[key] = replace(self._open[key], status="Started")
        self._ends[key] = now + self.outcomes[key].past.seconds

    def _step(self, now: float) -> bool:
        """Take one step of a console; return whether it changed anything."""
        heard = {vm_id: replace(vm, heard_at=now) for vm_id, vm in self._vms.items()}
        facts = TurnFacts(groups=self._groups, vms=heard, events=self._open, turns=self._turns)
        todo = plan(facts, now)
        self._note(todo)
        changed = dict(todo.turns)
        for key in todo.approvals:
            approved = Occurrence(condition=TurnCondition.APPROVED)
            changed[key] = after_condition(changed.get(key, self._turns[key]), approved, None, now)
            self.outcomes[key].approved_at = now
            self._start(key, now)
        self._turns = facts.with_turns(changed).turns
        return bool(changed)

    def _note(self, todo: Plan) -> None:
        for key, why in todo.waiting.items():
            outcome = self.outcomes[key]
            outcome.reason = why.reason or outcome.reason
            if not why.needs_people:
                outcome.waited_for |= set(why.behind)


def _as_heard(vm: VmFacts) -> VmFacts:
    """Return a VM that is there and prepares nothing, whatever is so of it today."""
    return VmFacts(
        vm_id=vm.vm_id,
        name=vm.name,
        groups=vm.groups,
        contact="heard",
        heard_at=vm.heard_at,
        takes_commands=True,
    )
