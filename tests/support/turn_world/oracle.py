"""The oracle: it counts, from the side of the VMs and of Azure, who is away by our doing.

It shares no code with the product: it hears what programs do, and what Azure was told. A VM is away
by our doing from the moment at which its program begins because a command or an approval asked for
that, or at which Azure takes a request to start an event that names it, until its program has
recovered and the event is over. Never may more VMs of a group be away by our doing than it allows;
and whenever Azure takes a request, each VM that the event names and that prepares has prepared.

These limits, which docs/groups.md and docs/console-threats.md state, do not count as violations:

- what Azure starts at its time, and preparations at their own deadline; that two groups of VMs go
  away then at the same time is not our doing;
- an event that a person approves by force, or whose turn a person ends by force: what it sends away
  does not count, and it is not expected to have prepared. Nor does a VM count whose turn a person
  has ended because it is stuck;
- a VM that has lost its store: its program may not be told of the end of an event that was over
  before the bridge looked again, so it may stay away until a person ends its turn.

Nor does the simulation do what is known to be beyond the limits: an event that Azure was told to
start is left out of documents for at most three seconds, and only if it starts within ten seconds;
one that has started is not left out at all. An event that only the VMs that it names see keeps its
names, since one VM alone brings no event back that others report as over. No database is put back,
and no group becomes smaller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from support.turn_world.simulation import Simulation


@dataclass(frozen=True)
class Budget:
    """How many VMs of a group may be away; `members`: their names."""

    group: str
    members: frozenset[str]
    at_most: int


class TurnOracle:
    """Who is away by our doing, and why."""

    def __init__(self, simulation: Simulation) -> None:
        self.budgets: list[Budget] = []
        self.preparations = 0
        """How often a program began because it was asked."""
        self.requests = 0
        """How often Azure took a request."""
        self._simulation = simulation
        self._by_people: set[str] = set()
        """Events that a person has let start, or has ended, by force."""
        self._away: dict[str, dict[str, set[str]]] = {}
        """By VM and event: `prepares`, `told`, or both."""

    def goes_away(self, vm: str, event_id: str, why: str) -> None:
        """Note that a VM goes away by our doing."""
        self.preparations += why == "prepares"
        self._away.setdefault(vm, {}).setdefault(event_id, set()).add(why)
        for budget in self.budgets:
            away = {
                name: {each: sorted(whys) for each, whys in counted.items()}
                for name in sorted(budget.members)
                if (counted := self._counted(name))
            }
            if len(away) > budget.at_most:
                text = f"{budget.at_most} of {budget.group} may be away, and these are: {away}"
                raise self._simulation.violation(text)

    def _counted(self, vm: str) -> Mapping[str, set[str]]:
        events = self._away.get(vm, {})
        return {each: whys for each, whys in events.items() if each not in self._by_people}

    def note_told(
        self, event_id: str, names: Iterable[str], is_prepared: Callable[[str], bool]
    ) -> None:
        """Note that Azure takes a request to start an event."""
        self.requests += 1
        for name in names:
            if event_id not in self._by_people and not is_prepared(name):
                text = f"{event_id} is let start while {name} has not prepared"
                raise self._simulation.violation(text)
        for name in names:
            self.goes_away(name, event_id, "told")

    def recovers(self, vm: str, event_id: str) -> None:
        """Note that the program of a VM was told of the end of an event."""
        self._forget(vm, event_id, "prepares")

    def settle(self, vm: str, *, open_events: Iterable[str], away: Iterable[str]) -> None:
        """Note which events are open, and for which of them the program of a running VM is
        away: what is over, and from which it is back, counts no more.
        """
        for event_id, whys in list(self._away.get(vm, {}).items()):
            if event_id not in open_events and event_id not in away:
                for why in list(whys):
                    self._forget(vm, event_id, why)

    def end_by_person(self, event_id: str, names: Iterable[str], *, is_forced: bool) -> None:
        """Note that a person has ended the turn of an event, which these VMs held."""
        if is_forced:
            self._by_people.add(event_id)
        for name in names:
            self._away.get(name, {}).pop(event_id, None)

    def force(self, event_id: str) -> None:
        """Note that a person approves an event by force."""
        self._by_people.add(event_id)

    def _forget(self, vm: str, event_id: str, why: str) -> None:
        events = self._away.get(vm, {})
        events.get(event_id, set()).discard(why)
        if not events.get(event_id):
            events.pop(event_id, None)
