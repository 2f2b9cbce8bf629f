"""VMs that prepare, in a database, and consoles that take a step when a test tells them to."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from support.console.records import FakeVm

from console.access.people import Person
from console.approvals import turn_steps
from console.approvals.decision_requests import DecisionPolicy, DecisionRequest
from console.approvals.request_transaction import RequestTransaction
from console.approvals.service import Decisions
from console.approvals.step_transaction import StepContext, mark_sent, write_decision_step
from console.audit.audit_log import all_rows
from console.audit.limiter import AuditLimiter
from console.config.groups import GroupSettings
from console.db.batches.batch_transaction import write_batch
from console.db.connection.opening import Database
from console.db.connection.transactions import next_change_number, write_to
from console.db.decisions import decision_rows as rows
from console.db.decisions import prepare_commands
from console.db.decisions.latest_groups import StartedGroups, write_latest_groups
from console.db.snapshot import Snapshots
from console.db.turn_facts.kept_turn_facts import KeptTurnFacts
from console.db.turn_facts.turn_facts import TurnSettings
from console.db.upkeep.timed_changes import write_timed_changes
from console.fleet.contact import BY_HEARTBEATS, SilentTime
from console.fleet.event_view import decision_on
from console.fleet.values.decision import VmCommand
from console.fleet.values.event import KnownEvent
from console.records.parse import parse_record, parse_status
from console.turns.facts import TurnFacts
from console.turns.groups import Grouping
from wire.moment import rfc3339
from wire.record import PREPARATION, Record

START = datetime(2026, 11, 1, 12, tzinfo=UTC)
ALICE = Person(name="alice", roles=frozenset({"approver"}))
BOB = Person(name="bob", roles=frozenset({"approver"}))


class UnusedSigner:
    """A signer whose key is never used."""

    def sign(self, command: VmCommand, now: float) -> bytes:
        """Return a token that no VM accepts."""
        del command, now
        return b"token"

    def public_key(self) -> dict[str, Any]:
        """Return no key."""
        return {}


class TurnCluster:
    """VMs db-0, db-1 and db-2 in one group, of which one may be away unless `keys` say otherwise.
    The event of VM number n is `E-n`.
    """

    def __init__(
        self, database: Database, *, silent_time: SilentTime = BY_HEARTBEATS, **keys: object
    ) -> None:
        self.database = database
        self.now = START
        self.silent_time = silent_time
        self.vms = [FakeVm(name=f"db-{n}") for n in range(3)]
        rule = GroupSettings.model_validate({"name": "db", "approve": {}, **keys})
        grouping = Grouping([rule])
        self.settings = TurnSettings(grouping=grouping, can_sign=True)
        self._read: TurnFacts | None = None
        self.snapshots = Snapshots(
            database, silent_time=silent_time, grouping=grouping, clock=self._seconds
        )
        self.decisions = self.decisions_of(grouping)
        with database.writing.begin() as connection:
            connection.exec_driver_sql(
                "INSERT INTO listening (console, source, since, until, seen_at) "
                "VALUES ('one', 'broker', 0, 9e9, 9e9)"
            )
        self.hear()

    @property
    def settings(self) -> TurnSettings:
        """The settings of the console's groups; new ones count as after a restart."""
        return self._settings

    @settings.setter
    def settings(self, settings: TurnSettings) -> None:
        self._settings = settings
        self.facts = KeptTurnFacts(settings)

    def _seconds(self) -> float:
        return self.now.timestamp()

    def decisions_of(self, grouping: Grouping, *, four_eyes: int = 0) -> Decisions:
        """Return the decisions of a console with these groups."""
        settings = TurnSettings(grouping=grouping, can_sign=True, four_eyes=four_eyes)
        return Decisions(
            self.snapshots,
            signer=UnusedSigner(),
            publishers={},
            offer=lambda _vm_id, _jti: None,
            on_commit=lambda: None,
            connected=lambda: {"broker": 1.0},
            turns=settings,
            turn_facts=KeptTurnFacts(settings),
            four_eyes=four_eyes,
        )

    # Time

    def later(self, **duration: float) -> str:
        """Return a later time as records have it, such as `later(minutes=15)`."""
        return rfc3339(self.now + timedelta(**duration))

    def wait(self, seconds: float) -> None:
        """Let time pass, in which every VM is heard."""
        self.now += timedelta(seconds=seconds)
        self.hear()

    def settle(self) -> None:
        """Let the writer write what has changed because time has passed."""
        with write_to(self.database) as (connection, change_number):
            now = self.now.timestamp()
            write_timed_changes(connection, change_number, now=now, silent_time=self.silent_time)

    def start_another_console(self, groups_hash: str = "others") -> None:
        """Start another console with groups of this hash."""
        groups = StartedGroups(hash=groups_hash, run_id="another", started_at=1.0)
        with self.database.writing.begin() as connection:
            write_latest_groups(connection, groups)

    def set_back(self) -> None:
        """Set the console's clock back by an hour, and let the writer correct the times."""
        self.now -= timedelta(hours=1)
        self.settle()

    # What comes in from VMs and from the broker

    def hear(self) -> None:
        """Hear every VM now; each reports that it prepares."""
        self._hear(self.vms, commands=True, prepares=True)

    def hear_only(self, vms: Iterable[FakeVm]) -> None:
        """Hear only these VMs now; each reports that it prepares."""
        self._hear(vms, commands=True, prepares=True)

    def hear_of(self, numbers: Iterable[int], *, prepares: bool, commands: bool = True) -> None:
        """Hear these VMs now; each says whether it prepares and whether it takes commands."""
        self._hear([self.vms[n] for n in numbers], commands=commands, prepares=prepares)

    def _hear(self, vms: Iterable[FakeVm], *, commands: bool, prepares: bool) -> None:
        heard = list(vms)
        fields: dict[str, Any] = {
            "commands": commands,
            "prepares": prepares,
            "time": rfc3339(self.now),
        }
        self.store([self._parsed(vm, vm.status(**fields)) for vm in heard])
        self.tell(*(vm.heartbeat(now=self.now, prepares=prepares) for vm in heard))

    def lose(self, number: int) -> None:
        """Have the broker report that the connection of a VM was lost."""
        vm = self.vms[number]
        self.status(vm, vm.status("offline", reason="lost"))

    def status(self, vm: FakeVm, status: bytes) -> None:
        """Commit the status of a VM."""
        self.store([self._parsed(vm, status)])

    def _parsed(self, vm: FakeVm, status: bytes) -> Any:
        return parse_status(
            status,
            source="broker",
            received_at=self.now.timestamp(),
            vm_id=vm.vm_id,
            site="default",
        )

    def poll(self) -> None:
        """Have every VM fetch its commands over HTTPS, and report that it prepares."""
        self.tell(*(vm.heartbeat(now=self.now, prepares=True) for vm in self.vms))
        with self.database.writing.begin() as connection:
            at = self.now.timestamp()
            connection.exec_driver_sql(f"UPDATE vm SET command_source = NULL, pulled_at = {at}")

    def tell(self, *records: Record) -> None:
        """Commit these records."""
        at = self.now.timestamp()
        self.store([parse_record(r.body, source="broker", received_at=at) for r in records])

    def store(self, batch: list[Any]) -> None:
        """Commit what a source hands in."""
        with self.database.writing.begin() as connection:
            change_number = next_change_number(connection)
            now = self.now.timestamp()
            write_batch(
                connection,
                batch,
                change_number,
                now=now,
                silent_time=self.silent_time,
                grouping=self.settings.grouping,
            )

    # What VMs report of their events

    def announce(self, number: int) -> str:
        """Announce an event of one VM."""
        event_id = f"E-{number}"
        soon = self.later(minutes=15)
        self.tell(self.vms[number].event(event_id, now=self.now, not_before=soon))
        return event_id

    def change(self, number: int, **more: Any) -> None:
        """Have Azure change the event of a VM."""
        more = {"not_before": self.later(minutes=30), **more}
        event = self.vms[number].event(f"E-{number}", transition="updated", now=self.now, **more)
        self.tell(event)

    def told_by(self, reporters: Iterable[int], transition: str) -> None:
        """Have VMs report the event of the first one."""
        for number in reporters:
            more: dict[str, Any] = {
                "resources": ["db-0"],
                "not_before": self.later(minutes=30),
                "now": self.now,
            }
            self.tell(self.vms[number].event("E-0", transition=transition, **more))

    def end(self, number: int) -> None:
        """End a VM's event; a VM that was asked to approve it reports the outcome."""
        vm = self.vms[number]
        for each in self.known_event(number).decided.commands:
            more: dict[str, Any] = {"jti": each.jti, "actor": each.subject, "now": self.now}
            self.tell(vm.receipt(f"E-{number}", "confirmed", **more))
        self.tell(self.vms[number].event(f"E-{number}", transition="ended", now=self.now))

    def says(self, number: int, state: str) -> None:
        """Have a VM report how far it has prepared for its event."""
        fingerprint = self.known_event(number).shown.report.fingerprint
        data = {"evt": f"E-{number}", "evh": fingerprint, "sink": "drain"}
        more = {"cause": "deadline", "reason": None, "state": state}
        self.tell(self.vms[number].record(PREPARATION, data | more, now=self.now))

    def answer(self, state: str, *, number: int = 0, **more: Any) -> None:
        """Have a VM answer its newest command to prepare."""
        asked = [row for row in all_rows(self.database.reading) if row.action == "prepare"]
        about: dict[str, Any] = {
            "jti": asked[-1].jti,
            "act": "prepare",
            "actor": "group:db",
            **more,
        }
        self.tell(self.vms[number].receipt(f"E-{number}", state, now=self.now, **about))

    # What consoles do

    def step(self, *, steps: int = 4) -> list[str]:
        """Return what a console sends in some steps: act and VM. A step that changes nothing is the
        last one: at the same time, from the same rows, the next one would be equal.
        """
        sent = []
        names = {vm.vm_id: vm.name for vm in self.vms}
        for _ in range(steps):
            with write_to(self.database) as (connection, change_number):
                snapshot = self.snapshots.of(connection)
                requests = RequestTransaction(
                    snapshot,
                    change_number,
                    run_id="one",
                    policy=DecisionPolicy(can_sign=True, four_eyes=self.settings.four_eyes),
                    audit_limiter=AuditLimiter(),
                )
                facts = self.facts.facts_for_step(snapshot)
                written = turn_steps.write_turn_steps(
                    snapshot, change_number, facts, requests, {"broker"}
                )
            sent += [f"{one.command.act} {names[one.command.vm_id]}" for one in written.outgoing]
            if not written.has_changed:
                break
        return sent

    def has_work(self) -> bool:
        """Check whether a console finds something to do."""
        with self.snapshots.open() as snapshot:
            return turn_steps.has_work(snapshot, self.facts.facts_for(snapshot), {"broker"})

    def reads_again(self) -> bool:
        """Check whether a console reads the facts again, since the last time."""
        with self.snapshots.open() as snapshot:
            before = self.facts.facts_for(snapshot) if self._read is None else self._read
            self._read = self.facts.facts_for(snapshot)
            return self._read is not before

    def decide(self) -> list[str]:
        """Return what a console sends to continue decisions: act and VM."""
        around = StepContext(
            up_since=0.0, run_id="one", connected={"broker": 1.0}, turns=self.settings
        )
        names = {vm.vm_id: vm.name for vm in self.vms}
        sent = []
        with self.snapshots.open() as snapshot:
            found = rows.read_all_open(snapshot.connection)
        for each in found:
            with write_to(self.database) as (connection, change_number):
                taken = write_decision_step(
                    self.snapshots.of(connection), each.id, around, change_number
                )
            if taken.outgoing is not None:
                sent.append(f"{taken.outgoing.command.act} {names[taken.outgoing.command.vm_id]}")
        self.deliver()
        return sent

    def deliver(self) -> None:
        """Have the broker accept every command of a decision."""
        with write_to(self.database) as (connection, change_number):
            found = [
                (command, None, self.now.timestamp())
                for decision in rows.read_all_open(connection)
                for command in rows.read_commands(connection, decision.id)
            ]
            mark_sent(self.snapshots.of(connection), found, change_number)

    def approved(self, *said: str, actor: str = "group:db", **more: Any) -> str:
        """Let the first VM prepare, ask it to approve its event, and have it answer; return the jti
        of that. Another `actor` may have approved the event instead.
        """
        self.step()
        self.says(0, "prepared")
        assert "approve db-0" in self.step()
        self.deliver()
        (command,) = self.known_event(0).decided.commands[-1:]
        jti = command.jti if actor == "group:db" else "another"
        for state in said:
            receipt = self.vms[0].receipt(
                "E-0",
                state,
                jti=jti,
                actor=actor,
                now=self.now,
                **(more if state == said[-1] else {}),
            )
            self.tell(receipt)
        self.decide()
        return jti

    def approved_without_preparing(self, *said: str) -> None:
        """Hear that no VM prepares, give the first of two VMs its turn, and have it report what it
        does with its command to approve.
        """
        self.hear_of(range(3), prepares=False)
        self.announce(0)
        self.announce(1)
        assert self.step() == ["approve db-0"]
        self.deliver()
        (asked,) = self.known_event(0).decided.commands
        about: dict[str, Any] = {"jti": asked.jti, "actor": "group:db", "now": self.now}
        for state in said:
            self.tell(self.vms[0].receipt("E-0", state, **about))

    # What people ask for

    def approve(self, number: int, *, person: Person = ALICE, **more: Any) -> None:
        """Approve the event of a VM as a person."""
        self._request(number, what="approve", person=person, **more)

    def leave(self, number: int) -> None:
        """Leave the event of a VM until its time, as a person."""
        self._request(number, what="leave", person=ALICE)

    def _request(self, number: int, **more: Any) -> None:
        fingerprint = self.known_event(number).shown.report.fingerprint
        request = DecisionRequest(
            event_id=f"E-{number}", fingerprint=fingerprint, reason="maintenance", **more
        )
        asyncio.run(self.decisions.decide(request))

    def end_turn(self, number: int, *, person: Person = ALICE, force: bool = False) -> None:
        """End the turn of a VM's event as a person."""
        ended = self.decisions.end_turn(person, f"E-{number}", "not now", force=force)
        asyncio.run(ended)

    # What is seen of it

    def known_event(self, number: int) -> KnownEvent:
        """Return the event of a VM as a person sees it."""
        with self.snapshots.open() as snapshot:
            known = snapshot.events.find_event(f"E-{number}")
        assert known is not None
        return known

    def state(self, number: int) -> str:
        """Return the state of the turn of a VM's event."""
        with self.snapshots.open() as snapshot:
            known = snapshot.events.find_event(f"E-{number}")
        return "none" if known is None or known.turn is None else known.turn.state

    def is_due(self, number: int) -> bool:
        """Check whether a decision on the event of a VM is shown as due."""
        with self.snapshots.open() as snapshot:
            known = snapshot.events.find_event(f"E-{number}")
            assert known is not None
            return decision_on(known, snapshot.now, snapshot.listening).state == "due"

    def actions(self) -> list[str]:
        """Return the actions in the audit."""
        return [row.action for row in all_rows(self.database.reading)]


class EventOfTwo:
    """Five VMs of which two may be away, and an event that names the first two; both have been
    asked to prepare.
    """

    def __init__(self, database: Database) -> None:
        self.cluster = TurnCluster(database, at_most=2)
        self.cluster.vms += [FakeVm(name=f"db-{n}") for n in (3, 4)]
        self.cluster.hear()
        self.soon = self.cluster.later(minutes=30)
        self.tell("scheduled")
        assert sorted(self.cluster.step()) == ["prepare db-0", "prepare db-1"]

    def tell(
        self,
        transition: str,
        *,
        numbers: tuple[int, ...] = (0, 1),
        soon: str = "",
        named: tuple[str, ...] = ("db-0", "db-1"),
    ) -> None:
        """Have VMs report the event, with another `notBefore` if one is given."""
        at = soon or self.soon
        for number in numbers:
            vm = self.cluster.vms[number]
            record = vm.event("E-0", transition=transition, resources=named, not_before=at)
            self.cluster.tell(record)

    def say(self, number: int, state: str) -> None:
        """Have a VM report how far it has prepared for the event as it is now."""
        fingerprint = self.cluster.known_event(0).shown.report.fingerprint
        data = {"evt": "E-0", "evh": fingerprint, "sink": "drain", "cause": "deadline"}
        more = {"reason": None, "state": state}
        vm = self.cluster.vms[number]
        self.cluster.tell(vm.record(PREPARATION, data | more, now=self.cluster.now))

    def confirm(self, number: int) -> None:
        """Have a VM answer to its newest command to prepare that it is prepared."""
        cluster, vm = self.cluster, self.cluster.vms[number]
        with cluster.snapshots.open() as snapshot:
            several = prepare_commands.read(snapshot.connection, ["E-0"]).values()
        asked = [each for some in several for each in some if each.vm_id == vm.vm_id]
        jti = max(asked, key=lambda each: each.made_at).jti
        about: dict[str, Any] = {"jti": jti, "act": "prepare", "actor": "group:db"}
        cluster.tell(vm.receipt("E-0", "confirmed", now=cluster.now, **about))

    def approve(self) -> str:
        """Return the name of the VM that is asked to approve the event, once both are prepared."""
        self.say(0, "prepared")
        self.say(1, "prepared")
        (sent,) = self.cluster.step()
        self.cluster.deliver()
        return sent
