"""Turns in the database: what consoles write, in turn or at once, and what people end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support.console.records import FakeVm
from support.eventually import eventually

from console.access.people import Person
from console.approvals import turn_steps, turn_worker
from console.approvals.command_sender import Outgoing
from console.approvals.refusal_reasons import DecisionRefusedError
from console.approvals.request_transaction import RequestTransaction
from console.approvals.requests import DecisionRequest, DecisionRules
from console.approvals.service import Decisions
from console.approvals.step_transaction import StepContext, mark_sent, write_step
from console.audit.limiter import AuditLimiter
from console.audit.log import everything
from console.config.groups import GroupSettings
from console.db.batches import identities
from console.db.batches.batches import write_batch
from console.db.connection.opening import Database
from console.db.connection.transactions import next_number, write_to
from console.db.decisions import decisions as rows
from console.db.snapshot import Snapshots
from console.db.turn_facts.kept_turn_facts import KeptTurnFacts
from console.db.turn_facts.turn_facts import TurnSettings
from console.db.upkeep.passed_time import write_passed_time
from console.db.upkeep.retention import delete_before
from console.fleet.contact import BY_HEARTBEATS, SilentTime
from console.fleet.preparations import MAX_PREPARATIONS
from console.fleet.values import Command, KnownEvent
from console.fleet.view import decision_on
from console.records.parse import parse_record, parse_status
from console.turns.facts import TurnFacts
from console.turns.groups import Grouping
from sinks.shared.event_match import EventMatch
from wire.record import PREPARATION, Record

START = datetime(2026, 11, 1, 12, tzinfo=UTC)
ALICE = Person(name="alice", roles=frozenset({"approver"}))
OTHER = {"event_type": ["Reboot"], "event_source": ["User"], "max_duration": 8}
"""For each key that says which events a group approves, a value that leaves a freeze of 9 s out."""
BOB = Person(name="bob", roles=frozenset({"approver"}))


class NoSigner:
    """A signer whose key is never used."""

    def sign(self, command: Command, now: float) -> bytes:
        """Return a token that no VM accepts."""
        del command, now
        return b"token"

    def public_key(self) -> dict[str, Any]:
        """Return no key."""
        return {}


class Cluster:
    """Three VMs that prepare, in a database, and consoles that take a step when they are
    told to.
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
        self.facts = KeptTurnFacts(self.settings)
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

    def _seconds(self) -> float:
        return self.now.timestamp()

    def decisions_of(self, grouping: Grouping, *, four_eyes: int = 0) -> Decisions:
        """Return the decisions of a console with these groups."""
        settings = TurnSettings(grouping=grouping, can_sign=True, four_eyes=four_eyes)
        return Decisions(
            self.snapshots,
            signer=NoSigner(),
            publishers={},
            offer=lambda _vm_id, _jti: None,
            committed=lambda: None,
            connected=lambda: {"broker": 1.0},
            turns=settings,
            turn_facts=KeptTurnFacts(settings),
            four_eyes=four_eyes,
        )

    def hear(self) -> None:
        """Hear every VM now; each reports that it prepares."""
        at = self.now.timestamp()
        batch = [
            parse_status(
                vm.status(commands=True, prepares=True, time=_moment(self.now)),
                source="broker",
                received_at=at,
                vm_id=vm.vm_id,
                site="default",
            )
            for vm in self.vms
        ]
        self.store(batch)
        self.tell(*(vm.heartbeat(now=self.now, prepares=True) for vm in self.vms))

    def tell(self, *records: Record) -> None:
        """Commit these records."""
        at = self.now.timestamp()
        self.store([parse_record(r.body, source="broker", received_at=at) for r in records])

    def store(self, batch: list[Any]) -> None:
        """Commit what a source hands in."""
        with self.database.writing.begin() as connection:
            number = next_number(connection)
            now = self.now.timestamp()
            write_batch(connection, batch, number, now=now, silent_time=self.silent_time)

    def set_back(self) -> None:
        """Set the console's clock back by an hour, and let the writer correct the times."""
        self.now -= timedelta(hours=1)
        self.settle()

    def settle(self) -> None:
        """Let the writer write what has changed because time has passed."""
        with write_to(self.database) as (connection, number):
            now = self.now.timestamp()
            write_passed_time(connection, number, now=now, silent_time=self.silent_time)

    def announce(self, number: int) -> str:
        """Announce an event of one VM."""
        event_id = f"E-{number}"
        soon = _moment(self.now + timedelta(minutes=15))
        self.tell(self.vms[number].event(event_id, now=self.now, not_before=soon))
        return event_id

    def speak(self, number: int, *, commands: bool) -> None:
        """Hear a VM that prepares nothing; it says whether it takes commands."""
        vm = self.vms[number]
        status = parse_status(
            vm.status(commands=commands, prepares=False, time=_moment(self.now)),
            source="broker",
            received_at=self.now.timestamp(),
            vm_id=vm.vm_id,
            site="default",
        )
        self.store([status])
        self.tell(vm.heartbeat(now=self.now, prepares=False))

    def lose(self, number: int) -> None:
        """Have the broker report that the connection of a VM was lost."""
        lost = self.vms[number]
        status = parse_status(
            lost.status("offline", reason="lost"),
            source="broker",
            received_at=self.now.timestamp(),
            vm_id=lost.vm_id,
            site="default",
        )
        self.store([status])

    def end(self, number: int) -> None:
        """End a VM's event; a VM that was asked to approve it reports the outcome."""
        with self.snapshots.open() as snapshot:
            known = snapshot.events.find_event(f"E-{number}")
        assert known is not None
        vm = self.vms[number]
        for each in known.decided.commands:
            more = {"jti": each.jti, "actor": each.subject, "now": self.now}
            self.tell(vm.receipt(f"E-{number}", "confirmed", **more))
        self.tell(self.vms[number].event(f"E-{number}", transition="ended", now=self.now))

    def says(self, number: int, state: str) -> None:
        """Have a VM report how far it has prepared for its event."""
        with self.snapshots.open() as snapshot:
            known = snapshot.events.find_event(f"E-{number}")
        assert known is not None
        data = {"evt": f"E-{number}", "evh": known.shown.report.fingerprint, "sink": "drain"}
        more = {"cause": "deadline", "reason": None, "state": state}
        self.tell(self.vms[number].record(PREPARATION, data | more, now=self.now))

    def poll(self) -> None:
        """Have every VM fetch its commands over HTTPS, and report that it prepares."""
        self.tell(*(vm.heartbeat(now=self.now, prepares=True) for vm in self.vms))
        with self.database.writing.begin() as connection:
            at = self.now.timestamp()
            connection.exec_driver_sql(f"UPDATE vm SET command_source = NULL, pulled_at = {at}")

    def wait(self, seconds: float) -> None:
        """Let time pass, in which every VM is heard."""
        self.now += timedelta(seconds=seconds)
        self.hear()

    def step(self, *, steps: int = 4) -> list[str]:
        """Return what a console sends in some steps: act and VM."""
        sent = []
        for _ in range(steps):
            with write_to(self.database) as (connection, number):
                snapshot = self.snapshots.within(connection)
                decide = RequestTransaction(
                    snapshot,
                    number,
                    run_id="one",
                    rules=DecisionRules(can_sign=True),
                    audit_limiter=AuditLimiter(),
                )
                written = turn_steps.write_step(snapshot, number, self.settings, decide, {"broker"})
            names = {vm.vm_id: vm.name for vm in self.vms}
            sent += [f"{one.command.act} {names[one.command.vm_id]}" for one in written.outgoing]
        return sent

    def has_work(self) -> bool:
        """Check whether a console finds something to do."""
        with self.snapshots.open() as snapshot:
            return turn_steps.has_work(snapshot, self.facts.within(snapshot), {"broker"})

    def reads_again(self) -> bool:
        """Check whether a console reads the facts again, since the last time."""
        with self.snapshots.open() as snapshot:
            before = self.facts.within(snapshot) if self._read is None else self._read
            self._read = self.facts.within(snapshot)
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
            with write_to(self.database) as (connection, number):
                taken = write_step(self.snapshots.within(connection), each.id, around, number)
            if taken.outgoing is not None:
                sent.append(f"{taken.outgoing.command.act} {names[taken.outgoing.command.vm_id]}")
        self.deliver()
        return sent

    def deliver(self) -> None:
        """Have the broker accept every command of a decision."""
        with write_to(self.database) as (connection, number):
            found = [
                (command, None, self.now.timestamp())
                for decision in rows.read_all_open(connection)
                for command in rows.read_commands(connection, decision.id)
            ]
            mark_sent(self.snapshots.within(connection), found, number)

    def state(self, number: int) -> str:
        """Return the state of the turn of a VM's event."""
        with self.snapshots.open() as snapshot:
            known = snapshot.events.find_event(f"E-{number}")
        return "none" if known is None or known.turn is None else known.turn.state

    def actions(self) -> list[str]:
        """Return the actions in the audit."""
        return [row.action for row in everything(self.database.reading)]


def _moment(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


@pytest.fixture
def cluster(database: Database) -> Iterator[Cluster]:
    """Three VMs in a database of either kind."""
    made = Cluster(database)
    yield made
    made.decisions.stop()


def test_one_after_the_other(cluster: Cluster) -> None:
    """A VM prepares, is approved and comes back; then the next one gets its turn."""
    cluster.announce(0)
    cluster.announce(1)
    assert cluster.step() == ["prepare db-0"]
    assert (cluster.state(0), cluster.state(1)) == ("preparing", "waiting")
    cluster.says(0, "preparing")
    assert cluster.step() == []
    cluster.says(0, "prepared")
    answer(cluster, "confirmed")
    assert cluster.step() == ["approve db-0"]
    assert cluster.state(0) == "approving"
    cluster.end(0)
    cluster.wait(1)
    assert cluster.step() == []
    assert cluster.state(0) == "away"
    cluster.says(0, "recovered")
    cluster.wait(1)
    assert cluster.step() == ["prepare db-1"]
    assert cluster.state(0) == "over"
    assert cluster.actions() == ["take_turn", "prepare", "approve", "take_turn", "prepare"]


def test_the_next_turn_follows_the_end_of_one_at_once(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One check of the worker ends a turn and gives the next one, if there is no rest
    between them.
    """
    for name in ("_GATHER_SECONDS", "_CHECK_SECONDS"):
        monkeypatch.setattr(turn_worker, name, 3600.0)
    cluster.announce(0)
    cluster.announce(1)
    cluster.step()
    cluster.says(0, "prepared")
    answer(cluster, "confirmed")
    cluster.step()
    cluster.end(0)
    cluster.wait(1)
    cluster.step()
    cluster.says(0, "recovered")
    cluster.wait(1)
    assert (cluster.state(0), cluster.state(1)) == ("away", "waiting")
    sent: list[Outgoing] = []
    worker = turn_worker.TurnWorker(
        cluster.snapshots,
        cluster.settings,
        cluster.facts,
        console="one",
        send=sent.append,
        connected=lambda: {"broker": 1.0},
        committed=lambda: None,
    )
    worker.start()
    try:
        eventually(lambda: bool(sent), what="the command to prepare of the next turn", timeout=20)
    finally:
        worker.stop()
    assert (cluster.state(0), cluster.state(1)) == ("over", "preparing")
    assert [each.command.vm_id for each in sent] == [cluster.vms[1].vm_id]


def test_most_heartbeats_cause_no_read(cluster: Cluster) -> None:
    """A heartbeat causes a read only if it is from a VM whose event is over, because it may end
    that VM's turn.
    """
    cluster.announce(0)
    cluster.step()
    assert not cluster.has_work()
    assert not cluster.reads_again()
    cluster.now += timedelta(seconds=0.4)
    cluster.tell(*(vm.heartbeat(now=cluster.now, prepares=True) for vm in cluster.vms))
    assert not cluster.reads_again()
    cluster.end(0)
    assert cluster.reads_again()
    cluster.step()
    assert cluster.reads_again()
    cluster.now += timedelta(seconds=0.4)
    cluster.tell(cluster.vms[1].heartbeat(now=cluster.now, prepares=True))
    assert not cluster.reads_again()
    cluster.tell(cluster.vms[0].heartbeat(now=cluster.now, prepares=True))
    assert cluster.reads_again()


def test_no_turn_ends_by_force_while_a_vm_may_follow_its_approval(cluster: Cluster) -> None:
    """A person cannot end a turn while a VM may still follow its approval, even if a document has
    left the event out, because the event may return as it was.
    """
    cluster.announce(0)
    cluster.step()
    cluster.says(0, "prepared")
    answer(cluster, "confirmed")
    assert cluster.step() == ["approve db-0"]
    cluster.now += timedelta(seconds=3)
    cluster.tell(cluster.vms[0].event("E-0", transition="ended", status="Unknown", now=cluster.now))
    cluster.says(0, "recovered")
    cluster.wait(2)
    cluster.step()
    assert cluster.state(0) == "away"
    with pytest.raises(DecisionRefusedError) as refused:
        asyncio.run(cluster.decisions.end_turn(ALICE, "E-0", "it is back", force=True))
    assert refused.value.why == "under_way"
    cluster.wait(75)
    cluster.step()
    assert cluster.state(0) == "over"


def test_after_a_step_there_may_be_a_next_one(cluster: Cluster) -> None:
    """After a step, this console and others read again, because a further step may follow."""
    cluster.announce(0)
    assert cluster.has_work()
    assert not cluster.reads_again()
    cluster.step(steps=1)
    assert cluster.reads_again()


def test_a_turn_is_in_the_audit_before_its_approval(cluster: Cluster) -> None:
    """If the VM prepares nothing, its turn and its approval are written in one transaction, and the
    turn comes first in the audit.
    """
    cluster.now += timedelta(seconds=1)
    cluster.tell(*(vm.heartbeat(now=cluster.now, prepares=False) for vm in cluster.vms))
    cluster.announce(0)
    assert cluster.step(steps=1) == ["approve db-0"]
    assert cluster.actions() == ["take_turn", "approve"]


def test_a_prepare_command_is_sent_again_until_it_is_answered(cluster: Cluster) -> None:
    """A prepare command is sent again every ten seconds with the same jti; an answer ends that,
    also `replayed`.
    """
    cluster.announce(0)
    assert cluster.step() == ["prepare db-0"]
    cluster.wait(9)
    assert cluster.step() == []
    cluster.wait(2)
    assert cluster.step() == ["prepare db-0"]
    (row,) = [row for row in everything(cluster.database.reading) if row.action == "prepare"]
    assert row.jti is not None
    answer = {"jti": row.jti, "act": "prepare", "actor": "group:db"}
    cluster.tell(cluster.vms[0].receipt("E-0", "accepted", now=cluster.now, **answer))
    cluster.wait(30)
    assert cluster.step() == []
    with cluster.snapshots.open() as snapshot:
        known = snapshot.events.find_event("E-0")
    assert known is not None
    assert known.receipts == []


def test_a_refusal_that_may_pass_is_followed_by_another_command(cluster: Cluster) -> None:
    """If a VM refuses because it has not seen the event yet, another command follows, with a new
    jti and a row of the audit.
    """
    cluster.announce(0)
    cluster.step()
    rows = everything(cluster.database.reading)
    jti = next(row.jti for row in rows if row.action == "prepare")
    answer = {"jti": jti, "act": "prepare", "reason": "unknown_event"}
    cluster.tell(cluster.vms[0].receipt("E-0", "rejected", now=cluster.now, **answer))
    cluster.wait(11)
    assert cluster.step() == ["prepare db-0"]
    assert cluster.actions() == ["take_turn", "prepare", "prepare"]


def test_an_approval_waits_while_another_member_has_crashed(cluster: Cluster) -> None:
    """An event whose VMs have all prepared is not approved while another member that has crashed
    fills the budget.
    """
    cluster.announce(0)
    cluster.step()
    cluster.says(0, "prepared")
    cluster.lose(2)
    assert cluster.step() == []
    assert cluster.state(0) == "prepared"
    cluster.wait(1)
    assert cluster.step() == ["approve db-0"]


def test_many_consoles_at_once_take_one_turn(cluster: Cluster) -> None:
    """Many consoles that look at the same time, each on its own thread, release one VM together."""
    for number in range(3):
        cluster.announce(number)
    sent: list[str] = []
    several = [
        threading.Thread(target=lambda: sent.extend(cluster.step(steps=3))) for _ in range(4)
    ]
    for each in several:
        each.start()
    for each in several:
        each.join()
    assert sent == ["prepare db-0"]


def test_a_person_ends_a_turn_that_is_stuck(cluster: Cluster) -> None:
    """A person can end a turn an hour after its event. What the VM has prepared does not count any
    more, and the next VM gets its turn.
    """
    cluster.announce(0)
    cluster.announce(1)
    cluster.step()
    cluster.says(0, "prepared")
    cluster.step()
    cluster.end(0)
    cluster.step()
    with pytest.raises(DecisionRefusedError) as refused:
        asyncio.run(cluster.decisions.end_turn(ALICE, "E-0", "it is back"))
    assert refused.value.why in ("not_stuck", "under_way")
    cluster.wait(3700)
    cluster.tell(cluster.vms[1].event("E-1", transition="updated", now=cluster.now))
    cluster.step()
    assert cluster.state(0) == "stuck"
    asyncio.run(cluster.decisions.end_turn(ALICE, "E-0", "it is back"))
    assert cluster.state(0) == "over"
    assert "prepare db-1" in cluster.step()
    assert "end_turn" in cluster.actions()
    with pytest.raises(DecisionRefusedError) as refused:
        asyncio.run(cluster.decisions.end_turn(ALICE, "E-0", "again"))
    assert refused.value.why == "no_turn"


def test_a_turn_that_a_person_has_ended_is_not_taken_again(cluster: Cluster) -> None:
    """As long as the event has not changed, it is left to people after a person has ended
    its turn.
    """
    cluster.announce(0)
    cluster.step()
    asyncio.run(cluster.decisions.end_turn(ALICE, "E-0", "not now", force=True))
    assert cluster.step() == []
    assert cluster.step() == []
    assert cluster.state(0) == "waiting"
    cluster.tell(cluster.vms[0].event("E-0", transition="updated", now=cluster.now))
    assert cluster.step() == ["prepare db-0"]


def test_a_vm_that_prepared_without_a_turn_is_away_until_it_has_recovered(
    cluster: Cluster,
) -> None:
    """A VM that prepared at its own deadline, while no console ran, counts as away after its event
    until it has recovered.
    """
    cluster.announce(0)
    cluster.says(0, "prepared")
    cluster.end(0)
    cluster.announce(1)
    assert cluster.step() == []
    assert (cluster.state(0), cluster.state(1)) == ("away", "waiting")
    cluster.wait(5)
    assert cluster.step() == []
    cluster.says(0, "recovered")
    cluster.wait(1)
    assert cluster.step() == ["prepare db-1"]


def test_a_person_leaves_an_event_whose_turn_has_begun(cluster: Cluster) -> None:
    """If a person leaves an event whose turn has begun, its group does not approve it any more."""
    cluster.announce(0)
    cluster.step()
    leave(cluster, 0)
    cluster.says(0, "prepared")
    assert cluster.step() == []
    assert cluster.state(0) == "failed"


def test_without_a_role_no_turn_is_ended(cluster: Cluster) -> None:
    """A person without the role approver cannot end a turn."""
    cluster.announce(0)
    cluster.step()
    viewer = Person(name="bob", roles=frozenset({"viewer"}))
    with pytest.raises(DecisionRefusedError) as refused:
        asyncio.run(cluster.decisions.end_turn(viewer, "E-0", "please", force=True))
    assert refused.value.why == "role"


def seen(cluster: Cluster, number: int) -> KnownEvent:
    """Return the event of a VM as a person sees it."""
    with cluster.snapshots.open() as snapshot:
        known = snapshot.events.find_event(f"E-{number}")
    assert known is not None
    return known


def approve(cluster: Cluster, number: int, *, person: Person = ALICE, **more: Any) -> None:
    """Approve the event of a VM as a person."""
    decide(cluster, number, what="approve", person=person, **more)


def leave(cluster: Cluster, number: int) -> None:
    """Leave the event of a VM until its time, as a person."""
    decide(cluster, number, what="leave", person=ALICE)


def decide(cluster: Cluster, number: int, **more: Any) -> None:
    """Decide about the event of a VM as it is now, as a person."""
    fingerprint = seen(cluster, number).shown.report.fingerprint
    request = DecisionRequest(
        event_id=f"E-{number}", fingerprint=fingerprint, reason="maintenance", **more
    )
    asyncio.run(cluster.decisions.decide(request))


def is_due(cluster: Cluster, number: int) -> bool:
    """Check whether a decision on the event of a VM is shown as due."""
    with cluster.snapshots.open() as snapshot:
        known = snapshot.events.find_event(f"E-{number}")
        assert known is not None
        return decision_on(known, snapshot.now, snapshot.listening).state == "due"


@pytest.fixture
def by_people(database: Database) -> Iterator[Cluster]:
    """Return a group that approves nothing by itself; of its three VMs two may be away."""
    made = Cluster(database, approve=None, at_most=2)
    yield made
    made.decisions.stop()


def test_a_person_does_not_approve_what_failed_to_prepare(by_people: Cluster) -> None:
    """While a VM has given up its preparation, no decision on its event is due, and without force
    nothing is sent.
    """
    by_people.announce(0)
    by_people.step()
    assert is_due(by_people, 0)
    by_people.says(0, "failed")
    by_people.step()
    assert not is_due(by_people, 0)
    with pytest.raises(DecisionRefusedError) as refused:
        approve(by_people, 0)
    assert refused.value.why == "not_prepared"
    assert "approve" not in by_people.actions()
    approve(by_people, 0, force=True)
    assert "approve" in by_people.actions()


def test_a_person_does_not_approve_what_no_vm_has_time_to_prepare(by_people: Cluster) -> None:
    """Shortly before notBefore a person's approval is refused, because it would be sent before the
    VM has prepared.
    """
    by_people.announce(0)
    by_people.step()
    by_people.wait(14 * 60 + 40)
    by_people.step()
    assert not is_due(by_people, 0)
    with pytest.raises(DecisionRefusedError) as refused:
        approve(by_people, 0)
    assert refused.value.why == "not_prepared"
    assert "approve" not in by_people.actions()


def test_nothing_is_due_while_a_named_vm_that_prepares_is_not_heard(by_people: Cluster) -> None:
    """No decision is due while a named VM that prepares is not heard: it cannot prepare, although
    its group has room.
    """
    one, other, _ = by_people.vms
    soon = _moment(by_people.now + timedelta(minutes=15))
    names = [one.name, other.name]
    for vm in (one, other):
        by_people.tell(vm.event("E-0", now=by_people.now, not_before=soon, resources=names))
    by_people.step()
    assert is_due(by_people, 0)
    by_people.lose(1)
    assert not is_due(by_people, 0)
    by_people.step()
    assert not is_due(by_people, 0)
    with pytest.raises(DecisionRefusedError) as refused:
        approve(by_people, 0)
    assert refused.value.why == "cannot_prepare"


def test_nothing_is_due_before_it_is_known_whether_there_is_room(by_people: Cluster) -> None:
    """No decision is due on an event that has just come in: it may have to wait for its group."""
    for number in range(3):
        by_people.announce(number)
    assert not any(is_due(by_people, number) for number in range(3))
    by_people.step()
    assert all(is_due(by_people, number) for number in range(3))


def change(cluster: Cluster, number: int, **more: Any) -> None:
    """Have Azure change the event of a VM."""
    more = {"not_before": _moment(cluster.now + timedelta(minutes=30)), **more}
    event = cluster.vms[number].event(f"E-{number}", transition="updated", now=cluster.now, **more)
    cluster.tell(event)


def test_a_persons_approval_is_for_the_state_that_the_person_saw(by_people: Cluster) -> None:
    """If the event changes while its VM prepares, it waits for another approval, which continues
    the turn.
    """
    by_people.announce(0)
    by_people.step()
    approve(by_people, 0)
    by_people.step()
    change(by_people, 0)
    by_people.wait(11)
    by_people.step()
    assert by_people.state(0) == "failed"
    by_people.says(0, "prepared")
    assert by_people.step() == []
    assert is_due(by_people, 0)
    approve(by_people, 0)
    assert by_people.actions()[-1] == "approve"


def test_force_is_for_the_vms_that_the_event_named(database: Database) -> None:
    """If an event that a person forced names further VMs later, these are not sent away."""
    cluster = Cluster(database, approve=None)
    cluster.announce(1)
    cluster.step()
    approve(cluster, 1)
    cluster.step()
    cluster.announce(0)
    cluster.step()
    approve(cluster, 0, force=True)
    assert cluster.step() == ["prepare db-0"]
    change(cluster, 0, resources=[vm.name for vm in cluster.vms])
    cluster.wait(11)
    assert cluster.step() == []  # nor is db-1 asked again: it would be gone beside db-0
    assert cluster.state(0) == "failed"
    cluster.decisions.stop()


@pytest.mark.parametrize("other", [{}, *({name: value} for name, value in OTHER.items())], ids=str)
def test_a_group_approves_the_events_that_its_keys_mean(
    database: Database, other: dict[str, Any]
) -> None:
    """Each key of a group is compared with what the VM has reported."""
    keys = {"event_type": ["Freeze"], "event_source": ["Platform"], "max_duration": 9}
    assert keys.keys() == EventMatch.model_fields.keys() == OTHER.keys()
    cluster = Cluster(database, approve={**keys, **other})
    soon = _moment(cluster.now + timedelta(minutes=15))
    cluster.tell(
        cluster.vms[0].event(
            "E-0", event_type="Freeze", duration=9, now=cluster.now, not_before=soon
        )
    )
    assert cluster.step() == ([] if other else ["prepare db-0"])
    cluster.decisions.stop()


@pytest.mark.parametrize(
    "keys",
    [
        {"approve": {"event_type": ["Freeze"]}},
        {"window": [{"days": ["Sun"], "from": "11:00", "to": "12:10", "zone": "UTC"}]},
    ],
    ids=["type", "window"],
)
def test_a_group_approves_what_it_approves_at_the_moment_of_the_approval(
    database: Database, keys: dict[str, object]
) -> None:
    """A group approves an event by its keys and its window at the moment of the approval, not by
    those at which the turn was taken.
    """
    cluster = Cluster(database, **keys)
    later = _moment(cluster.now + timedelta(hours=5))
    cluster.tell(
        cluster.vms[0].event("E-0", event_type="Freeze", now=cluster.now, not_before=later)
    )
    assert cluster.step() == ["prepare db-0"]
    if "approve" in keys:
        change(cluster, 0, event_type="Redeploy")
    cluster.wait(3600)
    cluster.step()
    cluster.says(0, "prepared")
    assert cluster.step() == []
    assert cluster.state(0) == "failed"
    cluster.decisions.stop()


def test_a_person_takes_an_approval_back(by_people: Cluster) -> None:
    """A person who leaves an event while its VM prepares ends the approval; a later approval ends
    the leave.
    """
    by_people.announce(0)
    by_people.step()
    approve(by_people, 0)
    by_people.step()
    leave(by_people, 0)
    by_people.says(0, "prepared")
    assert by_people.step() == []
    assert by_people.state(0) == "failed"
    approve(by_people, 0)
    assert by_people.actions()[-1] == "approve"


def test_a_state_that_comes_back_is_prepared_again(cluster: Cluster) -> None:
    """If an event changes from A to B and back to A, its VM prepares for A again, because it has
    given that preparation up meanwhile.
    """
    first = _moment(cluster.now + timedelta(minutes=15))
    cluster.announce(0)
    cluster.step()
    change(cluster, 0)
    cluster.wait(11)
    assert cluster.step() == ["prepare db-0"]
    change(cluster, 0, not_before=first)
    cluster.wait(11)
    assert cluster.step() == ["prepare db-0"]
    assert cluster.state(0) == "preparing"


def test_after_the_end_of_a_turn_its_command_counts_until_it_has_expired(cluster: Cluster) -> None:
    """After a turn has ended, no other VM is asked until the command has expired, because the
    broker may still deliver it.
    """
    cluster.announce(0)
    cluster.announce(1)
    assert cluster.step() == ["prepare db-0"]
    asyncio.run(cluster.decisions.end_turn(ALICE, "E-0", "not now", force=True))
    assert cluster.step() == []
    cluster.wait(71)
    assert cluster.step() == ["prepare db-1"]


def test_an_event_that_names_a_retired_vm_is_left_to_people(cluster: Cluster) -> None:
    """An event that names a retired VM is left to people: the VM is not a member any more, and
    cannot prepare.
    """
    soon = _moment(cluster.now + timedelta(minutes=15))
    names = [cluster.vms[0].name, cluster.vms[1].name]
    for vm in cluster.vms[:2]:
        cluster.tell(vm.event("E-0", now=cluster.now, not_before=soon, resources=names))
    with cluster.database.writing.begin() as connection:
        connection.exec_driver_sql("UPDATE vm SET retired_at = 1 WHERE name = 'db-1'")
    assert cluster.step() == []
    known = seen(cluster, 0)
    assert known.turn is not None
    assert known.turn.reason == "the console does not know db-1"


def without_groups(cluster: Cluster) -> Cluster:
    """A console without groups on the same database."""
    cluster.settings = TurnSettings(grouping=Grouping(()), can_sign=True)
    cluster.snapshots = Snapshots(cluster.database, clock=cluster.snapshots.clock)
    cluster.decisions = cluster.decisions_of(Grouping(()))
    return cluster


def test_without_groups_open_turns_are_shown_and_end(cluster: Cluster) -> None:
    """If the next start has no groups, an event that waits may be approved at once, and what was
    released comes to its end.
    """
    cluster.announce(0)
    cluster.announce(1)
    cluster.step()
    cluster.says(0, "prepared")
    answer(cluster, "confirmed")
    cluster.step()
    without_groups(cluster)
    assert (cluster.state(0), cluster.state(1)) == ("approving", "waiting")
    cluster.step()
    assert (cluster.state(0), cluster.state(1)) == ("approving", "over")
    assert is_due(cluster, 1)
    cluster.end(0)
    cluster.step()
    cluster.says(0, "recovered")
    cluster.wait(1)
    cluster.step()
    assert cluster.state(0) == "over"


def test_without_groups_a_preparation_that_has_begun_is_not_passed_over(cluster: Cluster) -> None:
    """Without groups too, a person's approval is refused while the event's VM prepares for it."""
    cluster.announce(0)
    cluster.step()
    without_groups(cluster)
    with pytest.raises(DecisionRefusedError) as refused:
        approve(cluster, 0)
    assert refused.value.why == "turn_begun"


def answer(cluster: Cluster, state: str, *, number: int = 0, **more: Any) -> None:
    """Have a VM answer its newest command to prepare."""
    asked = [row for row in everything(cluster.database.reading) if row.action == "prepare"]
    about = {"jti": asked[-1].jti, "act": "prepare", "actor": "group:db", **more}
    cluster.tell(cluster.vms[number].receipt(f"E-{number}", state, now=cluster.now, **about))


def test_a_vm_that_lost_what_it_had_accepted_is_asked_again(cluster: Cluster) -> None:
    """A VM that accepted a command and then lost its store is asked to prepare again."""
    cluster.announce(0)
    assert cluster.step() == ["prepare db-0"]
    answer(cluster, "accepted")
    cluster.wait(60)
    assert cluster.step() == []
    cluster.wait(61)
    assert cluster.step() == ["prepare db-0"]


def test_a_vm_that_refuses_again_and_again_is_asked_less_and_less(cluster: Cluster) -> None:
    """A VM that refuses each command, because its clock is wrong, is asked more and more seldom, so
    it does not fill the audit.
    """
    soon = _moment(cluster.now + timedelta(hours=3))
    cluster.tell(cluster.vms[0].event("E-0", now=cluster.now, not_before=soon))
    for _ in range(60):
        if "prepare db-0" in cluster.step(steps=1):
            answer(cluster, "rejected", reason="not_yet_valid")
        cluster.wait(60)
    assert cluster.actions().count("prepare") < 20


def test_the_group_does_not_wait_for_a_vm_that_does_not_answer(cluster: Cluster) -> None:
    """If a VM is heard and does not answer, because its trust file lacks the key, the next event of
    its group gets its turn.
    """
    for number, hours in ((0, 10), (1, 11)):
        soon = _moment(cluster.now + timedelta(hours=hours))
        vm = cluster.vms[number]
        cluster.tell(vm.event(f"E-{number}", now=cluster.now, not_before=soon))
    sent = set()
    for _ in range(9):
        sent.update(cluster.step())
        cluster.wait(60)
    assert sent == {"prepare db-0", "prepare db-1"}
    assert (cluster.state(0), cluster.state(1)) == ("failed", "preparing")
    cluster.says(1, "prepared")
    assert cluster.step() == ["approve db-1"]


def test_a_vm_that_has_accepted_may_follow_until_its_word_comes(cluster: Cluster) -> None:
    """A VM that has accepted counts as away until it reports, because its receipt may arrive by a
    faster way than its records.
    """
    cluster.announce(0)
    cluster.announce(1)
    assert cluster.step() == ["prepare db-0"]
    answer(cluster, "accepted")
    cluster.end(0)
    cluster.wait(71)
    assert cluster.step() == []
    answer(cluster, "failed", reason="unknown_event")
    assert cluster.step() == ["prepare db-1"]


def test_a_vm_that_is_approved_by_force_after_it_was_free_is_away_again(
    database: Database,
) -> None:
    """A VM whose turn failed because it did not answer counts as away again once a person approves
    its event by force.
    """
    cluster = Cluster(database, approve=None)
    cluster.announce(0)
    cluster.step()
    approve(cluster, 0)
    for _ in range(9):
        cluster.step()
        cluster.wait(60)
    assert cluster.state(0) == "failed"
    approve(cluster, 0, force=True)
    assert cluster.state(0) == "approving"
    cluster.announce(1)
    with pytest.raises(DecisionRefusedError) as refused:
        approve(cluster, 1)
    assert refused.value.why == "not_its_turn"


def test_a_person_approves_nothing_before_each_vm_has_said_whether_it_prepares(
    database: Database,
) -> None:
    """A person's approval is refused until each named VM has said, in a heartbeat, whether it
    prepares.
    """
    cluster = Cluster(database, at_most=2, approve=None)
    fresh = FakeVm(name="db-9")
    both = [cluster.vms[0].name, fresh.name]
    soon = _moment(cluster.now + timedelta(minutes=15))
    for vm in (cluster.vms[0], fresh):
        cluster.tell(vm.event("E-0", now=cluster.now, not_before=soon, resources=both))
    cluster.vms.append(fresh)
    approve(cluster, 0)
    assert cluster.step() == ["prepare db-0"]
    cluster.says(0, "prepared")
    assert cluster.step() == []
    cluster.hear()
    assert cluster.step() == ["prepare db-9"]


def test_a_vm_that_prepares_no_more_is_back_once_it_is_heard(cluster: Cluster) -> None:
    """A VM that comes back with settings by which it prepares nothing is back once it is heard,
    because it will report no recovery.
    """
    cluster.announce(0)
    cluster.announce(1)
    cluster.step()
    cluster.says(0, "prepared")
    cluster.step()
    cluster.end(0)
    cluster.step()
    cluster.wait(1)
    assert cluster.step() == []
    vm = cluster.vms[0]
    status = parse_status(
        vm.status(commands=True, prepares=False, time=_moment(cluster.now)),
        source="broker",
        received_at=cluster.now.timestamp(),
        vm_id=vm.vm_id,
        site="default",
    )
    cluster.store([status])
    assert cluster.step() == ["prepare db-1"]


def test_a_person_ends_a_turn_whose_vm_accepted_the_approval_and_is_gone(cluster: Cluster) -> None:
    """A person cannot end the turn while its VM may still act on the approval, and afterwards only
    by force.
    """
    soon = _moment(cluster.now + timedelta(hours=10))
    cluster.tell(cluster.vms[0].event("E-0", now=cluster.now, not_before=soon))
    cluster.step()
    cluster.says(0, "prepared")
    assert cluster.step() == ["approve db-0"]
    with pytest.raises(DecisionRefusedError) as refused:
        asyncio.run(cluster.decisions.end_turn(ALICE, "E-0", "it is gone", force=True))
    assert refused.value.why == "under_way"
    cluster.wait(600)
    cluster.step()
    asyncio.run(cluster.decisions.end_turn(ALICE, "E-0", "it is gone", force=True))
    assert "end_turn" in cluster.actions()


def test_a_clock_that_was_set_back_hides_no_crash(cluster: Cluster) -> None:
    """If the clock was set back, a VM that was heard in the future may have crashed long ago, so no
    other VM is released.
    """
    cluster.announce(0)
    cluster.now -= timedelta(minutes=10)
    assert cluster.step() == []
    cluster.hear()
    with cluster.database.writing.begin() as connection:
        connection.exec_driver_sql(
            f"UPDATE vm SET heard_at = {cluster.now.timestamp()} WHERE name <> 'db-2'"
        )
    assert cluster.step() == []
    cluster.now += timedelta(minutes=10)
    cluster.hear()
    assert cluster.step() == ["prepare db-0"]


def test_turns_go_on_after_the_clock_was_set_back(cluster: Cluster) -> None:
    """After the clock was set back, a VM is asked again within a minute and counts as back after
    its event, but not because of what was heard before.
    """
    cluster.announce(0)
    cluster.announce(1)
    assert cluster.step() == ["prepare db-0"]
    cluster.set_back()
    assert cluster.step() == []
    cluster.wait(45)
    assert cluster.step() == ["prepare db-0"]
    cluster.says(0, "prepared")
    answer(cluster, "confirmed")
    assert cluster.step() == ["approve db-0"]
    cluster.wait(20)
    cluster.end(0)
    cluster.says(0, "recovered")
    cluster.now += timedelta(seconds=1)
    assert cluster.step() == []
    assert cluster.state(0) == "away"
    cluster.set_back()
    for _ in range(3):
        assert cluster.step() == []
        cluster.now += timedelta(seconds=15)
    cluster.hear()
    assert cluster.step() == ["prepare db-1"]
    assert cluster.state(0) == "over"


def test_a_vm_rests_as_long_after_the_clock_was_set_back(database: Database) -> None:
    """After the clock was set back, the rest of a VM begins again."""
    cluster = Cluster(database, rest=120)
    cluster.announce(0)
    cluster.announce(1)
    cluster.step()
    cluster.says(0, "prepared")
    answer(cluster, "confirmed")
    cluster.step()
    cluster.end(0)
    cluster.wait(1)
    cluster.says(0, "recovered")
    cluster.wait(1)
    assert cluster.step() == []
    cluster.set_back()
    cluster.wait(100)
    assert cluster.step() == []
    cluster.wait(60)
    assert cluster.step() == ["prepare db-1"]


def test_a_vm_that_has_not_said_whether_it_prepares_is_waited_for(cluster: Cluster) -> None:
    """An event waits for a VM of which only the event has come in, until the VM has said whether it
    prepares.
    """
    fresh = FakeVm(name="db-9")
    cluster.vms.append(fresh)
    soon = _moment(cluster.now + timedelta(minutes=15))
    cluster.tell(fresh.event("E-9", now=cluster.now, not_before=soon))
    assert cluster.step() == []
    assert cluster.state(9) == "waiting"
    cluster.hear()
    assert cluster.step() == ["prepare db-9"]


class Pair:
    """Five VMs of which two may be away, and an event that names the first two."""

    def __init__(self, database: Database) -> None:
        self.cluster = Cluster(database, at_most=2)
        self.cluster.vms += [FakeVm(name=f"db-{n}") for n in (3, 4)]
        self.cluster.hear()
        self.soon = _moment(self.cluster.now + timedelta(minutes=30))
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
            told = vm.event("E-0", transition=transition, resources=named, not_before=at)
            self.cluster.tell(told)

    def say(self, number: int, state: str) -> None:
        """Have a VM report how far it has prepared for the event as it is now."""
        seen_now = seen(self.cluster, 0).shown.report.fingerprint
        data = {"evt": "E-0", "evh": seen_now, "sink": "drain", "cause": "deadline"}
        more = {"reason": None, "state": state}
        vm = self.cluster.vms[number]
        self.cluster.tell(vm.record(PREPARATION, data | more, now=self.cluster.now))

    def approve(self) -> str:
        """Return the name of the VM that is asked to approve the event, once both are prepared."""
        self.say(0, "prepared")
        self.say(1, "prepared")
        (sent,) = self.cluster.step()
        self.cluster.deliver()
        return sent


@pytest.fixture
def pair(database: Database) -> Iterator[Pair]:
    """Five VMs; the two that the event names prepare."""
    made = Pair(database)
    yield made
    made.cluster.decisions.stop()


def test_the_next_vm_is_asked_to_approve_only_if_there_is_room_still(pair: Pair) -> None:
    """If the first VM does not answer, the second is not asked to approve when another member has
    crashed meanwhile.
    """
    cluster = pair.cluster
    first = pair.approve()
    cluster.wait(3)
    cluster.lose(4)
    for _ in range(10):
        cluster.now += timedelta(seconds=2)
        assert cluster.decide() == []
        assert cluster.step() == []
    cluster.wait(1)
    (then,) = cluster.decide()
    assert {first, then} == {"approve db-0", "approve db-1"}


def test_while_a_turn_prepares_again_no_vm_is_asked_to_approve(pair: Pair) -> None:
    """If Azure moves the event and moves it back before the first VM has answered, no VM is asked
    to approve while the VMs prepare again.
    """
    cluster = pair.cluster
    pair.approve()
    pair.tell("updated", soon=_moment(cluster.now + timedelta(minutes=40)))
    cluster.step()
    pair.say(0, "preparing")
    pair.say(1, "preparing")
    pair.tell("updated")
    assert cluster.state(0) == "preparing"
    for _ in range(20):
        cluster.wait(1)
        assert cluster.decide() == []
        cluster.step()
    pair.say(0, "prepared")
    assert cluster.step() == []
    pair.say(1, "prepared")
    assert "approve" in cluster.step()[0]


def test_a_vm_that_loses_its_preparation_while_the_turn_waits_is_asked_again(pair: Pair) -> None:
    """A VM that has recovered because one document did not name it is asked to prepare again."""
    cluster = pair.cluster
    before = seen(cluster, 0).shown.report.fingerprint
    cluster.lose(4)
    pair.say(0, "prepared")
    pair.say(1, "prepared")
    assert cluster.step() == []
    assert cluster.state(0) == "prepared"
    pair.tell("ended", numbers=(0,))
    pair.say(0, "recovered")
    pair.tell("scheduled", numbers=(0,))
    assert seen(cluster, 0).shown.report.fingerprint == before
    cluster.wait(11)
    assert cluster.step() == ["prepare db-0"]
    assert cluster.state(0) == "preparing"


def test_a_turn_lasts_until_no_vm_can_follow_its_commands_any_more(cluster: Cluster) -> None:
    """A turn whose event is missing from a document lasts until its commands have expired: the
    event may come back unchanged before that.
    """
    cluster.announce(0)
    cluster.announce(1)
    assert cluster.step() == ["prepare db-0"]
    cluster.end(0)
    cluster.wait(5)
    assert cluster.step() == []
    assert cluster.state(0) == "away"
    cluster.wait(66)
    assert cluster.step() == ["prepare db-1"]


def ended_by_force(cluster: Cluster) -> None:
    """Let the first VM accept its command, then end its turn as a person; the second VM waits."""
    cluster.announce(0)
    cluster.announce(1)
    cluster.step()
    answer(cluster, "accepted")
    asyncio.run(cluster.decisions.end_turn(ALICE, "E-0", "not now", force=True))


def test_a_vm_that_has_accepted_a_command_counts_after_the_end_of_its_turn(
    cluster: Cluster,
) -> None:
    """A VM that accepted a command counts as away after its turn has ended: it prepares, and its
    records may come later than its receipt.
    """
    ended_by_force(cluster)
    for _ in range(4):
        assert cluster.step() == []
        cluster.wait(71)
    cluster.says(0, "prepared")
    assert cluster.step() == []
    cluster.end(0)
    cluster.says(0, "recovered")
    assert cluster.step() == ["prepare db-1"]


@pytest.mark.parametrize("how", ["an hour", "failed", "a new store"])
def test_a_vm_that_has_accepted_a_command_does_not_count_for_ever(
    cluster: Cluster, how: str
) -> None:
    """A VM that accepted a command stops counting as away if it reports nothing for an hour,
    reports that it does not follow the command, or has lost its store.
    """
    soon = _moment(cluster.now + timedelta(hours=10))
    for number in (0, 1):
        cluster.tell(cluster.vms[number].event(f"E-{number}", now=cluster.now, not_before=soon))
    cluster.step()
    answer(cluster, "accepted")
    asyncio.run(cluster.decisions.end_turn(ALICE, "E-0", "not now", force=True))
    cluster.wait(71)
    assert cluster.step() == []
    if how == "an hour":
        cluster.wait(3600)
    elif how == "failed":
        answer(cluster, "failed", reason="event_changed")
    else:
        new = cluster.vms[0] = FakeVm(name="db-0", stream="another", session="another")
        cluster.tell(new.event("E-0", now=cluster.now, not_before=soon))
    assert cluster.step() == ["prepare db-1"]


def test_who_ends_a_turn_after_its_event_says_that_its_vm_is_back(cluster: Cluster) -> None:
    """If a person ends a turn after its event, a command that its VM had accepted does not hold up
    others for an hour.
    """
    cluster.announce(0)
    cluster.announce(1)
    cluster.step()
    answer(cluster, "accepted")
    cluster.says(0, "prepared")
    assert cluster.step() == ["approve db-0"]
    cluster.end(0)
    cluster.wait(71)
    assert cluster.step() == []
    asyncio.run(cluster.decisions.end_turn(ALICE, "E-0", "it serves", force=True))
    assert cluster.step() == ["prepare db-1"]


@pytest.mark.parametrize("behind", [0, 20])
def test_a_vm_whose_clock_is_behind_is_back_once_it_has_recovered(
    cluster: Cluster, behind: int
) -> None:
    """A VM whose event is cancelled soon after the command is back once it has recovered, although
    its clock is behind: the order of its records counts.
    """
    vm = cluster.vms[0]
    cluster.announce(0)
    cluster.announce(1)
    assert cluster.step() == ["prepare db-0"]
    fingerprint = seen(cluster, 0).shown.report.fingerprint
    data = {"evt": "E-0", "evh": fingerprint, "sink": "drain", "cause": "deadline", "reason": None}
    real = cluster.now
    for second, told in ((1, "accepted"), (3, "prepared"), (3, "confirmed"), (10, "recovered")):
        cluster.now = real + timedelta(seconds=second)
        its = cluster.now - timedelta(seconds=behind)
        if told in ("accepted", "confirmed"):
            asked = [row for row in everything(cluster.database.reading) if row.action == "prepare"]
            about = {"jti": asked[-1].jti, "act": "prepare", "actor": "group:db", "now": its}
            cluster.tell(vm.receipt("E-0", told, **about))
            continue
        if told == "recovered":
            cluster.tell(vm.event("E-0", transition="ended", now=its))
            cluster.step()
        cluster.tell(vm.record(PREPARATION, data | {"state": told}, now=its))
    cluster.wait(60)
    assert "prepare db-1" in cluster.step()


def test_a_clock_that_was_set_back_makes_no_earlier_stay_an_answer(cluster: Cluster) -> None:
    """A recovery from the first stay of the event is no answer to the command of the second stay,
    whose records are still on their way.
    """
    soon = _moment(cluster.now + timedelta(hours=10))
    later = _moment(cluster.now + timedelta(hours=11))
    cluster.tell(cluster.vms[0].event("E-0", now=cluster.now, not_before=soon))
    cluster.step()
    cluster.says(0, "prepared")
    cluster.step()
    cluster.end(0)
    cluster.says(0, "recovered")
    cluster.wait(200)
    cluster.step()
    assert cluster.state(0) == "over"
    cluster.tell(cluster.vms[0].event("E-0", now=cluster.now, not_before=soon))
    cluster.tell(cluster.vms[1].event("E-1", now=cluster.now, not_before=later))
    assert cluster.step() == ["prepare db-0"]
    real, cluster.now = cluster.now, cluster.now - timedelta(minutes=10)
    asked = [row for row in everything(cluster.database.reading) if row.action == "prepare"]
    about = {"jti": asked[-1].jti, "act": "prepare", "actor": "group:db", "now": cluster.now}
    told = cluster.vms[0].receipt("E-0", "accepted", **about)
    cluster.now = real
    cluster.tell(told)
    asyncio.run(cluster.decisions.end_turn(ALICE, "E-0", "not now", force=True))
    cluster.wait(71)
    assert cluster.step() == []


def approved(cluster: Cluster, *said: str, actor: str = "group:db", **more: Any) -> str:
    """Let the first VM prepare, ask it to approve its event, and have it answer; return the jti of
    that. Another `actor` may have approved the event instead.
    """
    cluster.step()
    cluster.says(0, "prepared")
    assert "approve db-0" in cluster.step()
    cluster.deliver()
    (command,) = seen(cluster, 0).decided.commands[-1:]
    jti = command.jti if actor == "group:db" else "another"
    for state in said:
        told = cluster.vms[0].receipt(
            "E-0",
            state,
            jti=jti,
            actor=actor,
            now=cluster.now,
            **(more if state == said[-1] else {}),
        )
        cluster.tell(told)
    cluster.decide()
    return jti


@pytest.mark.parametrize(
    "ended_by", ["confirmed", "a rule", "its start", "imds_unreachable", "its end"]
)
def test_an_event_that_returns_does_not_have_its_former_approval(
    cluster: Cluster, ended_by: str
) -> None:
    """An event that returns is approved anew. If its VM does not answer for some minutes, the next
    event gets its turn first.
    """
    soon = _moment(cluster.now + timedelta(hours=10))
    later = _moment(cluster.now + timedelta(hours=11))
    cluster.tell(cluster.vms[0].event("E-0", now=cluster.now, not_before=soon))
    cluster.wait(1)
    if ended_by == "confirmed":
        approved(cluster, "accepted", "posted", "confirmed")
    elif ended_by == "a rule":
        approved(cluster, "accepted", "posted", "confirmed", actor="rule:patching")
    elif ended_by == "imds_unreachable":
        approved(cluster, "accepted", "failed", reason="imds_unreachable")
    else:
        approved(cluster)
    cluster.wait(1)
    if ended_by != "its end":
        started = cluster.vms[0].event("E-0", transition="started", now=cluster.now)
        cluster.tell(started)
        cluster.wait(75)
        cluster.decide()
    cluster.step()
    cluster.tell(cluster.vms[0].event("E-0", transition="ended", now=cluster.now))
    cluster.wait(75)
    cluster.decide()
    cluster.says(0, "recovered")
    cluster.wait(5)
    cluster.step()
    assert cluster.state(0) == "over"
    cluster.tell(cluster.vms[0].event("E-0", now=cluster.now, not_before=soon))
    cluster.tell(cluster.vms[1].event("E-1", now=cluster.now, not_before=later))
    assert cluster.step() == ["prepare db-0"]
    assert seen(cluster, 0).decided.decision is None
    sent = []
    for _ in range(50):
        cluster.wait(10)
        sent += cluster.decide() + cluster.step()
    assert sent[-1] == "prepare db-1"
    answer(cluster, "failed", number=1, reason="unknown_event")
    cluster.tell(cluster.vms[1].event("E-1", transition="ended", now=cluster.now))
    for _ in range(40):
        cluster.wait(10)
        sent += cluster.decide() + cluster.step()
    assert sent[-1] == "prepare db-0"


def with_new_store(
    cluster: Cluster, soon: str, *states: str, behind: timedelta = timedelta()
) -> None:
    """Let the first VM confirm that it approves its event, and be made again a second later, with
    its clock `behind`. The second one waits.
    """
    cluster.tell(cluster.vms[0].event("E-0", now=cluster.now, not_before=soon))
    later = _moment(cluster.now + timedelta(hours=11))
    cluster.tell(cluster.vms[1].event("E-1", now=cluster.now, not_before=later))
    approved(cluster, "accepted", *states)
    cluster.now += timedelta(seconds=1)
    new = cluster.vms[0] = FakeVm(name="db-0", stream="another", session="another")
    its = cluster.now - behind
    if behind:
        cluster.tell(new.started(now=its))
    cluster.tell(new.event("E-0", now=its, not_before=soon))


def test_what_a_store_accepted_that_is_lost_fails_after_some_time(cluster: Cluster) -> None:
    """An approval that a lost store had accepted fails after some time. Other VMs get their turns
    before Azure starts the event, and the VM is asked again after them.
    """
    with_new_store(cluster, _moment(cluster.now + timedelta(hours=10)))
    sent = []
    for _ in range(14):
        cluster.wait(60)
        sent += cluster.decide() + cluster.step()
    assert (sent, cluster.state(0)) == ([], "approving")
    for _ in range(5):
        cluster.wait(60)
        sent += cluster.decide() + cluster.step()
    assert "prepare db-1" in sent or "prepare db-0" in sent
    assert seen(cluster, 0).decided.decision is not None


@pytest.mark.parametrize("is_ended", [False, True], ids=["", "ended by force"])
def test_a_person_approves_again_what_a_lost_store_had_accepted(
    cluster: Cluster, *, is_ended: bool
) -> None:
    """A person can approve the event again as soon as the approval of the lost store has failed,
    also after the end of the turn.
    """
    with_new_store(cluster, _moment(cluster.now + timedelta(hours=10)))
    cluster.wait(100)
    if is_ended:
        asyncio.run(cluster.decisions.end_turn(ALICE, "E-0", "not now", force=True))
    with pytest.raises(DecisionRefusedError) as refused:
        approve(cluster, 0, force=True)
    assert refused.value.why == "under_way"
    cluster.wait(900)
    cluster.decide()
    cluster.step()
    approve(cluster, 0, force=True)
    assert "force_turn" in cluster.actions()


def test_retention_keeps_what_holds_a_turn(cluster: Cluster) -> None:
    """A VM that has not recovered counts as away however long ago its event was: retention keeps
    the rows.
    """
    cluster.announce(0)
    approved(cluster, "accepted", "posted")
    cluster.tell(cluster.vms[0].event("E-0", transition="ended", now=cluster.now))
    cluster.wait(86_400)
    assert cluster.step() == []
    with cluster.database.writing.begin() as connection:
        delete_before(connection, cluster.now.timestamp() - 3600, 100)
    cluster.announce(1)
    assert cluster.step() == []
    cluster.says(0, "recovered")
    assert cluster.step() == ["prepare db-1"]
    cluster.wait(86_400)
    with cluster.database.writing.begin() as connection:
        delete_before(connection, cluster.now.timestamp() - 3600, 100)
    with cluster.snapshots.open() as snapshot:
        assert snapshot.events.find_event("E-0") is None


def test_a_turn_is_not_tried_again_while_nothing_can_approve_it(database: Database) -> None:
    """If a VM that prepares nothing takes no commands any more, its turn is not tried again, and
    the next event gets its turn.
    """
    cluster = Cluster(database)
    cluster.speak(0, commands=True)
    soon = _moment(cluster.now + timedelta(hours=10))
    cluster.tell(cluster.vms[0].event("E-0", now=cluster.now, not_before=soon))
    cluster.tell(cluster.vms[1].event("E-1", now=cluster.now, not_before=soon))
    assert cluster.step() == ["approve db-0"]
    cluster.deliver()
    sent = []
    for _ in range(40):
        cluster.now += timedelta(seconds=30)
        cluster.speak(0, commands=False)
        cluster.tell(*(vm.heartbeat(now=cluster.now, prepares=True) for vm in cluster.vms[1:]))
        sent += cluster.decide() + cluster.step()
    assert set(sent) == {"prepare db-1"}
    assert cluster.state(0) == "failed"


def test_a_vm_that_begins_again_and_again_holds_its_turn_for_five_minutes(
    database: Database,
) -> None:
    """A VM whose bridge stops and starts again and again, and never answers its command, holds its
    turn for five minutes.
    """
    cluster = Cluster(database)
    soon = _moment(cluster.now + timedelta(hours=10))
    for number in (0, 1):
        vm = cluster.vms[number]
        cluster.tell(vm.event(f"E-{number}", now=cluster.now, not_before=soon))
    sent = set()
    for number in range(20):
        cluster.wait(30)
        if number % 4 == 3:
            cluster.vms[0].session = f"run-{number}"
            cluster.lose(0)
        sent |= set(cluster.step())
    assert "prepare db-1" in sent


def test_what_a_vm_prepared_counts_once_its_scope_is_known(database: Database) -> None:
    """If a bridge learns its subscription after it has prepared, its event is approved, and the
    next one does not wait for a turn of the former scope.
    """
    cluster = Cluster(database)
    vm = cluster.vms[0] = FakeVm(name="db-3", subscription=None, group=None)
    cluster.hear()
    cluster.announce(0)
    cluster.announce(1)
    assert cluster.step() == ["prepare db-3"]
    cluster.says(0, "prepared")
    vm.subscription, vm.group = cluster.vms[1].subscription, cluster.vms[1].group
    cluster.wait(1)
    sent = cluster.step()
    for _ in range(12):
        cluster.wait(10)
        sent += cluster.step()
    assert sent == ["approve db-3"]


def test_what_is_approved_on_a_vm_counts_for_the_others(database: Database) -> None:
    """If somebody on the VM approves an event that the group leaves to people, the next event
    waits, because Azure may start the first one at any time.
    """
    cluster = Cluster(database, approve={"event_type": ["Freeze"]})
    cluster.announce(0)
    for state in ("accepted", "posted"):
        told = cluster.vms[0].receipt("E-0", state, jti="own", actor="local:root", now=cluster.now)
        cluster.tell(told)
    soon = _moment(cluster.now + timedelta(hours=1))
    freeze = cluster.vms[1].event("E-1", event_type="Freeze", now=cluster.now, not_before=soon)
    cluster.tell(freeze)
    assert cluster.step() == []
    cluster.end(0)
    cluster.wait(1)
    assert cluster.step() == ["prepare db-1"]


def test_without_a_key_nothing_that_is_prepared_is_approved(cluster: Cluster) -> None:
    """A console that starts again without its key writes no approval for what is prepared, and says
    why.
    """
    cluster.announce(0)
    cluster.step()
    cluster.says(0, "prepared")
    cluster.settings = replace(cluster.settings, can_sign=False)
    assert cluster.step() == []
    assert "approve" not in cluster.actions()
    cluster.settings = replace(cluster.settings, can_sign=True)
    assert cluster.step() == ["approve db-0"]


def test_a_turn_whose_event_was_posted_lasts_while_its_scope_becomes_known(
    database: Database,
) -> None:
    """A turn lasts if its VM, which prepares nothing, has posted and then learns its scope: Azure
    may start the event at any time.
    """
    cluster = Cluster(database)
    vm = cluster.vms[0] = FakeVm(name="db-3", subscription=None, group=None)
    cluster.speak(0, commands=True)
    soon = _moment(cluster.now + timedelta(hours=1))
    cluster.tell(vm.event("E-0", now=cluster.now, not_before=soon))
    assert cluster.step() == ["approve db-3"]
    cluster.deliver()
    jti = seen(cluster, 0).decided.commands[-1].jti
    for state in ("accepted", "posted"):
        cluster.tell(vm.receipt("E-0", state, jti=jti, actor="group:db", now=cluster.now))
    cluster.tell(cluster.vms[1].event("E-1", now=cluster.now, not_before=soon))
    vm.subscription, vm.group = cluster.vms[1].subscription, cluster.vms[1].group
    sent = []
    for _ in range(6):
        cluster.now += timedelta(seconds=10)
        cluster.speak(0, commands=True)
        sent += cluster.step() + cluster.decide()
    assert sent == []


def test_force_sends_an_approval_as_soon_as_the_one_before_has_ended(cluster: Cluster) -> None:
    """A person's approval by force is sent once the approval before it has ended, even before the
    step that ends the turn.
    """
    cluster.announce(0)
    jti = approved(cluster)
    refused = cluster.vms[0].receipt(
        "E-0", "failed", jti=jti, actor="group:db", reason="imds_refused", now=cluster.now
    )
    cluster.tell(refused)
    cluster.decide()
    assert cluster.state(0) == "approving"
    approve(cluster, 0, force=True)
    cluster.deliver()
    command = seen(cluster, 0).decided.commands[-1]
    assert (command.act, command.jti != jti) == ("approve", True)


@pytest.mark.parametrize("behind", [timedelta(), timedelta(hours=2)], ids=["", "clock behind"])
def test_a_lost_store_may_have_told_azure(cluster: Cluster, behind: timedelta) -> None:
    """A VM that is made again may have told Azure to start its event, so no other VM is asked for
    some minutes, and the former approval is still shown.
    """
    soon = _moment(cluster.now + timedelta(hours=10))
    with_new_store(cluster, soon, "posted", behind=behind)
    for _ in range(14):
        cluster.wait(60)
        assert cluster.decide() + cluster.step() == []
    cluster.tell(cluster.vms[0].event("E-0", transition="started", now=cluster.now))
    for _ in range(10):
        cluster.wait(60)
        assert cluster.decide() + cluster.step() == []
    assert cluster.state(0) == "away"
    decision = seen(cluster, 0).decided.decision
    assert decision is not None
    assert decision.outcome == "confirmed"


def test_a_store_that_is_new_before_the_approval_loses_nothing(cluster: Cluster) -> None:
    """If a VM is made again and prepares again before it accepts the approval, that approval
    counts.
    """
    soon = _moment(cluster.now + timedelta(hours=10))
    cluster.tell(cluster.vms[0].event("E-0", now=cluster.now, not_before=soon))
    cluster.step()
    cluster.wait(5)
    new = cluster.vms[0] = FakeVm(name="db-0", stream="another", session="another")
    cluster.tell(new.event("E-0", now=cluster.now, not_before=soon))
    cluster.wait(130)
    approved(cluster, "accepted")
    for _ in range(20):
        cluster.wait(60)
        assert cluster.decide() + cluster.step() == []
    assert cluster.state(0) == "approving"


def test_a_retired_vm_approves_nothing_any_more(pair: Pair) -> None:
    """If a VM that had accepted is retired, a person may approve the event on another VM."""
    cluster = pair.cluster
    asked = pair.approve()
    number = int(asked[-1])
    (command,) = seen(cluster, 0).decided.commands
    more = {"jti": command.jti, "actor": "group:db", "now": cluster.now}
    cluster.tell(cluster.vms[number].receipt("E-0", "accepted", **more))
    gone = cluster.vms.pop(number)
    with cluster.database.writing.begin() as connection:
        connection.exec_driver_sql(
            f"UPDATE vm SET retired_at = {cluster.now.timestamp() + 1} WHERE name = '{gone.name}'"
        )
    cluster.wait(100)
    with pytest.raises(DecisionRefusedError) as refused:
        approve(cluster, 0, force=True)
    assert refused.value.why == "under_way"
    cluster.wait(900)
    cluster.decide()
    cluster.step()
    approve(cluster, 0, force=True)


def test_a_group_approves_again_what_no_vm_has_followed(cluster: Cluster) -> None:
    """If a VM was cut off for a minute, its group asks it again, after pauses that double."""
    soon = _moment(cluster.now + timedelta(hours=10))
    cluster.tell(cluster.vms[0].event("E-0", now=cluster.now, not_before=soon))
    cluster.step()
    cluster.says(0, "prepared")
    sent = cluster.step()
    cluster.deliver()
    for _ in range(70):
        cluster.wait(10)
        sent += cluster.decide() + cluster.step()
        cluster.deliver()
    assert sent == ["approve db-0"] * 4


def test_a_group_approves_nothing_again_that_a_vm_has_refused(cluster: Cluster) -> None:
    """A group does not ask again after a VM has refused, because another command would be refused
    too.
    """
    cluster.announce(0)
    cluster.step()
    cluster.says(0, "prepared")
    cluster.step()
    cluster.deliver()
    (command,) = seen(cluster, 0).decided.commands
    more = {"jti": command.jti, "actor": "group:db", "now": cluster.now}
    cluster.tell(cluster.vms[0].receipt("E-0", "rejected", reason="unknown_key", **more))
    for _ in range(20):
        cluster.wait(20)
        assert cluster.decide() + cluster.step() == []
    assert cluster.state(0) == "failed"


def test_a_turn_goes_on_in_the_next_window(database: Database) -> None:
    """If the window closes while the VM prepares, the turn continues in the next one, as Azure has
    given three days.
    """
    window = {"days": ["Sun", "Mon"], "from": "12:00", "to": "12:30", "zone": "UTC"}
    cluster = Cluster(database, window=[window])
    soon = _moment(cluster.now + timedelta(days=3))
    cluster.tell(cluster.vms[0].event("E-0", now=cluster.now, not_before=soon))
    assert cluster.step() == ["prepare db-0"]
    cluster.wait(2400)
    cluster.says(0, "prepared")
    assert cluster.step() == []
    assert cluster.state(0) == "failed"
    cluster.now = START + timedelta(days=1)
    cluster.wait(1)
    assert cluster.step() == ["approve db-0"]
    cluster.decisions.stop()


def test_a_turn_that_cannot_be_approved_says_why(cluster: Cluster) -> None:
    """A turn that is not approved because a person on the VM is approving the event, without
    progress, says so.
    """
    cluster.announce(0)
    cluster.step()
    more = {"jti": "local-1", "actor": "local:root", "now": cluster.now}
    cluster.tell(cluster.vms[0].receipt("E-0", "accepted", **more))
    cluster.says(0, "prepared")
    assert cluster.step() == []
    turn = seen(cluster, 0).turn
    assert turn is not None
    assert (turn.state, turn.reason) == (
        "prepared",
        "the event is being approved already; nothing more was sent",
    )


def test_the_end_of_a_turn_ends_its_approval(pair: Pair) -> None:
    """If a turn ends before the first VM has answered, because the console could not hear it, the
    second VM is not asked.
    """
    cluster = pair.cluster
    pair.approve()
    cluster.wait(90)
    asyncio.run(cluster.decisions.end_turn(ALICE, "E-0", "not today", force=True))
    decision = seen(cluster, 0).decided.decision
    assert decision is not None
    assert decision.state == "over"
    cluster.wait(5)
    assert cluster.decide() == []
    assert cluster.step() == []


def test_no_vm_is_asked_to_approve_an_event_that_holds_no_turn_any_more(database: Database) -> None:
    """If the event was over and came back unchanged while the console could not hear, no VM is
    asked to approve it without a turn.
    """
    pair = Pair(database)
    cluster = pair.cluster
    pair.approve()
    cluster.wait(90)
    pair.tell("ended")
    for number in (0, 1):
        pair.say(number, "recovered")
    cluster.wait(1)
    cluster.step()
    assert cluster.state(0) == "over"
    by_people = GroupSettings.model_validate({"name": "db", "at_most": 2})
    cluster.settings = replace(cluster.settings, grouping=Grouping([by_people]))
    pair.tell("scheduled")
    cluster.step()
    assert cluster.state(0) == "waiting"
    assert cluster.decide() == []


def test_what_a_vm_says_of_an_earlier_stay_of_the_event_answers_no_command(
    cluster: Cluster,
) -> None:
    """A recovery from the first stay of the event does not answer the command of the second one,
    even if the event is missing at that moment.
    """
    soon = _moment(cluster.now + timedelta(minutes=15))
    cluster.announce(0)
    cluster.announce(1)
    cluster.step()
    answer(cluster, "accepted")
    answer(cluster, "confirmed")
    cluster.says(0, "prepared")
    cluster.lose(2)
    cluster.wait(11)
    cluster.lose(2)
    cluster.tell(cluster.vms[0].event("E-0", transition="ended", now=cluster.now))
    cluster.step()
    cluster.tell(cluster.vms[0].event("E-0", now=cluster.now, not_before=soon))
    cluster.wait(1)
    assert cluster.step() == ["prepare db-0"]
    cluster.wait(1)
    cluster.says(0, "recovered")
    cluster.tell(cluster.vms[0].event("E-0", transition="ended", now=cluster.now))
    cluster.wait(1)
    assert cluster.step() == []
    assert cluster.state(0) == "away"
    cluster.wait(71)
    assert cluster.step() == ["prepare db-1"]


@pytest.mark.parametrize("is_ended", [False, True], ids=["over", "ended by a person"])
def test_that_a_copy_was_refused_is_no_answer(cluster: Cluster, *, is_ended: bool) -> None:
    """If a VM has accepted the command, the rejection of a copy does not end the wait for its
    report.
    """
    cluster.announce(0)
    cluster.announce(1)
    cluster.step()
    answer(cluster, "accepted")
    answer(cluster, "rejected", reason="replayed")
    if is_ended:
        asyncio.run(cluster.decisions.end_turn(ALICE, "E-0", "not now", force=True))
    else:
        cluster.end(0)
        cluster.wait(71)
    assert cluster.step() == []


def test_a_command_that_was_fetched_counts_although_it_is_offered_again(cluster: Cluster) -> None:
    """A command that a VM has fetched over HTTPS counts, also after the end of the turn, because
    the VM may follow it.
    """
    cluster.poll()
    cluster.announce(0)
    cluster.announce(1)
    assert cluster.step() == ["prepare db-0"]
    with cluster.database.writing.begin() as connection:
        connection.exec_driver_sql(f"UPDATE command SET sent_at = {cluster.now.timestamp()}")
    cluster.now += timedelta(seconds=11)
    cluster.poll()
    assert cluster.step() == ["prepare db-0"]
    asyncio.run(cluster.decisions.end_turn(ALICE, "E-0", "not now", force=True))
    assert cluster.step() == []
    cluster.now += timedelta(seconds=71)
    cluster.poll()
    assert cluster.step() == ["prepare db-1"]


def test_one_of_two_persons_approves_nothing_once_the_others_approval_is_over(
    database: Database,
) -> None:
    """If a change of the event ended the first person's approval, the second person's alone
    approves nothing, even if no console looked at turns meanwhile.
    """
    cluster = Cluster(database, approve=None)
    cluster.decisions = cluster.decisions_of(cluster.settings.grouping, four_eyes=1)
    cluster.settings = replace(cluster.settings, four_eyes=1)
    first = _moment(cluster.now + timedelta(minutes=15))
    cluster.announce(0)
    approve(cluster, 0)
    approve(cluster, 0, person=BOB)
    assert cluster.step() == ["prepare db-0"]
    change(cluster, 0)
    cluster.decide()
    change(cluster, 0, not_before=first)
    cluster.says(0, "prepared")
    assert cluster.step() == []
    turn = seen(cluster, 0).turn
    assert turn is not None
    assert (turn.state, turn.reason) == (
        "failed",
        "two persons approve an event of so many VMs",
    )
    approve(cluster, 0)
    approve(cluster, 0, person=BOB)
    decision = seen(cluster, 0).decided.decision
    assert decision is not None
    assert (decision.actor, decision.second_actor) == ("alice", "bob")
    cluster.decisions.stop()


@pytest.mark.parametrize("is_late", [False, True], ids=["clock behind", "old record late"])
def test_a_vm_with_a_new_store_has_prepared_nothing(pair: Pair, *, is_late: bool) -> None:
    """What a VM had prepared does not count after it got a new store, whatever its clock says, and
    even if a record of the old store comes in later.
    """
    cluster = pair.cluster
    old = cluster.vms[1]
    cluster.lose(4)
    pair.say(0, "prepared")
    pair.say(1, "preparing" if is_late else "prepared")
    fingerprint = seen(cluster, 0).shown.report.fingerprint
    data = {"evt": "E-0", "evh": fingerprint, "sink": "drain", "cause": "deadline", "reason": None}
    late = old.record(PREPARATION, data | {"state": "prepared"}, now=cluster.now)
    cluster.now += timedelta(seconds=11)
    behind = cluster.now - timedelta(seconds=0 if is_late else 180)
    new = cluster.vms[1] = FakeVm(name="db-1", stream="another")
    event = new.event("E-0", resources=["db-0", "db-1"], not_before=pair.soon, now=behind)
    cluster.tell(new.started(now=behind), event, new.heartbeat(now=behind, prepares=True))
    if is_late:
        cluster.tell(late)
    cluster.step()
    cluster.hear()
    assert cluster.step() == ["prepare db-1"]
    assert cluster.state(0) == "preparing"


def test_the_silence_of_a_vm_does_not_say_that_it_prepares_nothing(database: Database) -> None:
    """A VM that has not said whether it prepares is waited for, also once it is silent."""
    cluster = Cluster(database, at_most=2)
    soon = _moment(cluster.now + timedelta(minutes=30))
    told = {"not_before": soon, "now": cluster.now}
    fresh = FakeVm(name="db-9")
    cluster.tell(cluster.vms[0].event("E-0", **told))
    assert cluster.step() == ["prepare db-0"]
    cluster.now += timedelta(seconds=5)
    told = {"not_before": soon, "now": cluster.now, "resources": ["db-0", "db-9"]}
    changed = cluster.vms[0].event("E-0", transition="updated", **told)
    cluster.tell(changed, fresh.event("E-0", **told))
    cluster.step()
    cluster.says(0, "prepared")
    for _ in range(6):
        cluster.wait(40)
        assert cluster.step() == []
    turn = seen(cluster, 0).turn
    assert turn is not None
    assert turn.reason == "db-9 has not said yet whether it prepares"
    cluster.decisions.stop()


def damaged(cluster: Cluster, number: int) -> None:
    """Damage the store of a VM: its bridge begins a new one, and records that."""
    old = cluster.vms[number]
    new = FakeVm(name=old.name, vm_id=old.vm_id, stream="another", session="another")
    cluster.vms[number] = new
    cluster.tell(new.store_reset(now=cluster.now), new.heartbeat(now=cluster.now, prepares=True))


@pytest.mark.parametrize("is_told", [True, False], ids=["is told of its end", "is told nothing"])
def test_a_vm_whose_store_was_damaged_keeps_its_turn(cluster: Cluster, *, is_told: bool) -> None:
    """A VM whose bridge lost its store while it was away holds its turn until its program has
    recovered; if it is never told of the end, until a person ends the turn.
    """
    cluster.announce(0)
    later = _moment(cluster.now + timedelta(hours=10))
    cluster.tell(cluster.vms[1].event("E-1", now=cluster.now, not_before=later))
    cluster.step()
    answer(cluster, "accepted")
    cluster.says(0, "prepared")
    assert cluster.step() == ["approve db-0"]
    cluster.tell(cluster.vms[0].event("E-0", transition="started", now=cluster.now))
    cluster.step()
    cluster.now += timedelta(seconds=30)
    damaged(cluster, 0)
    if is_told:
        cluster.tell(cluster.vms[0].event("E-0", transition="started", now=cluster.now))
        cluster.wait(5)
    cluster.tell(cluster.vms[0].event("E-0", transition="ended", now=cluster.now))
    cluster.wait(60)
    assert cluster.step() == []
    assert cluster.state(0) == "away"
    if is_told:
        cluster.says(0, "recovered")
    else:
        cluster.wait(3600)
        cluster.step()
        assert cluster.state(0) == "stuck"
        asyncio.run(cluster.decisions.end_turn(ALICE, "E-0", "it is back"))
    assert cluster.step() == ["prepare db-1"]


def test_a_vm_whose_store_was_damaged_prepares_again(cluster: Cluster) -> None:
    """A prepared VM whose bridge loses its store is asked to prepare again before its event is
    approved. Meanwhile it counts as away, also without a turn.
    """
    cluster.announce(0)
    cluster.announce(1)
    cluster.step()
    answer(cluster, "accepted")
    cluster.now += timedelta(seconds=1)
    cluster.says(0, "prepared")
    cluster.lose(2)
    cluster.step()
    assert cluster.state(0) == "prepared"
    cluster.now += timedelta(seconds=30)
    damaged(cluster, 0)
    soon = _moment(START + timedelta(minutes=15))
    cluster.tell(cluster.vms[0].event("E-0", now=cluster.now, not_before=soon))
    cluster.step()
    assert cluster.state(0) == "preparing"
    asyncio.run(cluster.decisions.end_turn(ALICE, "E-0", "not now", force=True))
    cluster.wait(120)
    assert cluster.step() == []
    assert cluster.state(1) == "waiting"


def test_a_vm_whose_store_was_damaged_while_it_prepared_is_asked_again(cluster: Cluster) -> None:
    """A VM whose bridge loses its store while it prepares may have lost the command: it gets
    another one.
    """
    cluster.announce(0)
    cluster.step()
    answer(cluster, "accepted")
    cluster.says(0, "preparing")
    cluster.now += timedelta(seconds=1)
    damaged(cluster, 0)
    sent = []
    for _ in range(3):
        cluster.wait(50)
        sent += cluster.step()
    assert sent == ["prepare db-0"]


def test_a_vm_that_prepares_is_away_before_its_first_heartbeat(cluster: Cluster) -> None:
    """A VM that prepares at its own deadline counts as away for a new console even before its first
    heartbeat.
    """
    fresh = FakeVm(name="db-9")
    soon = _moment(cluster.now + timedelta(minutes=1))
    cluster.tell(fresh.event("E-9", now=cluster.now, not_before=soon))
    fingerprint = seen(cluster, 9).shown.report.fingerprint
    data = {"evt": "E-9", "evh": fingerprint, "sink": "drain", "cause": "deadline", "reason": None}
    cluster.tell(fresh.record(PREPARATION, data | {"state": "prepared"}, now=cluster.now))
    cluster.announce(1)
    assert cluster.step() == []


def test_the_group_does_not_wait_for_a_vm_that_was_retired(cluster: Cluster) -> None:
    """If a VM that crashed while it held its turn is retired, the group does not wait for it."""
    soon = _moment(cluster.now + timedelta(hours=10))
    for vm in cluster.vms[:2]:
        told = vm.event("E-0", now=cluster.now, not_before=soon, resources=["db-0"])
        cluster.tell(told)
    assert cluster.step() == ["prepare db-0"]
    cluster.says(0, "preparing")
    with cluster.database.writing.begin() as connection:
        connection.exec_driver_sql(
            f"UPDATE vm SET retired_at = {cluster.now.timestamp()} WHERE name = 'db-0'"
        )
    cluster.announce(1)
    assert cluster.step() == ["prepare db-1"]


def test_what_is_prepared_already_does_not_wait_for_each_other(database: Database) -> None:
    """If the settings allow fewer VMs than have turns, those that are prepared go one after the
    other.
    """
    pair = Cluster(database, at_most=2)
    pair.announce(0)
    pair.announce(1)
    assert sorted(pair.step()) == ["prepare db-0", "prepare db-1"]
    lower(pair, 1)
    pair.says(0, "prepared")
    pair.says(1, "prepared")
    pair.lose(2)
    assert pair.step() == []  # a crash delays all the same
    pair.wait(1)
    assert pair.step() == ["approve db-0"]
    pair.end(0)
    pair.says(0, "recovered")
    pair.wait(71)
    assert pair.step() == ["approve db-1"]
    pair.decisions.stop()


def told_by(cluster: Cluster, reporters: tuple[int, ...], transition: str) -> None:
    """Have VMs report the event of the first one."""
    for number in reporters:
        vm = cluster.vms[number]
        soon = _moment(cluster.now + timedelta(minutes=30))
        more = {"resources": ["db-0"], "not_before": soon, "now": cluster.now}
        cluster.tell(vm.event("E-0", transition=transition, **more))


def away_again(database: Database, *, rest: float) -> Cluster:
    """Let the event of the first VM be approved and begin, then be missing from one document; the
    VM has recovered and rests.
    """
    cluster = Cluster(database, rest=rest)
    told_by(cluster, (0, 2), "scheduled")
    cluster.step()
    answer(cluster, "confirmed")
    cluster.says(0, "prepared")
    assert cluster.step() == ["approve db-0"]
    for each in seen(cluster, 0).decided.commands:
        more = {"jti": each.jti, "actor": each.subject, "now": cluster.now}
        cluster.tell(cluster.vms[0].receipt("E-0", "confirmed", **more))
    told_by(cluster, (0, 2), "started")
    cluster.step()
    cluster.wait(1)
    told_by(cluster, (0, 2), "ended")
    cluster.says(0, "recovered")
    cluster.step()
    assert cluster.state(0) == "away"
    told_by(cluster, (0, 2), "started")
    cluster.step()
    return cluster


def test_a_peer_ends_no_turn_of_an_event_that_was_missing_for_a_moment(database: Database) -> None:
    """A VM that was heard after its event was missing for a moment is not back when a peer reports
    the real end.
    """
    cluster = away_again(database, rest=60)
    cluster.announce(1)
    for _ in range(11):
        cluster.now += timedelta(seconds=10)
        cluster.tell(*(vm.heartbeat(now=cluster.now, prepares=True) for vm in cluster.vms[1:]))
        cluster.settle()
        assert cluster.step() == []
    told_by(cluster, (2,), "ended")
    cluster.settle()
    assert seen(cluster, 0).event.state == "ended"
    assert cluster.step() == []
    assert cluster.state(0) == "away"
    cluster.decisions.stop()


def test_a_vm_rests_after_the_end_of_an_event_that_was_missing_for_a_moment(
    database: Database,
) -> None:
    """A VM rests after the real end of its event; its rest after the moment in which the event was
    missing does not count.
    """
    cluster = away_again(database, rest=300)
    cluster.wait(400)
    told_by(cluster, (0, 2), "ended")
    cluster.step()
    assert cluster.state(0) == "away"
    cluster.wait(290)
    cluster.step()
    assert cluster.state(0) == "away"
    cluster.wait(20)
    cluster.step()
    assert cluster.state(0) == "over"
    cluster.decisions.stop()


def test_a_vm_that_a_changed_event_left_out_is_prepared_again(pair: Pair) -> None:
    """A VM that a changed event left out, and names again before the VM has reported that it
    recovered, prepares again.
    """
    before = seen(pair.cluster, 0).shown.report.fingerprint
    pair.say(0, "prepared")
    pair.tell("updated", named=("db-1",))
    pair.tell("updated")
    assert seen(pair.cluster, 0).shown.report.fingerprint == before
    pair.say(1, "prepared")
    assert pair.cluster.step() == []
    assert pair.cluster.state(0) == "preparing"
    pair.say(0, "recovered")
    pair.say(0, "prepared")
    assert "approve" in pair.cluster.step()[0]


def test_a_vm_whose_store_was_put_back_is_away_until_it_has_recovered(cluster: Cluster) -> None:
    """A VM whose store was put back counts as away until it recovers, although its reports have
    sequences that were used before.
    """
    copy = replace(cluster.vms[0], revisions=dict(cluster.vms[0].revisions))
    for _ in range(20):
        cluster.tell(cluster.vms[0].heartbeat(now=cluster.now, prepares=True))
    cluster.announce(0)
    cluster.announce(1)
    cluster.step()
    answer(cluster, "confirmed")
    cluster.says(0, "prepared")
    assert cluster.step() == ["approve db-0"]
    cluster.vms[0] = copy
    cluster.now += timedelta(seconds=5)
    cluster.end(0)
    cluster.now += timedelta(seconds=5)
    cluster.step()
    assert cluster.state(0) == "away"
    cluster.says(0, "recovered")
    assert "prepare db-1" in cluster.step()
    assert cluster.state(0) == "over"


def test_a_preparation_that_a_change_ended_is_no_failure(cluster: Cluster) -> None:
    """A preparation that a change of the event ended is no failure once the event is back in the
    former state.
    """
    cluster.announce(0)
    cluster.step()
    cluster.says(0, "preparing")
    before = seen(cluster, 0).shown.report
    change(cluster, 0)
    data = {"evt": "E-0", "evh": before.fingerprint, "sink": "drain", "cause": "deadline"}
    more = {"reason": "event_changed", "state": "failed"}
    cluster.tell(cluster.vms[0].record(PREPARATION, data | more, now=cluster.now))
    cluster.step()
    at = before.event.not_before
    assert at is not None
    change(cluster, 0, not_before=_moment(at))
    assert seen(cluster, 0).shown.report.fingerprint == before.fingerprint
    cluster.wait(11)
    assert cluster.step() == ["prepare db-0"]
    assert cluster.state(0) == "preparing"


def test_a_vm_that_confirms_that_it_is_prepared_is_away(cluster: Cluster) -> None:
    """A VM that confirms by a receipt that it is prepared counts as away even if its records do not
    come in.
    """
    cluster.announce(0)
    cluster.announce(1)
    cluster.step()
    answer(cluster, "accepted")
    answer(cluster, "confirmed")
    for _ in range(12):
        cluster.wait(50)
        cluster.step()
        assert cluster.state(1) == "waiting"


def test_a_command_that_is_followed_in_its_last_second_counts_until_the_first_word(
    cluster: Cluster,
) -> None:
    """A command that a VM follows in its last second counts until the VM's first report, even if a
    person has ended the turn before.
    """
    cluster.announce(0)
    cluster.announce(1)
    cluster.step()
    asyncio.run(cluster.decisions.end_turn(ALICE, "E-0", "not now", force=True))
    cluster.wait(59)
    answer(cluster, "accepted")
    cluster.now += timedelta(seconds=5)
    assert cluster.step() == []
    cluster.says(0, "preparing")
    cluster.wait(20)
    assert cluster.step() == []
    assert cluster.state(1) == "waiting"


def lower(cluster: Cluster, at_most: int) -> None:
    """Return a console whose settings allow fewer VMs to be away."""
    rule = GroupSettings.model_validate({"name": "db", "approve": {}, "at_most": at_most})
    cluster.settings = replace(cluster.settings, grouping=Grouping([rule]))


def test_a_turn_that_has_not_begun_gives_way_in_a_group_that_became_too_small(
    database: Database,
) -> None:
    """In a group that became too small, a VM whose command never came is asked only after the VM
    that is prepared.
    """
    cluster = Cluster(database, at_most=2)
    cluster.announce(0)
    cluster.announce(1)
    assert sorted(cluster.step()) == ["prepare db-0", "prepare db-1"]
    lower(cluster, 1)
    cluster.says(0, "prepared")
    cluster.wait(60)
    assert cluster.step() == []
    cluster.wait(70)
    assert cluster.step() == ["approve db-0"]
    cluster.end(0)
    cluster.says(0, "recovered")
    cluster.wait(71)
    assert cluster.step() == ["prepare db-1"]
    cluster.says(1, "prepared")
    assert cluster.step() == ["approve db-1"]
    cluster.decisions.stop()


def test_turns_that_have_not_begun_do_not_wait_for_each_other(database: Database) -> None:
    """If neither of two commands came and the group became too small, the first turn continues."""
    cluster = Cluster(database, at_most=2)
    cluster.announce(0)
    cluster.announce(1)
    assert sorted(cluster.step()) == ["prepare db-0", "prepare db-1"]
    lower(cluster, 1)
    cluster.wait(60)
    assert cluster.step() == []
    cluster.wait(70)
    assert cluster.step() == ["prepare db-0"]
    assert cluster.step() == []
    assert (cluster.state(0), cluster.state(1)) == ("preparing", "preparing")
    cluster.decisions.stop()


@pytest.mark.parametrize("reason", ["unknown_event", "event_changed", "expired"])
def test_a_command_that_was_refused_may_come_again_and_be_followed(
    cluster: Cluster, reason: str
) -> None:
    """If a document left the event out when the first copy of a command came, a second copy may be
    followed while it is valid.
    """
    cluster.announce(0)
    cluster.announce(1)
    assert cluster.step() == ["prepare db-0"]
    cluster.wait(11)
    assert cluster.step() == ["prepare db-0"]
    answer(cluster, "rejected", reason=reason)
    cluster.end(0)
    for _ in range(5):
        cluster.wait(10)
        assert cluster.step() == []
    cluster.wait(22)
    assert cluster.step() == ["prepare db-1"]


def test_a_vm_that_azure_took_is_away_though_a_peer_reports_the_end(cluster: Cluster) -> None:
    """A late VM counts as away for its event although a peer reports the end, because it is not
    known whether the VM is back.
    """
    told_by(cluster, (0, 2), "scheduled")
    told_by(cluster, (0, 2), "started")
    cluster.announce(1)
    for _ in range(11):
        cluster.now += timedelta(seconds=10)
        cluster.tell(*(vm.heartbeat(now=cluster.now, prepares=True) for vm in cluster.vms[1:]))
        cluster.settle()
        assert cluster.step() == []
    told_by(cluster, (2,), "ended")
    cluster.settle()
    assert seen(cluster, 0).event.state == "ended"
    assert cluster.step() == []
    told_by(cluster, (0,), "ended")
    assert cluster.step() == ["prepare db-1"]


def hear_of(cluster: Cluster, numbers: range, *, prepares: bool) -> None:
    """Hear these VMs now; each says whether it prepares."""
    at = cluster.now.timestamp()
    vms = [cluster.vms[number] for number in numbers]
    statuses = [
        vm.status(commands=True, prepares=prepares, time=_moment(cluster.now)) for vm in vms
    ]
    more = {"source": "broker", "received_at": at, "site": "default"}
    cluster.store(
        [
            parse_status(status, vm_id=vm.vm_id, **more)
            for vm, status in zip(vms, statuses, strict=True)
        ]
    )
    cluster.tell(*(vm.heartbeat(now=cluster.now, prepares=prepares) for vm in vms))


@pytest.mark.parametrize(
    ("state", "reason", "is_held"),
    [
        ("accepted", None, True),
        ("posted", None, True),
        ("confirmed", None, True),
        ("failed", "imds_unreachable", True),
        ("failed", "expired", False),
    ],
)
def test_a_vm_that_may_have_posted_by_a_rule_holds_its_turn(
    database: Database, state: str, reason: str | None, *, is_held: bool
) -> None:
    """A VM that may have posted by its rule holds its turn: Azure may start the event, which also
    names a VM that does not answer, at any time.
    """
    cluster = Cluster(database, at_most=2)
    cluster.vms.append(FakeVm(name="db-3"))
    hear_of(cluster, range(3), prepares=False)
    hear_of(cluster, range(3, 4), prepares=True)
    soon = cluster.now + timedelta(hours=1)
    for number in (0, 3):
        more = {"resources": ("db-0", "db-3"), "not_before": _moment(soon), "now": cluster.now}
        cluster.tell(cluster.vms[number].event("E-0", **more))
    later = _moment(soon + timedelta(minutes=5))
    cluster.tell(cluster.vms[1].event("E-1", not_before=later, now=cluster.now))
    assert cluster.step() == ["prepare db-3"]
    by_a_rule = {"jti": "by-a-rule", "actor": "rule:patching", "now": cluster.now}
    for each, why in dict.fromkeys([("accepted", None), (state, reason)]):
        cluster.tell(cluster.vms[0].receipt("E-0", each, reason=why, **by_a_rule))
    sent = []
    for _ in range(7):
        cluster.now += timedelta(seconds=60)
        hear_of(cluster, range(3), prepares=False)
        hear_of(cluster, range(3, 4), prepares=True)
        sent += cluster.decide() + cluster.step()
    assert cluster.state(0) == "failed"
    assert ("approve db-1" not in sent) == is_held
    cluster.decisions.stop()


def test_a_vm_that_has_prepared_a_thousand_times_is_away_as_any_other(cluster: Cluster) -> None:
    """A VM that has prepared and recovered a thousand times counts as away when it prepares again:
    its oldest preparations make room.
    """
    told = {"evh": "sha256:" + "0" * 64, "sink": "drain", "cause": "deadline", "reason": None}
    vm = cluster.vms[0]
    for before in range(0, MAX_PREPARATIONS, 250):
        several = [{**told, "evt": f"X-{before + n}", "state": "recovered"} for n in range(250)]
        cluster.tell(*(vm.record(PREPARATION, data, now=cluster.now) for data in several))
    cluster.announce(0)
    cluster.announce(1)
    assert cluster.step() == ["prepare db-0"]
    cluster.says(0, "preparing")
    cluster.says(0, "prepared")
    answer(cluster, "confirmed")
    assert cluster.step() == ["approve db-0"]
    with cluster.database.reading.connect() as connection:
        kept = connection.exec_driver_sql("SELECT event_id FROM preparation").scalars().all()
    assert len(kept) == MAX_PREPARATIONS
    assert "E-0" in kept
    assert "X-0" not in kept


def pass_seconds(cluster: Cluster, seconds: range, *, gone: frozenset[int] = frozenset()) -> None:
    """Let each second pass; each VM that is not gone has a heartbeat every 60 s, at its
    own time.
    """
    for second in seconds:
        cluster.now += timedelta(seconds=1)
        beating = [
            vm
            for number, vm in enumerate(cluster.vms)
            if (20 * number) % 60 == second % 60 and number not in gone
        ]
        if beating:
            cluster.tell(*(vm.heartbeat(now=cluster.now, prepares=True) for vm in beating))


@pytest.mark.parametrize("person", [False, True])
def test_a_short_silent_time_stops_no_turn(database: Database, *, person: bool) -> None:
    """Turns continue although half of the silent time is shorter than the time between two
    heartbeats.
    """
    keys = {"approve": None} if person else {}
    cluster = Cluster(database, silent_time=SilentTime(seconds=90), **keys)
    pass_seconds(cluster, range(59))
    cluster.announce(1)
    if person:
        approve(cluster, 1)
    assert cluster.step() == ["prepare db-1"]
    cluster.decisions.stop()


def test_a_short_silent_time_frees_no_vm_whose_end_a_peer_has_reported(database: Database) -> None:
    """With a short silent time too, a VM that Azure took without a turn counts as away until it is
    heard.
    """
    cluster = Cluster(database, silent_time=SilentTime(seconds=90))
    pass_seconds(cluster, range(1, 61))
    told_by(cluster, (0, 2), "started")
    cluster.announce(1)
    sent = []
    for begin in range(60, 200, 10):
        pass_seconds(cluster, range(begin, begin + 10), gone=frozenset({0}))
        if begin == 100:
            told_by(cluster, (2,), "ended")
        cluster.settle()
        sent += cluster.step()
        is_over = seen(cluster, 0).event.state == "ended"
        assert is_over == (begin >= 100)
    assert sent == []
    told_by(cluster, (0,), "ended")
    assert cluster.step() == ["prepare db-1"]
    cluster.decisions.stop()


def both_drained(cluster: Cluster) -> None:
    """Give two VMs their turns, let them begin to prepare, and have Azure change both events."""
    cluster.announce(0)
    cluster.announce(1)
    assert sorted(cluster.step()) == ["prepare db-0", "prepare db-1"]
    for number in (0, 1):
        cluster.says(number, "preparing")
    cluster.wait(5)


def end_drained(cluster: Cluster, number: int, **more: Any) -> None:
    """Have Azure change an event while its VM prepares for it, which makes that preparation
    useless.
    """
    before = seen(cluster, number).shown.report.fingerprint
    change(cluster, number, **more)
    data = {"evt": f"E-{number}", "evh": before, "sink": "drain", "cause": "deadline"}
    more = {"reason": "event_changed", "state": "failed"}
    cluster.tell(cluster.vms[number].record(PREPARATION, data | more, now=cluster.now))


def test_turns_whose_vms_are_drained_do_not_wait_for_each_other(database: Database) -> None:
    """In a group that became too small for two turns, both of which prepare again, one goes after
    the other.
    """
    cluster = Cluster(database, at_most=2)
    both_drained(cluster)
    lower(cluster, 1)
    for number in (0, 1):
        end_drained(cluster, number)
    assert cluster.step() == ["prepare db-0"]
    cluster.says(0, "prepared")
    answer(cluster, "confirmed")
    assert cluster.step() == ["approve db-0"]
    cluster.end(0)
    cluster.wait(1)
    assert cluster.step() == []
    cluster.says(0, "recovered")
    cluster.wait(71)
    assert cluster.step() == ["prepare db-1"]
    cluster.says(1, "prepared")
    answer(cluster, "confirmed")
    assert cluster.step() == ["approve db-1"]
    cluster.decisions.stop()


def test_a_drained_turn_that_got_no_answer_is_tried_again(database: Database) -> None:
    """In a group that became too small for two turns, a turn is tried again if its commands did not
    come.
    """
    cluster = Cluster(database, at_most=2)
    both_drained(cluster)
    lower(cluster, 1)
    for number in (0, 1):
        end_drained(cluster, number, not_before=_moment(START + timedelta(hours=5)))
    sent = []
    for _ in range(7):
        cluster.wait(50)
        sent += cluster.step()
    assert cluster.state(0) == "failed"
    assert set(sent) == {"prepare db-0"}
    for _ in range(7):
        cluster.wait(50)
        sent = cluster.step()
    assert sent == ["prepare db-0"]
    cluster.decisions.stop()


def test_drained_turns_that_need_more_room_than_there_is_wait_for_people(
    database: Database,
) -> None:
    """If Azure changes both events to name one VM more, nothing more is sent away: a VM that has
    prepared does not come back before its event is over. A person can go beyond the budget.
    """
    cluster = Cluster(database, at_most=2)
    cluster.vms += [FakeVm(name=f"db-{number}") for number in (3, 4)]
    cluster.hear()
    both_drained(cluster)
    for number in (0, 1):
        names = [f"db-{number}", f"db-{number + 3}"]
        end_drained(
            cluster, number, resources=names, not_before=_moment(START + timedelta(hours=5))
        )
        other = cluster.vms[number + 3]
        soon = _moment(START + timedelta(hours=5))
        more = {"resources": names, "not_before": soon, "now": cluster.now}
        cluster.tell(other.event(f"E-{number}", **more))
    for _ in range(10):
        cluster.wait(50)
        assert cluster.step() == []
    approve(cluster, 0, force=True)
    assert sorted(cluster.step()) == ["prepare db-0", "prepare db-3"]
    cluster.decisions.stop()


@pytest.mark.parametrize("actor", ["group:db", "rule:patching"])
@pytest.mark.parametrize("ended", ["Unknown", "Canceled", "Completed", "Started"])
def test_what_azure_was_just_told_to_start_may_be_left_out_of_one_document(
    cluster: Cluster, ended: str, actor: str
) -> None:
    """If one document leaves out an event that Azure was just told to start, its turn lasts for ten
    more seconds, unless the event was seen to start.
    """
    soon = _moment(cluster.now + timedelta(minutes=15))
    hear_of(cluster, range(3), prepares=False)
    cluster.announce(0)
    cluster.announce(1)
    assert cluster.step() == ["approve db-0"]
    cluster.deliver()
    (command,) = seen(cluster, 0).decided.commands
    jti = command.jti if actor == "group:db" else "by-a-rule"
    for state in ("accepted", "posted"):
        told = cluster.vms[0].receipt("E-0", state, jti=jti, actor=actor, now=cluster.now)
        cluster.tell(told)
    if actor != "group:db":
        told = cluster.vms[0].receipt(
            "E-0", "failed", jti=command.jti, actor="group:db", now=cluster.now, reason="decided"
        )
        cluster.tell(told)
    cluster.decide()
    cluster.now += timedelta(seconds=1)
    if ended == "Started":
        started = cluster.vms[0].event("E-0", transition="started", now=cluster.now)
        cluster.tell(started)
        cluster.step()
    status = "Unknown" if ended == "Started" else ended
    over = cluster.vms[0].event("E-0", transition="ended", status=status, now=cluster.now)
    cluster.tell(over)
    hear_of(cluster, range(3), prepares=False)
    is_held = ended in ("Unknown", "Canceled")
    sent = cluster.decide() + cluster.step()
    assert sent == ([] if is_held else ["approve db-1"])
    if not is_held:
        return
    cluster.now += timedelta(seconds=5)
    hear_of(cluster, range(3), prepares=False)
    assert cluster.decide() + cluster.step() == []
    if ended == "Canceled":
        more = {"transition": "started", "not_before": soon, "now": cluster.now}
        cluster.tell(cluster.vms[0].event("E-0", **more))
    cluster.now += timedelta(seconds=10)
    hear_of(cluster, range(3), prepares=False)
    assert cluster.decide() + cluster.step() == ([] if ended == "Canceled" else ["approve db-1"])


def test_what_has_failed_is_tried_again_after_what_waits(cluster: Cluster) -> None:
    """If two VMs refuse each command, the third goes before they are asked again; then each of the
    two is asked.
    """
    for number in range(3):
        soon = _moment(START + timedelta(hours=10, minutes=number))
        cluster.tell(cluster.vms[number].event(f"E-{number}", now=cluster.now, not_before=soon))
    sent: list[str] = []
    for _ in range(60):
        cluster.wait(30)
        for each in cluster.step():
            if each not in sent[-1:]:
                sent.append(each)
            if each in ("prepare db-0", "prepare db-1"):
                number = int(each[-1])
                answer(cluster, "rejected", number=number, reason="unknown_key")
        if "prepare db-2" in sent and cluster.state(2) == "preparing":
            cluster.says(2, "prepared")
        if cluster.state(2) == "approving":
            cluster.deliver()
            cluster.end(2)
            cluster.says(2, "recovered")
    first = ["prepare db-0", "prepare db-1", "prepare db-2", "approve db-2"]
    assert sent[:6] == [*first, "prepare db-0", "prepare db-1"]


def test_what_was_prepared_in_an_earlier_stay_of_an_event_counts_no_more_if_it_comes_late(
    cluster: Cluster,
) -> None:
    """A preparation for an earlier stay of the event does not count if its record comes late over a
    slower sink, whether or not the VM has recovered since.
    """
    vm = cluster.vms[0]
    soon = _moment(cluster.now + timedelta(hours=1))
    cluster.tell(vm.event("E-0", now=cluster.now, not_before=soon))
    assert cluster.step() == ["prepare db-0"]
    told = {"evt": "E-0", "evh": seen(cluster, 0).shown.report.fingerprint, "sink": "drain"}
    told |= {"cause": "deadline", "reason": None}
    late = [
        vm.record(PREPARATION, told | {"state": state}, now=cluster.now)
        for state in ("preparing", "prepared")
    ]
    answer(cluster, "accepted")
    answer(cluster, "confirmed")
    cluster.now += timedelta(seconds=5)
    cluster.tell(vm.event("E-0", transition="ended", now=cluster.now))
    cluster.step()
    cluster.now += timedelta(seconds=5)
    recovered = vm.record(PREPARATION, told | {"state": "recovered"}, now=cluster.now)
    cluster.wait(60)
    cluster.tell(vm.event("E-0", now=cluster.now, not_before=soon))
    assert "prepare db-0" in cluster.step()
    cluster.tell(*late)
    cluster.wait(1)
    assert cluster.step() == []
    assert cluster.state(0) == "preparing"
    cluster.tell(recovered)
    assert cluster.step() == []
    cluster.says(0, "prepared")
    assert cluster.step() == ["approve db-0"]


@pytest.mark.parametrize("moves", [False, True])
def test_a_vm_that_changes_its_group_keeps_the_budget_of_both(
    database: Database, *, moves: bool
) -> None:
    """A VM that changes its group while it prepares is not approved while another member of the
    group in which it took its turn is away.
    """
    cluster = Cluster(database, match={"tag:cluster": ["*"]}, by=["tag:cluster"])
    for vm in cluster.vms:
        vm.tags = {"cluster": "a"}
    cluster.hear()
    cluster.announce(0)
    assert cluster.step() == ["prepare db-0"]
    if moves:
        cluster.vms[0].tags = {"cluster": "b"}
    cluster.wait(5)
    cluster.lose(1)
    cluster.says(0, "prepared")
    answer(cluster, "confirmed")
    assert cluster.step() == []
    cluster.wait(1)
    assert cluster.step() == ["approve db-0"]
    cluster.decisions.stop()


def test_a_vm_that_joins_a_turn_and_is_not_heard_delays_its_approval(database: Database) -> None:
    """A group approves no event that came to name a VM that the console does not hear, as it takes
    no turn for an event that was announced so.
    """
    cluster = Cluster(database, at_most=2)
    cluster.speak(1, commands=True)
    heard = [cluster.vms[0], cluster.vms[2]]
    for _ in range(5):
        cluster.now += timedelta(seconds=50)
        hear_only(cluster, heard)
    soon = _moment(cluster.now + timedelta(minutes=30))
    event = {"not_before": soon, "now": cluster.now}
    cluster.tell(cluster.vms[0].event("E-0", **event))
    assert cluster.step() == ["prepare db-0"]
    both = {"resources": ("db-0", "db-1"), "transition": "updated"}
    cluster.tell(cluster.vms[0].event("E-0", **event, **both))
    cluster.step()
    cluster.says(0, "prepared")
    answer(cluster, "confirmed")
    for _ in range(3):
        assert cluster.step() == []
        cluster.now += timedelta(seconds=11)
        hear_only(cluster, heard)
    with cluster.snapshots.open() as snapshot:
        known = snapshot.events.find_event("E-0")
    assert known is not None
    assert known.turn is not None
    assert known.turn.reason == "the console does not hear db-1"
    cluster.speak(1, commands=True)
    cluster.tell(cluster.vms[1].event("E-0", **event, resources=("db-0", "db-1")))
    assert cluster.step() == ["approve db-1"]
    cluster.decisions.stop()


def test_a_vm_whose_program_gave_up_is_asked_last(pair: Pair) -> None:
    """If a person approves by force, a VM that is prepared is asked, not the one that gave up and
    was heard last.
    """
    cluster = pair.cluster
    pair.say(0, "prepared")
    pair.say(1, "failed")
    assert cluster.step() == []
    cluster.now += timedelta(seconds=5)
    cluster.tell(cluster.vms[1].heartbeat(now=cluster.now, prepares=True))
    approve(cluster, 0, force=True)
    (asked,) = seen(cluster, 0).decided.commands[-1:]
    assert asked.vm_id == cluster.vms[0].vm_id


def test_a_liar_ends_no_turn_of_a_vm_that_reports_its_event(database: Database) -> None:
    """A VM that prepares nothing keeps its turn while it reports the event itself, also if others
    of its place report the event with other names, and their report is shown.
    """
    cluster = Cluster(database, match={"name": ["db-*"]})
    liars = [FakeVm(name=f"web-{number}") for number in range(2)]

    def hear() -> None:
        for number in range(3):
            cluster.speak(number, commands=True)

    cluster.tell(*(vm.heartbeat(now=cluster.now) for vm in liars))
    cluster.now += timedelta(seconds=1)
    hear()
    cluster.announce(0)
    cluster.announce(1)
    assert cluster.step() == ["approve db-0"]
    cluster.deliver()
    (asked,) = seen(cluster, 0).decided.commands
    about = {"jti": asked.jti, "actor": "group:db", "now": cluster.now}
    for state in ("accepted", "posted", "confirmed"):
        cluster.tell(cluster.vms[0].receipt("E-0", state, **about))
    cluster.tell(cluster.vms[0].event("E-0", transition="started", now=cluster.now))
    cluster.decide()
    assert cluster.step() == []
    assert cluster.state(0) == "away"
    cluster.now += timedelta(seconds=3)
    soon = _moment(cluster.now + timedelta(minutes=15))
    lie = {"resources": ["web-0"], "not_before": soon, "now": cluster.now}
    cluster.tell(*(vm.event("E-0", **lie) for vm in liars))
    assert seen(cluster, 0).shown.report.event.resources == ("web-0",)
    for _ in range(5):
        assert cluster.step() == []
        cluster.now += timedelta(seconds=3)
        hear()
    cluster.tell(cluster.vms[0].event("E-0", transition="ended", now=cluster.now))
    cluster.tell(*(vm.event("E-0", transition="ended", now=cluster.now) for vm in liars))
    cluster.now += timedelta(seconds=1)
    hear()
    assert cluster.step() == ["approve db-1"]
    cluster.decisions.stop()


@pytest.mark.parametrize("act", ["prepare", "approve"])
@pytest.mark.parametrize("crashes", [False, True])
def test_no_command_is_handed_out_that_has_no_room_any_more(
    cluster: Cluster, act: str, *, crashes: bool
) -> None:
    """A VM that fetches its commands late does not get one for which there was room when it was
    written, and is none now.
    """
    cluster.poll()
    cluster.announce(0)
    assert cluster.step() == ["prepare db-0"]
    if act == "approve":
        answer(cluster, "confirmed")
        cluster.says(0, "prepared")
        cluster.poll()
        assert cluster.step() == ["approve db-0"]
    cluster.now += timedelta(seconds=12)
    cluster.poll()
    if crashes:
        cluster.lose(2)
    found = cluster.decisions.commands_for(cluster.vms[0].vm_id)
    assert [each.act for each in found] == ([] if crashes else [act])


@pytest.mark.parametrize("name", ["cluster", "Cluster"])
def test_a_tag_of_an_admin_counts_in_any_case(database: Database, name: str) -> None:
    """A VM does not leave its group by spelling the name of a tag that an admin gave it in another
    case.
    """
    cluster = Cluster(database, match={"tag:cluster": ["etcd"]})
    bound = {vm.vm_id: {"cluster": "etcd"} for vm in cluster.vms}
    with write_to(database) as (connection, number):
        identities.replace_bound_tags(connection, bound, number)
    cluster.vms[0].tags = {name: "other", "team": "a"}
    cluster.wait(1)
    cluster.announce(0)
    cluster.announce(1)
    assert cluster.step() == ["prepare db-0"]
    with cluster.snapshots.open() as snapshot:
        (heard,) = snapshot.vms.vms_with_ids([cluster.vms[0].vm_id])
    assert heard.vm.tags == {"cluster": "etcd", "team": "a"}
    cluster.decisions.stop()


def test_a_vm_whose_post_may_have_worked_waits_behind_nothing(database: Database) -> None:
    """In a group that became too small, no earlier event is approved beside one that Azure may have
    been told to start, although its approval has failed.
    """
    cluster = Cluster(database, at_most=2)
    cluster.announce(1)
    cluster.now += timedelta(seconds=1)
    cluster.announce(0)
    assert sorted(cluster.step()) == ["prepare db-0", "prepare db-1"]
    cluster.says(0, "prepared")
    assert cluster.step() == ["approve db-0"]
    cluster.deliver()
    lower(cluster, 1)
    (asked,) = [each for each in seen(cluster, 0).decided.commands if each.act == "approve"]
    about = {"jti": asked.jti, "actor": "group:db", "now": cluster.now}
    for state, reason in (("accepted", None), ("posted", None), ("failed", "imds_unreachable")):
        cluster.tell(cluster.vms[0].receipt("E-0", state, reason=reason, **about))
    cluster.decide()
    cluster.says(1, "prepared")
    assert cluster.step() == []
    cluster.decisions.stop()


def test_a_vm_that_an_event_left_out_leaves_a_prepared_turn(pair: Pair) -> None:
    """A VM that a changed event does not name any more, also by its own report, leaves the turn
    once it has recovered, also if the turn is prepared and waits for room.
    """
    cluster = pair.cluster
    pair.say(0, "prepared")
    pair.say(1, "prepared")
    cluster.lose(2)
    assert cluster.step() == []
    pair.tell("updated", named=("db-1",))
    pair.say(1, "prepared")
    assert cluster.step() == []
    assert cluster.state(0) == "prepared"
    cluster.says(0, "recovered")
    cluster.now += timedelta(seconds=70)  # the life of the commands
    hear_only(cluster, [vm for vm in cluster.vms if vm.name != "db-2"])
    assert cluster.step() == ["approve db-1"]


def test_what_a_vm_accepted_and_never_ended_lapses(pair: Pair) -> None:
    """An acceptance of a VM that is gone since counts for 15 minutes after its command has expired;
    then another VM is asked.
    """
    cluster = pair.cluster
    pair.approve()
    (asked,) = [each for each in seen(cluster, 0).decided.commands if each.act == "approve"]
    (number,) = [n for n, vm in enumerate(cluster.vms) if vm.vm_id == asked.vm_id]
    gone = cluster.vms[number]
    cluster.tell(gone.receipt("E-0", "accepted", jti=asked.jti, actor="group:db", now=cluster.now))
    assert cluster.decide() == []
    cluster.lose(number)
    cluster.vms.remove(gone)
    cluster.wait(600)
    assert cluster.decide() == []
    with pytest.raises(DecisionRefusedError, match="approved already"):
        approve(cluster, 0, force=True)
    cluster.wait(400)
    (other,) = [f"db-{n}" for n in (0, 1) if f"db-{n}" != gone.name]
    assert cluster.decide() == [f"approve {other}"]


def test_a_peer_that_says_that_an_event_is_over_brings_no_vm_back_that_reports_it(
    database: Database,
) -> None:
    """A VM that prepares nothing keeps its turn while it reports the event as started, also if a
    peer that is known longer reports the end and the VM was heard since.
    """
    cluster = Cluster(database, match={"name": ["db-0", "db-1"]})
    with database.writing.begin() as connection:
        connection.exec_driver_sql("UPDATE vm SET name_since = 1 WHERE name = 'db-2'")

    def hear() -> None:
        for number in range(3):
            cluster.speak(number, commands=True)

    cluster.now += timedelta(seconds=1)
    hear()
    cluster.announce(0)
    cluster.announce(1)
    assert cluster.step() == ["approve db-0"]
    cluster.deliver()
    (asked,) = seen(cluster, 0).decided.commands
    about = {"jti": asked.jti, "actor": "group:db", "now": cluster.now}
    for state in ("accepted", "posted"):
        cluster.tell(cluster.vms[0].receipt("E-0", state, **about))
    cluster.decide()
    lie = {"resources": ("db-0", "db-2"), "now": cluster.now}
    for transition in ("started", "ended"):
        cluster.tell(cluster.vms[2].event("E-0", transition=transition, **lie))
    cluster.now += timedelta(seconds=5)
    cluster.tell(cluster.vms[0].event("E-0", transition="started", now=cluster.now))
    for _ in range(4):
        cluster.decide()
        assert cluster.step() == []
        cluster.now += timedelta(seconds=5)
        hear()
    cluster.tell(cluster.vms[0].event("E-0", transition="ended", now=cluster.now))
    cluster.now += timedelta(seconds=70)
    hear()
    cluster.decide()
    assert cluster.step() == ["approve db-1"]
    cluster.decisions.stop()


def test_a_status_of_an_earlier_run_changes_nothing(cluster: Cluster) -> None:
    """A status of an earlier run of the bridge that comes late does not say whether the VM
    prepares, nor that a VM is here that was lost since.
    """

    def old_status(number: int) -> None:
        vm = cluster.vms[number]
        earlier = _moment(cluster.now - timedelta(hours=20))
        told = {"commands": True, "prepares": False, "time": earlier, "session": "earlier"}
        status = parse_status(
            vm.status(**told),
            source="broker",
            received_at=cluster.now.timestamp(),
            vm_id=vm.vm_id,
            site="default",
        )
        cluster.store([status])

    cluster.wait(1)
    old_status(0)
    cluster.announce(0)
    assert cluster.step() == ["prepare db-0"]
    cluster.says(0, "prepared")
    answer(cluster, "confirmed")
    cluster.lose(1)
    old_status(1)
    assert cluster.step() == []
    cluster.wait(1)
    assert cluster.step() == ["approve db-0"]


def test_a_group_approves_again_what_was_not_sent_because_the_vm_came_back(
    cluster: Cluster,
) -> None:
    """An approval that was not sent, because its VM was prepared no more, has failed for a reason
    that may pass: the VM prepares again, and the event is approved then.
    """
    soon = _moment(cluster.now + timedelta(hours=3))
    cluster.tell(cluster.vms[0].event("E-0", now=cluster.now, not_before=soon))
    cluster.step()
    cluster.says(0, "prepared")
    answer(cluster, "confirmed")
    assert cluster.step() == ["approve db-0"]
    cluster.says(0, "recovered")
    cluster.wait(1)
    for _ in range(10):
        cluster.wait(10)
        cluster.decide()
    decision = seen(cluster, 0).decided.decision
    assert decision is not None
    assert (decision.outcome, decision.outcome_reason) == ("overtaken", "changed")
    sent = []
    for _ in range(40):
        sent += cluster.step()
        cluster.wait(30)
        if "prepare db-0" in sent:
            break
    assert "prepare db-0" in sent


def hear_only(cluster: Cluster, vms: list[FakeVm]) -> None:
    """Hear only these VMs now."""
    everyone = cluster.vms
    cluster.vms = vms
    cluster.hear()
    cluster.vms = everyone


def test_a_vm_rests_also_if_its_group_gets_another_name(database: Database) -> None:
    """If the settings give a group another name while its VM is away, the VM's rest is as long."""
    cluster = Cluster(database, rest=600)
    cluster.announce(0)
    approved(cluster, "accepted", "posted")
    cluster.tell(cluster.vms[0].event("E-0", transition="started", now=cluster.now))
    cluster.step()
    rule = GroupSettings.model_validate({"name": "dbs", "approve": {}, "rest": 600})
    cluster.settings = replace(cluster.settings, grouping=Grouping([rule]))
    cluster.announce(1)
    cluster.wait(60)
    cluster.end(0)
    cluster.step()
    cluster.says(0, "recovered")
    cluster.wait(20)
    assert cluster.step() == []
    cluster.wait(570)
    assert cluster.step() == []
    cluster.wait(40)
    assert cluster.step() == ["prepare db-1"]
    cluster.decisions.stop()
