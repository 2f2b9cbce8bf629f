"""Chaos: the list of what may happen, with weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from support.turn_world.azure import WorldEvent
from support.turn_world.vm import WorldVm
from support.turn_world.world import TurnWorld

_NOTICES: Final = (300, 900, 3600, 86400)
_MOST_EVENTS: Final = 4
_IN_TIME: Final = 10.0
"""Seconds within which an event starts that is left out after Azure was told: see the oracle."""


class Chaos:
    """Lets things happen to a world, one after another."""

    def __init__(self, world: TurnWorld) -> None:
        self._world = world
        self._simulation = world.simulation
        self._draw = world.simulation.random
        what: list[tuple[float, Callable[[], None]]] = [
            (30, self._nothing),
            # Azure
            (6, self.announce),
            (4, self._change),
            (4, self._leave_out),
            (3, self._leave_out_for_one),
            (2, self._cancel),
            # VMs
            (2, self._crash),
            (1, self._freeze),
            (2, self._restart),
            (0.5, self._lose_store),
            (1, self._silence_imds),
            # the line
            (3, self._cut),
            (1.5, self._cut_with_command),
            (6, self._mend),
            # consoles
            (1, self._restart_console),
            # persons
            (8 if world.is_for_people else 2, self._approve),
            (0.3, self._force),
            (0.4, self._leave),
            (0.6, self._end_turn),
            (0.2, self._end_turn_by_force),
            # time
            (1.5, self._wait_long),
        ]
        self._weights = [weight for weight, _ in what]
        self._what = [each for _, each in what]

    def live(self, steps: int) -> None:
        """Let so many things happen, with time between them."""
        self.announce()
        self.announce()
        for _ in range(steps):
            self._draw.choices(self._what, self._weights)[0]()
            self._world.tick(self._draw.choice([0.5, 1, 1, 2, 2, 5, 10]))

    def _nothing(self) -> None:
        """Only time passes."""

    def _vm(self) -> WorldVm:
        return self._simulation.pick(self._world.vms)

    def _event(self) -> WorldEvent | None:
        events = list(self._world.azure.events.values())
        return self._draw.choice(events) if events else None

    # Azure

    def announce(self) -> None:
        """Announce an event, mostly of VMs that no other event names."""
        azure = self._world.azure
        if len(azure.events) >= _MOST_EVENTS:
            return
        named = {name for event in azure.events.values() for name in event.names}
        names = [vm.name for vm in self._world.vms]
        free = [name for name in names if name not in named]
        among = free if free and self._draw.random() < 0.8 else names
        azure.announce(
            self._some(among),
            self._draw.choice(_NOTICES),
            is_broadcast=self._draw.random() < 0.6,
        )

    def _some(self, names: list[str]) -> list[str]:
        count = self._draw.choice([1, 1, 1, self._world.at_most])
        return self._draw.sample(names, min(count, len(names)))

    def _change(self) -> None:
        event = self._event()
        if event is None or not event.is_open_to_change:
            return
        if self._draw.random() < 0.5 or not event.is_broadcast:
            notice = self._draw.choice(_NOTICES)
            event.not_before = self._simulation.now + notice
            self._simulation.log(f"azure: {event.event_id} starts in {notice} s now")
        else:
            event.names = self._some([vm.name for vm in self._world.vms])
            self._simulation.log(f"azure: {event.event_id} names {event.names} now")

    def _leave_out(self) -> None:
        """Leave an event out of every document for a while."""
        event = self._event()
        if event is None or not self._may_be_left_out(event):
            return
        seconds = self._draw.choice([1, 3, 20, 100] if event.is_open_to_change else [1, 2, 3])
        self._world.azure.leave_out(event, seconds)

    def _leave_out_for_one(self) -> None:
        """Leave an event out of one document of one VM; its program may run meanwhile."""
        event, vm = self._event(), self._vm()
        if event is None or not vm.is_active or not self._may_be_left_out(event):
            return
        self._simulation.log(f"{vm.name}: one document without {event.event_id}")
        vm.imds.hidden = {event.event_id}
        vm.poll()
        vm.imds.hidden = set()
        if self._draw.random() < 0.5:
            for _ in range(3):
                vm.run_program()
        if not event.is_open_to_change:
            self._world.tick(self._draw.choice([1, 2, 3]))

    def _may_be_left_out(self, event: WorldEvent) -> bool:
        if event.status != "Scheduled":
            return False
        return event.starts_at is None or event.starts_at - self._simulation.now < _IN_TIME

    def _cancel(self) -> None:
        event = self._event()
        if event is not None and event.is_open_to_change:
            self._world.azure.cancel(event)

    # VMs

    def _crash(self) -> None:
        vm = self._vm()
        if vm.is_up:
            vm.go_down(self._draw.choice([5, 10, 100, 300]))

    def _freeze(self) -> None:
        vm = self._vm()
        if vm.is_active:
            vm.freeze(self._draw.choice([10, 70, 300, 1200]))

    def _restart(self) -> None:
        vm = self._vm()
        if vm.is_active:
            vm.restart()

    def _lose_store(self) -> None:
        vm = self._vm()
        if vm.is_active:
            vm.lose_store()

    def _silence_imds(self) -> None:
        imds = self._vm().imds
        imds.is_silent = not imds.is_silent
        what = "is silent" if imds.is_silent else "answers again"
        self._simulation.log(f"{imds.name}: IMDS {what}")

    # The line

    def _cut(self) -> None:
        self._cut_line(self._vm())

    def _cut_line(self, vm: WorldVm) -> None:
        if vm.line.is_whole:
            self._simulation.log(f"{vm.name}: cut off")
            vm.line.is_whole = False
            vm.line.break_off()

    def _cut_with_command(self) -> None:
        """Cut a VM off as soon as it has got a command, if one is under way."""
        for vm in self._draw.sample(self._world.vms, len(self._world.vms)):
            if vm.is_active and vm.receive():
                self._cut_line(vm)
                return

    def _mend(self) -> None:
        vm = self._vm()
        if not vm.line.is_whole:
            self._simulation.log(f"{vm.name}: not cut off any more")
            vm.line.is_whole = True

    # Consoles and persons

    def _restart_console(self) -> None:
        self._world.consoles.restart()

    def _approve(self) -> None:
        if event := self._event():
            self._world.consoles.decide(event.event_id, "approve")

    def _force(self) -> None:
        event = self._event()
        if event and self._world.consoles.decide(event.event_id, "approve", force=True):
            self._world.oracle.force(event.event_id)

    def _leave(self) -> None:
        if event := self._event():
            self._world.consoles.decide(event.event_id, "leave")

    def _end_turn(self) -> None:
        self._world.end_turns(force=False)

    def _end_turn_by_force(self) -> None:
        self._world.end_turns(force=True)

    # Time

    def _wait_long(self) -> None:
        for _ in range(self._draw.choice([3, 8])):
            self._world.tick(self._draw.choice([10, 30, 60]))
