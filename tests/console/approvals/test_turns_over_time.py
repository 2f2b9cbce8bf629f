"""Turns over time, in a database: VMs that are made again, whose stores are damaged, that lag, do
not answer or change their group, events that return, and people who end turns; drawn by chance.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from random import Random

import pytest
from support.console.records import FakeVm
from support.console.turn_cluster import TurnCluster

from console.approvals.refusal_reasons import DecisionRefusedError
from console.audit.audit_log import all_rows
from console.db.connection.opening import Database
from wire.record import PREPARATION

NUMBERS = (0, 1)
"""Each of these VMs has an event; of each group one may be away."""
CLUSTERS = ("a", "b")
"""The values of the tag by which VMs are in groups; all begin in the first one."""


class DisturbedCluster:
    """A cluster, and its VMs as they really are."""

    def __init__(self, database: Database, seed: int) -> None:
        self.cluster = TurnCluster(database, match={"tag:cluster": ["*"]}, by=["tag:cluster"])
        for vm in self.cluster.vms:
            vm.tags = {"cluster": CLUSTERS[0]}
        self.cluster.hear()
        self.chance = Random(seed)
        self.soon = self.cluster.later(hours=20)
        self.late: list[Callable[[], None]] = []
        """What VMs have said and has not come in."""
        self.away: dict[int, set[str]] = {}
        """VMs that prepare, or that Azure takes, because the console asked; and the groups in which
        each was at first.
        """
        self.is_by_force = False
        """Whether a person approves by force: then the budget does not count."""
        self.left_prepared = False
        """Whether a person has ended the turn of a VM that was prepared: if that VM changes its
        group then, it waits for a VM that waits for it, until a person approves by force.
        """
        self.shown: dict[int, str] = {}
        """What Azure says of the event of each VM that has one."""

    def tell(self, number: int, transition: str) -> None:
        """Have Azure change an event, and its VM report that."""
        self.say_late()
        self.shown[number] = transition
        vm = self.cluster.vms[number]
        record = vm.event(
            f"E-{number}", transition=transition, not_before=self.soon, now=self.cluster.now
        )
        self.cluster.tell(record)

    def say_late(self) -> None:
        """Let everything come in that VMs have said."""
        for each in self.late:
            each()
        self.late.clear()

    def say(self, number: int, state: str, *, is_late: bool = False) -> None:
        """Have a VM report how far it has prepared."""
        vm = self.cluster.vms[number]
        data = {
            "evt": f"E-{number}",
            "evh": self.cluster.known_event(number).shown.report.fingerprint,
            "sink": "drain",
            "cause": "deadline",
            "reason": None,
            "state": state,
        }
        told = vm.record(PREPARATION, data, now=self.cluster.now)
        if is_late:
            self.late.append(lambda: self.cluster.tell(told))
        else:
            self.cluster.tell(told)

    def asked(self, number: int, act: str) -> list[str | None]:
        """Return the jti of each new command of that kind to a VM."""
        every = all_rows(self.cluster.database.reading)
        return [e.jti for e in every if (e.action, e.event_id) == (act, f"E-{number}")]

    def answer(self, number: int, act: str, *states: str) -> None:
        """Have a VM answer the newest command of that kind."""
        jti = self.asked(number, act)[-1]
        for state in states:
            about = {"jti": jti, "act": act, "now": self.cluster.now}
            vm = self.cluster.vms[number]
            self.cluster.tell(vm.receipt(f"E-{number}", state, actor="group:db", **about))

    def receive(self, sent: str, how: str) -> None:
        """Let a command reach its VM, which follows it `well` or `late`, is `lost` after it has
        accepted, loses the store of its bridge then (`damaged`), or `ignores` it.
        """
        act, number = sent.split(maxsplit=1)[0], int(sent[-1])
        if how == "ignores" or self.shown.get(number) != "scheduled":
            return
        if how == "lost":
            self.answer(number, act, "accepted")
            self.make_again(number)
            return
        if how == "damaged":
            self.answer(number, act, "accepted")
            self.damage(number)
            return
        self.go_away(number)
        if act == "prepare":
            self.answer(number, act, "accepted")
            self.say(number, "prepared", is_late=how == "late")
        else:
            self.answer(number, act, "accepted", "posted", "confirmed")
            self.tell(number, "started")

    def go_away(self, number: int) -> None:
        """Let a VM go away: no other VM that is away is in a group of this one. VMs that prepared
        in different groups and are in one now may go on, one after the other.
        """
        is_first = number not in self.away
        if is_first:
            self.away[number] = {self.cluster_of(number)}
        for other in self.away.keys() - {number}:
            if not self.is_by_force and (is_first or self.shown.get(other) == "started"):
                both = self.groups_of(other) & self.groups_of(number)
                assert not both, "more are away than may be"

    def groups_of(self, number: int) -> set[str]:
        """Return the groups in which a VM that is away counts."""
        return self.away[number] | {self.cluster_of(number)}

    def cluster_of(self, number: int) -> str:
        """Return the group of a VM."""
        return self.cluster.vms[number].tags["cluster"]

    def change_group(self, number: int) -> None:
        """Give a VM the tag of the other group, and have it report that."""
        before = self.cluster_of(number)
        (other,) = (each for each in CLUSTERS if each != before)
        self.cluster.vms[number].tags = {"cluster": other}
        self.cluster.wait(1)

    def make_again(self, number: int) -> None:
        """Give a VM a new store: it serves, and has prepared nothing."""
        self.away.pop(number, None)
        new = self.with_new_store(number)
        self.cluster.tell(new.started(now=self.cluster.now))
        self.tell(number, self.shown[number])

    def damage(self, number: int) -> None:
        """Damage the store of a VM's bridge: the VM is as it was, and its bridge begins a new
        store.
        """
        new = self.with_new_store(number)
        self.cluster.tell(new.store_reset(now=self.cluster.now))
        self.tell(number, self.shown[number])

    def with_new_store(self, number: int) -> FakeVm:
        """Return the VM with a new store, which it has from now on."""
        self.say_late()
        self.cluster.now += timedelta(seconds=1)
        before = self.cluster.vms[number]
        name = f"store-{self.chance.random()}"
        new = FakeVm(
            name=before.name, vm_id=before.vm_id, stream=name, session=name, tags=before.tags
        )
        self.cluster.vms[number] = new
        return new

    def end(self, number: int) -> None:
        """End a VM's event; the VM recovers."""
        self.tell(number, "ended")
        self.step("well")
        self.say(number, "recovered")
        self.away.pop(number, None)
        del self.shown[number]

    def person_ends(self, number: int) -> None:
        """End a turn as a person, if that is allowed."""
        with suppress(DecisionRefusedError):
            self.cluster.end_turn(number, force=True)
            if number in self.away:
                self.left_prepared = True
                self.away[number] = set()  # from now on it counts in its group of now alone

    def person_approves(self, number: int, *, force: bool = False) -> None:
        """Approve an event as a person, if that is allowed; what is sent at once reaches its VM.
        `force` is for a VM that is prepared.
        """
        before = len(self.asked(number, "approve"))
        with suppress(DecisionRefusedError):
            self.cluster.approve(number, force=force)
        if len(self.asked(number, "approve")) > before:
            self.cluster.deliver()
            self.receive(f"approve db-{number}", "well")

    def step(self, how: str) -> None:
        """Take a step of a console, and let VMs follow what it sends."""
        for sent in self.cluster.decide() + self.cluster.step(steps=2):
            self.cluster.deliver()
            self.receive(sent, how)

    def disturb(self) -> None:
        """Let something happen, and let time pass."""
        number = self.chance.choice(NUMBERS)
        if number not in self.shown:
            self.tell(number, "scheduled")
        elif self.shown[number] == "started":
            self.end(number)
        elif self.chance.random() < 0.15:
            self.person_ends(number)
        if self.chance.random() < 0.2:
            self.change_group(self.chance.choice(NUMBERS))
        self.step(self.chance.choice(["well", "well", "late", "lost", "damaged", "ignores"]))
        self.cluster.wait(self.chance.choice([1, 15, 80, 310]))
        if self.chance.random() < 0.3:
            self.say_late()

    def go_on(self) -> None:
        """Let hours pass in which all goes well; a person approves what is left to people."""
        self.say_late()
        for round_number in range(40):
            self.cluster.wait(240)
            for number in sorted(self.shown):
                turn = self.cluster.known_event(number).turn
                if self.shown[number] == "started":
                    self.end(number)
                elif turn is not None and turn.person_may_approve:
                    self.person_approves(number)
                elif round_number > 20 and self.left_prepared and number in self.away:
                    self.is_by_force = True
                    self.person_approves(number, force=True)
            self.step("well")
            if not self.shown:
                return


@pytest.mark.parametrize("seed", range(5))
def test_each_event_has_its_turn_in_the_end(database: Database, seed: int) -> None:
    """Each event has its turn in the end, whatever happened before, and the console never sends
    more than one VM of a group away at a time.
    """
    world = DisturbedCluster(database, seed)
    for number in NUMBERS:
        world.tell(number, "scheduled")
    for _ in range(12):
        world.disturb()
    world.go_on()
    assert not world.shown, "an event waits, though nothing is in its way"
    world.cluster.decisions.stop()
