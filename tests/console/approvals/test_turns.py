"""Turns in the database: what consoles write, in turn or at once, and what people end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support.console.records import FakeVm

from console.access.people import Person
from console.approvals import turns
from console.approvals.refused import DecisionRefused
from console.approvals.service import Decisions
from console.approvals.transaction import DecisionTransaction
from console.approvals.turn_requests import TurnSettings
from console.audit.flood import Flood
from console.audit.log import everything
from console.config.groups import GroupSettings
from console.db import writing
from console.db.opening import Database
from console.db.snapshot import Snapshots
from console.db.transactions import write_to
from console.fleet.fold import fold
from console.fleet.values import Command
from console.records.parse import parse_record, parse_status
from console.turns.groups import Grouping
from wire.record import PREPARATION, Record

START = datetime(2026, 11, 1, 12, tzinfo=UTC)
ALICE = Person(name="alice", roles=frozenset({"approver"}))


class NoSigner:
    """A key that is there, and is not used here."""

    def sign(self, command: Command, now: float) -> bytes:
        """A token that no VM takes."""
        del command, now
        return b"token"

    def public_key(self) -> dict[str, Any]:
        """None."""
        return {}


class Cluster:
    """Three VMs that prepare, as a database knows them, and consoles that look when told to."""

    def __init__(self, database: Database, **keys: object) -> None:
        self.database = database
        self.now = START
        self.vms = [FakeVm(name=f"db-{n}") for n in range(3)]
        rule = GroupSettings.model_validate({"name": "db", "approve": {}, **keys})
        grouping = Grouping([rule])
        self.settings = TurnSettings(grouping=grouping, can_sign=True)
        self.snapshots = Snapshots(database, clock=self._seconds)
        self.decisions = Decisions(
            self.snapshots,
            signer=NoSigner(),
            publishers={},
            offer=lambda _vm_id, _jti: None,
            committed=lambda: None,
            connected=lambda: {"broker": 1.0},
            grouping=grouping,
        )
        with database.writing.begin() as connection:
            connection.exec_driver_sql(
                "INSERT INTO listening (console, source, since, until, seen_at) "
                "VALUES ('one', 'broker', 0, 9e9, 9e9)"
            )
        self.hear()

    def _seconds(self) -> float:
        return self.now.timestamp()

    def hear(self) -> None:
        """Every VM is heard now, and says that it prepares."""
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
        """Records come in."""
        at = self.now.timestamp()
        self.store([parse_record(r.body, source="broker", received_at=at) for r in records])

    def store(self, batch: list[Any]) -> None:
        """What a source hands in is committed."""
        with self.database.writing.begin() as connection:
            number = writing.next_number(connection)
            known = writing.load(connection, batch)
            writing.write(connection, fold(known, batch), number, now=self.now.timestamp())

    def announce(self, number: int) -> str:
        """An event of one VM."""
        event_id = f"E-{number}"
        soon = _moment(self.now + timedelta(minutes=15))
        self.tell(self.vms[number].event(event_id, now=self.now, not_before=soon))
        return event_id

    def end(self, number: int) -> None:
        """Its event is over."""
        self.tell(self.vms[number].event(f"E-{number}", transition="ended", now=self.now))

    def says(self, number: int, state: str) -> None:
        """A VM tells how far it has prepared for its event."""
        with self.snapshots.take() as snapshot:
            known = snapshot.events.one(f"E-{number}")
        assert known is not None
        data = {"evt": f"E-{number}", "evh": known.shown.report.fingerprint, "sink": "drain"}
        more = {"cause": "deadline", "reason": None, "state": state}
        self.tell(self.vms[number].record(PREPARATION, data | more, now=self.now))

    def wait(self, seconds: float) -> None:
        """Time passes, in which every VM is heard."""
        self.now += timedelta(seconds=seconds)
        self.hear()

    def step(self, *, steps: int = 4) -> list[str]:
        """What a console sends in some steps: act and VM."""
        sent = []
        for _ in range(steps):
            with write_to(self.database) as (connection, number):
                snapshot = self.snapshots.within(connection)
                decide = DecisionTransaction(snapshot, number, console="one", flood=Flood())
                written = turns.step(snapshot, number, self.settings, decide, {"broker"})
            names = {vm.vm_id: vm.name for vm in self.vms}
            sent += [f"{one.command.act} {names[one.command.vm_id]}" for one in written.outgoing]
        return sent

    def state(self, number: int) -> str:
        """Of the turn of a VM's event."""
        with self.snapshots.take() as snapshot:
            known = snapshot.events.one(f"E-{number}")
        return "none" if known is None or known.turn is None else known.turn.state

    def actions(self) -> list[str]:
        """What the audit says."""
        return [row.action for row in everything(self.database.reading)]


def _moment(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


@pytest.fixture
def cluster(database: Database) -> Iterator[Cluster]:
    """On either database."""
    made = Cluster(database)
    yield made
    made.decisions.stop()


def test_one_after_the_other(cluster: Cluster) -> None:
    """Prepared, approved, back: then the next one."""
    cluster.announce(0)
    cluster.announce(1)
    assert cluster.step() == ["prepare db-0"]
    assert (cluster.state(0), cluster.state(1)) == ("preparing", "waiting")
    cluster.says(0, "preparing")
    assert cluster.step() == []
    cluster.says(0, "prepared")
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


def test_a_prepare_command_is_sent_again_until_it_is_answered(cluster: Cluster) -> None:
    """Every ten seconds, with the same jti; an answer ends that, and so does `replayed`."""
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
    with cluster.snapshots.take() as snapshot:
        known = snapshot.events.one("E-0")
    assert known is not None
    assert known.receipts == []


def test_a_refusal_that_may_pass_is_followed_by_another_command(cluster: Cluster) -> None:
    """The VM had not seen the event yet: a new jti, and a row of the audit of its own."""
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
    """The budget is weighed again once all have prepared."""
    cluster.announce(0)
    cluster.step()
    cluster.says(0, "prepared")
    lost = cluster.vms[2]
    cluster.store(
        [
            parse_status(
                lost.status("offline", reason="lost"),
                source="broker",
                received_at=cluster.now.timestamp(),
                vm_id=lost.vm_id,
                site="default",
            )
        ]
    )
    assert cluster.step() == []
    assert cluster.state(0) == "prepared"
    cluster.wait(1)
    assert cluster.step() == ["approve db-0"]


def test_many_consoles_at_once_take_one_turn(cluster: Cluster) -> None:
    """Each looks in its own thread; together they release one VM."""
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
    """An hour after its event; what it has prepared counts no more, and the next one goes."""
    cluster.announce(0)
    cluster.announce(1)
    cluster.step()
    cluster.says(0, "prepared")
    cluster.step()
    cluster.end(0)
    cluster.step()
    with pytest.raises(DecisionRefused) as refused:
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
    with pytest.raises(DecisionRefused) as refused:
        asyncio.run(cluster.decisions.end_turn(ALICE, "E-0", "again"))
    assert refused.value.why == "no_turn"


def test_a_turn_that_a_person_has_ended_is_not_taken_again(cluster: Cluster) -> None:
    """While the event is as it was, it is left to people."""
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
    """By its own deadline while no console ran; its event is over, and the next one waits."""
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
    """Its group approves it no more."""
    cluster.announce(0)
    cluster.step()
    with cluster.snapshots.take() as snapshot:
        known = snapshot.events.one("E-0")
    assert known is not None
    seen = known.shown.report.fingerprint
    asyncio.run(cluster.decisions.leave(ALICE, "E-0", seen, "not today"))
    cluster.says(0, "prepared")
    assert cluster.step() == []
    assert cluster.state(0) == "failed"


def test_without_a_role_no_turn_is_ended(cluster: Cluster) -> None:
    """Looking is not deciding."""
    cluster.announce(0)
    cluster.step()
    viewer = Person(name="bob", roles=frozenset({"viewer"}))
    with pytest.raises(DecisionRefused) as refused:
        asyncio.run(cluster.decisions.end_turn(viewer, "E-0", "please", force=True))
    assert refused.value.why == "role"
