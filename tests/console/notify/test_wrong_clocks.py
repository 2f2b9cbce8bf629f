"""VMs whose clocks are hours behind: their times are corrected before they are compared with the
console's.
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select
from support.console.intake import Intake
from support.console.records import FakeVm

from console.db import notices as notice_rows
from console.db.connection.opening import Database
from console.db.connection.transactions import write_to
from console.db.schema.decision_tables import notice
from console.notify.notice_worker import NoticeWorker
from console.records.parse import parse_state, parse_status
from wire.moment import rfc3339
from wire.record import read_record

BEHIND = timedelta(hours=3)
LISTENED = timedelta(hours=9)


class Site:
    """VMs that send heartbeats and statuses, some with clocks behind, and a console that makes
    notices.
    """

    def __init__(self, database: Database, *, behind: str = "") -> None:
        """`behind`: the first letters of the names of the VMs whose clocks are behind."""
        self.intake = Intake(database)
        self.intake.listen_since(self.intake.now - LISTENED)
        self._behind = behind
        self._notices = NoticeWorker([], snapshots=self.intake.snapshots, base="http://c", site="x")
        with write_to(database) as (connection, _):
            self._begun = notice_rows.first_console_start(connection, self.intake.snapshots.clock())
        self.vms = {name: FakeVm(name=name) for name in ("a", "p")}

    def says(self, name: str, event_id: str, **given: Any) -> None:
        """A VM sends a record about an event, which arrives at once."""
        self.intake.take(self.vms[name].event(event_id, now=self.clock(name), **given))

    def clock(self, name: str) -> Any:
        """Return the time on a VM's clock."""
        return self.intake.now - (BEHIND if name in self._behind else timedelta())

    def go_on(self, seconds: int, *names: str, step: int = 15) -> None:
        """Let time pass in steps, in which some VMs are heard."""
        for _ in range(seconds // step):
            self.intake.let_pass(step)
            for name in names:
                self.beat(name)
            self._notices._find_and_store(self._begun)

    def beat(self, name: str, session: str = "session-1") -> None:
        """A VM sends a heartbeat and a status."""
        vm, now = self.vms[name], self.clock(name)
        if session == vm.session:
            self.intake.take(vm.heartbeat(now=now))
        fields = {"commands": True, "session": session, "time": rfc3339(now)}
        self._status(vm, vm.status(**fields))

    def lose(self, name: str, session: str) -> None:
        """The broker reports that a VM's connection is lost."""
        vm = self.vms[name]
        self._status(vm, vm.status("offline", reason="lost", session=session))

    def _status(self, vm: FakeVm, body: bytes) -> None:
        at = self.intake.now.timestamp()
        about = {"source": "web", "vm_id": vm.vm_id, "site": "default"}
        self.intake.hear(parse_status(body, received_at=at, **about))

    def count_notices(self) -> dict[str, int]:
        """Return how many notices of each kind were stored."""
        with self.intake.database.reading.begin() as connection:
            found = connection.execute(select(notice.c.body)).scalars().all()
        kinds = Counter(read_record(body).data["notice"]["kind"] for body in found)
        return {kind: number for kind, number in kinds.items() if kind != "audit-head"}


def test_the_end_of_an_undecided_event_has_one_notice(database: Database) -> None:
    """The end of an event without a decision has one notice, although by its VM's clock it was
    before the console's first check.
    """
    site = Site(database, behind="a")
    site.go_on(60, "a")
    site.says("a", "F", event_type="Freeze", impact="pause")
    site.says("a", "F", transition="started", event_type="Freeze", impact="pause")
    site.go_on(30, "a")
    site.says("a", "F", transition="ended", event_type="Freeze", impact="pause")
    site.go_on(150, "a")
    assert site.count_notices()["event-over"] == 1


def test_a_vm_that_its_peer_saw_deleted_is_retired(database: Database) -> None:
    """A VM is retired after a peer's report of its deletion although the peer's clock is behind."""
    site = Site(database, behind="p")
    site.go_on(60, "a", "p")
    about = {"event_type": "Terminate", "impact": "delete", "resources": ["a"]}
    site.says("a", "T", **about)
    site.says("p", "T", **about)
    site.go_on(60, "a", "p")
    site.says("p", "T", transition="ended", **about)
    site.go_on(600, "p", step=60)
    assert site.intake.vm(site.vms["a"]).contact == "retired"


def test_a_vm_that_does_not_come_back_has_a_notice(database: Database) -> None:
    """A VM that does not come back has a notice although its clock, and that of the peer that
    reports the end, are behind.
    """
    site = Site(database, behind="ap")
    site.go_on(60, "a", "p")
    start = rfc3339(site.intake.now + timedelta(minutes=15))
    for name in ("a", "p"):
        site.says(name, "R", resources=["a"], not_before=start)
    site.go_on(60, "a", "p")
    site.says("p", "R", transition="started", resources=["a"])
    site.go_on(60, "p")
    site.says("p", "R", transition="ended", resources=["a"])
    site.go_on(1500, "p", step=60)
    assert site.count_notices()["vm-not-back"] == 1
    assert "vm-silent" not in site.count_notices()


def test_when_an_event_was_seen_and_began_is_so_by_one_clock(database: Database) -> None:
    """The times of an event that names a VM with a right clock and one with a clock behind are all
    by the console's clock.
    """
    site = Site(database, behind="p")
    site.go_on(60, "a", "p")
    begin = site.intake.now.timestamp()
    for transition in ("scheduled", "started", "ended"):
        for name in ("a", "p"):
            site.says(name, "R", transition=transition, resources=["a", "p"])
        site.go_on(60, "a", "p")
    event = site.intake.event("R").event
    assert (event.first_seen_at, event.started_at) == pytest.approx((begin, begin + 60), abs=1)
    assert event.shown_at == pytest.approx(begin + 120, abs=1)


def test_a_second_silence_between_two_heartbeats_has_a_notice(database: Database) -> None:
    """A second silence between two heartbeats has a notice: a status proves contact at its own
    time, as far as the VM's clock is right.
    """
    site = Site(database, behind="a")
    site.go_on(60, "a")
    site.beat("a", "s1")
    site.lose("a", "s1")
    site.go_on(45)
    site.beat("a", "s2")
    assert site.intake.vm(site.vms["a"]).contact == "heard"
    site.go_on(15)
    site.lose("a", "s2")
    site.go_on(45)
    assert site.count_notices() == {"vm-silent": 2, "vm-heard": 1}


@pytest.mark.parametrize("beats", [1, 40], ids=["a heartbeat", "all heartbeats"])
def test_what_comes_late_is_as_old_as_it_says(database: Database, beats: int) -> None:
    """Records that arrive after an outage of hours have their own times if the VM's clock is right,
    whether all heartbeats come or only the newest.
    """
    site = Site(database)
    vm, intake = site.vms["a"], site.intake
    begin = intake.now - timedelta(hours=2)
    intake.take(vm.heartbeat(now=begin), vm.heartbeat(now=begin))
    late = [vm.event("R", now=begin), vm.event("R", transition="started", now=begin)]
    minutes = [timedelta(minutes=number) for number in range(beats)]
    intake.take(*late, *(vm.heartbeat(now=begin + each) for each in minutes))
    intake.take(vm.event("R", transition="ended", now=begin + timedelta(hours=1)))
    event = intake.event("R").event
    assert event.first_seen_at == event.started_at == begin.timestamp()
    assert event.shown_at == begin.timestamp() + 3600
    site.go_on(60, "a")
    assert intake.vm(vm).vm.clock_behind == 0


@pytest.mark.parametrize("first", ["record", "state", "status"])
def test_a_state_from_before_an_event_does_not_end_it(database: Database, first: str) -> None:
    """A state document from before an event does not end the event after the VM's clock was set
    right.
    """
    site = Site(database, behind="a")
    site.go_on(60, "a")
    vm, intake = site.vms["a"], site.intake
    site._behind = ""
    at = intake.now.timestamp()
    about = {"source": "web", "vm_id": vm.vm_id, "site": "default"}
    empty = parse_state(vm.state(now=intake.now), received_at=at, **about)
    if first == "status":
        site.beat("a", "s2")
    elif first == "state":
        intake.hear(empty)
    intake.let_pass(1)
    site.says("a", "E")
    assert intake.vm(vm).vm.clock_behind == 0
    intake.let_pass(1)
    retained = parse_state(
        vm.state(now=intake.now - timedelta(seconds=2)), received_at=at + 2, **about
    )
    intake.hear(retained)
    assert intake.event("E").event.state == "scheduled"


def test_a_clock_that_is_set_right_is_right_at_once(database: Database) -> None:
    """A clock that is set right counts as right at once; one that is set back counts as behind from
    its second heartbeat on.
    """
    site = Site(database, behind="a")
    vm, intake = site.vms["a"], site.intake
    site.beat("a")
    assert intake.vm(vm).vm.clock_behind == 0  # it may have waited
    site.go_on(15, "a")
    assert intake.vm(vm).vm.clock_behind == pytest.approx(BEHIND.total_seconds(), abs=1)
    intake.take(vm.heartbeat(now=intake.now))
    assert intake.vm(vm).vm.clock_behind == 0
