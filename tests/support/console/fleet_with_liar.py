"""Honest VMs with their events, one liar among them that sends whatever it can, and what must hold.

The liar holds its own secrets: it speaks for one vmId, in any stream, under any name, in any place.
"""

from __future__ import annotations

from datetime import timedelta
from random import Random
from typing import Final

from support.console.intake import Intake
from support.console.records import FakeVm

from console.db.connection.opening import Database
from console.fleet.candidates import candidates
from console.fleet.event_view import decision_on
from console.records.incoming import IncomingMessage
from console.records.parse import parse_record, parse_state, parse_status
from wire.record import Record

_NAMES: Final = ("web-0", "web-1", "web-2", "liar")
_TRANSITIONS: Final = ("scheduled", "updated", "started", "ended")
_HONEST: Final = ("scheduled", "started", "ended")
_SCOPE: Final = "sub-1/group-1"
_STATES: Final = ("accepted", "posted", "confirmed", "failed", "rejected")


class FleetWithLiar:
    """Three honest VMs that see each other's events, and a liar."""

    def __init__(self, database: Database, seed: int) -> None:
        self.random = Random(seed)
        self.intake = Intake(database)
        self._honest = [FakeVm(name=f"web-{number}") for number in range(3)]
        self._liar = FakeVm(name="liar", vm_id="liar")
        self._away: dict[str, float] = {}
        """By name, seconds until a VM is back that its event took away."""
        self._events: dict[str, tuple[list[str], str]] = {}
        """What is true of each event: the names, and the newest transition."""
        self._records: list[Record] = []
        """What the liar has sent, to be sent again."""
        if self.random.random() < 0.5:
            self.intake.take(self._liar.heartbeat(now=self.intake.now))
        for vm in self._honest:
            self._come(vm)

    def step(self) -> None:
        """Something happens: honest VMs live on, and the liar sends something."""
        self.intake.let_pass(self.random.uniform(0.1, 20))
        for vm in self._honest:
            if vm.name not in self._away:
                self.intake.take(vm.heartbeat(now=self.intake.now))
        if self.random.random() < 0.3:
            self._go_on()
        self._lie()

    def check(self) -> None:
        """No honest event is hidden, changed or blocked while a VM is heard that it names; nobody
        else is asked; and no honest VM that is heard is retired, or loses its name.
        """
        with self.intake.snapshots.open() as snapshot:
            there = [vm for vm in self._honest if vm.name not in self._away]
            if len(there) < 2:
                return  # one against one: nobody can tell who lies
            for vm in there:
                found = snapshot.vms.find_vm(vm.vm_id)
                assert found is not None
                assert found.contact in ("heard", "late")
                assert found.vm.conflict_at is None
                assert (found.vm.name, found.vm.scope) == (vm.name, _SCOPE)
            ids = {vm.name: vm.vm_id for vm in there}
            for event_id, (names, transition) in self._events.items():
                if not set(names) <= set(ids):
                    continue
                known = snapshot.events.find_event(event_id, _SCOPE)
                assert known is not None
                assert known.event.state == transition
                assert list(known.shown.report.event.resources) == names
                assert {name: each.vm_id for name, each in known.named.items()} == {
                    name: ids[name] for name in names
                }
                assert known.receipts == []
                asked = candidates(known, snapshot.now, snapshot.listening)
                assert {each.vm_id for each in asked} <= set(ids.values())
                if transition == "scheduled":
                    state = decision_on(known, snapshot.now, snapshot.listening).state
                    assert state == "due", (event_id, state)

    def _come(self, vm: FakeVm) -> None:
        """A VM's bridge starts, says that it takes commands, and sends what it sees."""
        vm.session = f"session-{self.random.random()}"
        self.intake.take(vm.started(now=self.intake.now))
        self.intake.hear(self._status(vm, commands=True))
        for event_id, (names, transition) in self._events.items():
            self.intake.take(self._report(vm, event_id, names, transition))

    def _go_on(self) -> None:
        """Azure announces an event, or goes on with one."""
        going = [each for each, (_, transition) in self._events.items() if transition != "ended"]
        if len(going) < 2:
            event_id = f"E-{len(self._events)}"
            names = sorted(self.random.sample(_NAMES[:3], self.random.choice((1, 1, 2))))
            self._tell(event_id, names, "scheduled")
            return
        event_id = self.random.choice(going)
        names, before = self._events[event_id]
        if self.random.random() < 0.5 and before == "scheduled":
            return
        self._tell(event_id, names, _HONEST[_HONEST.index(before) + 1])

    def _tell(self, event_id: str, names: list[str], transition: str) -> None:
        self._events[event_id] = (names, transition)
        for vm in self._honest:
            if vm.name in self._away and vm.name in names and transition == "ended":
                del self._away[vm.name]
                self._come(vm)
            elif vm.name not in self._away:
                self.intake.take(self._report(vm, event_id, names, transition))
        for vm in self._honest:
            is_taken = transition == "started" and vm.name in names and vm.name not in self._away
            if is_taken and self.random.random() < 0.5:
                self._away[vm.name] = 0.0
                self.intake.take(vm.stopped(now=self.intake.now))

    def _report(self, vm: FakeVm, event_id: str, names: list[str], transition: str) -> Record:
        return vm.event(event_id, resources=names, transition=transition, now=self.intake.now)

    def _lie(self) -> None:
        """One message of the liar."""
        liar, random, now = self._liar, self.random, self.intake.now
        liar.name = random.choice(_NAMES)
        liar.group = random.choice(("group-1", "group-1", "group-9", None))
        liar.scale_set = random.choice((None, None, "set"))
        liar.site = random.choice(("default", "zurich", None))
        liar.stream = random.choice(("stream-1", "stream-1", "stream-2"))
        liar.session = random.choice(("session-1", "session-2"))
        kind = random.choice(("event",) * 6 + ("receipt", "status", "state", "life", "again"))
        said = now + timedelta(seconds=random.choice((0, 0, 0, -30, 600)))
        event_id = random.choice([*self._events, "X-1", "X-2"])
        record: Record
        if kind == "status":
            reason = random.choice((None, "lost"))
            word = "offline" if reason else random.choice(("online", "offline"))
            self.intake.hear(self._status(liar, word, reason=reason, commands=word == "online"))
            return
        if kind == "again" and self._records:
            record = random.choice(self._records)
        elif kind == "receipt":
            jti = random.choice(("jti-1", "jti-2"))
            record = liar.receipt(event_id, random.choice(_STATES), jti=jti, now=said)
        elif kind == "life":
            record = random.choice((liar.heartbeat, liar.started, liar.stopped))(now=said)
        else:
            names = random.sample(_NAMES, random.randint(1, 3))
            if event_id in self._events and random.random() < 0.5:
                names = self._events[event_id][0]
            event_type = random.choice(("Reboot", "Terminate"))
            record = liar.event(
                event_id,
                transition=random.choice(_TRANSITIONS),
                resources=names,
                event_type=event_type,
                impact="delete" if event_type == "Terminate" else "restart",
                now=said,
            )
        self._records.append(record)
        if kind == "state":
            sent = [record] if "affectsThisVm" in record.data else []
            self.intake.hear(self._state(liar, *sent))
        else:
            at = now.timestamp()
            self.intake.hear(parse_record(record.body, source="web", received_at=at))

    def _status(
        self,
        vm: FakeVm,
        word: str = "online",
        *,
        reason: str | None = None,
        commands: bool = False,
    ) -> IncomingMessage:
        at = self.intake.now.timestamp()
        body = vm.status(word, reason=reason, commands=commands)
        site = vm.site or "default"
        return parse_status(body, source="web", received_at=at, vm_id=vm.vm_id, site=site)

    def _state(self, vm: FakeVm, *records: Record) -> IncomingMessage:
        at = self.intake.now.timestamp()
        body = vm.state(*records, now=self.intake.now)
        site = vm.site or "default"
        return parse_state(body, source="web", received_at=at, vm_id=vm.vm_id, site=site)


def lie(database: Database, seed: int, steps: int) -> None:
    """A history of so many steps; what must hold is looked at after each."""
    fleet = FleetWithLiar(database, seed)
    for _ in range(steps):
        fleet.step()
        fleet.check()
