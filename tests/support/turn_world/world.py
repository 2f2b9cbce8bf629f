"""The world: Azure, VMs and consoles on one clock, which moves in ticks."""

from __future__ import annotations

from pathlib import Path
from typing import Self
from unittest import mock

from support.console.decision_bench import made_key
from support.turn_world.azure import Azure, WorldEvent
from support.turn_world.consoles import Consoles
from support.turn_world.line import VmLine
from support.turn_world.oracle import Budget, TurnOracle
from support.turn_world.simulation import Simulation
from support.turn_world.vm import WorldVm

from bridge.store import ballast
from console.config.groups import GroupSettings


class TurnWorld:
    """A group of two to four VMs, sometimes divided by zones besides; the seed decides what it is
    like. A context manager, which removes what it has written.
    """

    def __init__(self, seed: int, directory: Path) -> None:
        self._small = mock.patch.object(ballast, "SIZE_BYTES", 1)
        self._small.start()
        self.simulation = simulation = Simulation(seed)
        draw = simulation.random
        self.oracle = TurnOracle(simulation)
        self.azure = Azure(simulation, self._note_start)
        count = draw.choice([2, 3, 3, 4])
        self.at_most = draw.choice([1, 1, 1, 2]) if count > 2 else 1
        slowness = draw.choice([0.0, 0.0, 2.0, 8.0])
        over_https = draw.choice([0.0, 0.0, 0.5, 1.0])
        key, trust = made_key(directory / "keys")
        self.vms = [
            WorldVm(
                number,
                simulation=simulation,
                azure=self.azure,
                oracle=self.oracle,
                directory=directory,
                trust=trust,
                line=VmLine(simulation, slowness, is_pull=draw.random() < over_https),
                prepares=draw.random() < 0.85,
            )
            for number in range(count)
        ]
        groups = self._groups()
        skew = draw.choice([0.0, 2.0, -2.0])
        self.consoles = Consoles(
            directory,
            key,
            simulation=simulation,
            groups=groups,
            skews=(0.0, skew),
            vms=self.vms,
        )
        simulation.log(f"seed {seed}: {self.at_most} of {count} VMs may be away")
        for vm in self.vms:
            how = "HTTPS" if vm.line.is_pull else "a broker"
            prepares = "prepares" if vm.prepares else "does not prepare"
            simulation.log(f"{vm.name}: zone {vm.zone}, over {how}, {prepares}")
        for group in groups:
            fields = group.model_dump(mode="json", exclude_defaults=True)
            simulation.log(f"group: {fields}")
        simulation.log(f"messages take {slowness} s at most; the clocks differ by {skew} s")

    def _groups(self) -> list[GroupSettings]:
        """Return the groups, and tell the oracle of them."""
        draw = self.simulation.random
        self.is_for_people = draw.random() < 0.15
        """Whether only people approve."""
        rest = draw.choice([0, 0, 0, 30])
        approve: dict[str, str] | None = None if self.is_for_people else {}
        one = {"name": "db", "at_most": self.at_most, "approve": approve, "rest": rest}
        names = frozenset(vm.name for vm in self.vms)
        self.oracle.budgets.append(Budget("db", names, self.at_most))
        rules = [GroupSettings.model_validate(one)]
        self.has_zones = draw.random() < 0.3
        if self.has_zones:
            by_zone = {"name": "zone", "by": ["zone"], "approve": {}}
            rules.append(GroupSettings.model_validate(by_zone))
            for zone in sorted({vm.zone for vm in self.vms}):
                names = frozenset(vm.name for vm in self.vms if vm.zone == zone)
                self.oracle.budgets.append(Budget(f"zone {zone}", names, 1))
        return rules

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for vm in self.vms:
            vm.remove()
        self.consoles.close()
        self._small.stop()

    def vm(self, name: str) -> WorldVm:
        """Return the VM of that name."""
        return next(vm for vm in self.vms if vm.name == name)

    def _note_start(self, event: WorldEvent) -> None:
        """Tell the oracle that Azure takes a request."""
        event_id = event.event_id

        def is_prepared(name: str) -> bool:
            vm = self.vm(name)
            return not vm.prepares or bool(vm.program.prepared.get(event_id))

        self.oracle.note_told(event_id, event.names, is_prepared)

    def end_turns(self, *, force: bool) -> None:
        """Have a person end every turn that is stuck; by force, every turn that is held."""
        for turn in self.consoles.turns():
            if turn.state == "stuck" or (force and turn.is_held):
                names = self.consoles.names_of(turn)
                if self.consoles.end_turn(turn, force=force):
                    self.oracle.end_by_person(turn.event_id, names, is_forced=force)

    # Time

    def tick(self, seconds: float) -> None:
        """Let time pass; then everybody does what there is to do, in any order."""
        self.simulation.now += seconds
        for vm in self.vms:
            vm.advance(seconds)
        for event in self.azure.advance():
            self._take_down(event)
        for vm in self.simulation.random.sample(self.vms, len(self.vms)):
            if not vm.is_up and self.simulation.now >= vm.back_at:
                vm.boot()
            if vm.is_active:
                self._run(vm)
        has_news = self._deliver()
        for vm in self.vms:
            if vm.is_up:
                self.oracle.settle(vm.name, open_events=self.azure.events, away=vm.program.away)
        self.consoles.step(has_news=has_news)

    def _take_down(self, event: WorldEvent) -> None:
        """Take down the VMs of an event that starts, most of them; some see it before."""
        draw = self.simulation.random
        for vm in map(self.vm, event.names):
            if vm.is_active and draw.random() < 0.6:
                vm.poll()
                while vm.run_program():
                    pass
                vm.publish(state_first=False)
            if vm.is_up and draw.random() < 0.7:
                vm.go_down(draw.choice([5, 30, 100, 400]))

    def _run(self, vm: WorldVm) -> None:
        """Let a VM do what its threads do in a tick."""
        simulation = self.simulation
        vm.poll()
        vm.receive()
        for _ in range(simulation.trouble(range(4), 3)):
            if not vm.run_program(simulation.trouble(["ok"] * 14 + ["fails", "refuses"], "ok")):
                break
        vm.work()
        vm.beat()
        if not simulation.chance(0.1):
            vm.publish(state_first=simulation.random.random() < 0.3)
        if vm.line.is_pull and vm.line.is_whole:
            self.consoles.give_commands(vm)

    def _deliver(self) -> bool:
        """Let the consoles store what has come in; return whether there was anything."""
        simulation = self.simulation
        batch = []
        for vm in simulation.random.sample(self.vms, len(self.vms)):
            if vm.line.is_will_due():
                vm.publish_will()
            batch += [(vm, *each) for each in vm.line.arrived()]
        if simulation.chance(0.02):  # a console connects again
            for vm in self.vms:
                for each in vm.line.retained():
                    batch.insert(simulation.random.randrange(len(batch) + 1), (vm, *each))
        if simulation.chance(0.02):  # the status of an earlier run comes late
            vm = simulation.pick(self.vms)
            statuses = [each for each in vm.line.earlier if vm.is_of_earlier_run(*each)]
            if statuses:
                batch.append((vm, *simulation.pick(statuses)))
        if batch:
            self.consoles.store(batch)
        return bool(batch)
