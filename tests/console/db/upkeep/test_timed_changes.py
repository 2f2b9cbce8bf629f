"""What changes because time has passed, and no message came."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import event
from support.console.intake import NOW, Intake
from support.console.records import FakeVm

from console.db.vms.expectations import expectations_of
from console.fleet.values.vm import Expectation


def condition(intake: Intake, vm: FakeVm) -> str:
    """Return the condition of a VM."""
    with intake.snapshots.open() as snapshot:
        return (
            expectations_of(snapshot.connection, [vm.vm_id]).get(vm.vm_id, Expectation()).condition
        )


@pytest.mark.parametrize("transition", ["scheduled", "started"])
def test_an_event_whose_only_reporter_is_gone_is_over_an_hour_after_its_time(
    intake: Intake, transition: str
) -> None:
    """An event ends as Unknown an hour after its notBefore if its only reporter is gone, and its
    VM's condition is clear. While a heard VM reports it, it stays open.
    """
    web, other = FakeVm(), FakeVm(name="web-2")
    soon = "2026-11-22T12:10:00.000Z"
    intake.take(web.event("E", transition=transition, not_before=soon, now=NOW))
    intake.take(other.event("F", transition=transition, not_before=soon, now=NOW))
    intake.now += timedelta(seconds=3000)
    intake.take(other.heartbeat(now=intake.now))
    intake.let_pass(10)
    assert intake.event().event.state == transition
    assert condition(intake, web) == transition
    intake.now += timedelta(seconds=1250)
    intake.take(other.heartbeat(now=intake.now))
    intake.let_pass(10)
    known = intake.event()
    assert (known.event.state, known.shown.report.event.event_status) == ("ended", "Unknown")
    assert condition(intake, web) == "clear"
    assert intake.event("F").event.state == transition
    intake.take(web.heartbeat(now=intake.now))
    assert intake.event().event.state == "ended"
    intake.take(web.event("E", transition="ended", now=intake.now))
    assert intake.event().shown.report.event.event_status == "Completed"


def test_an_event_is_not_over_because_the_console_was_away(intake: Intake) -> None:
    """After an absence of the console an event ends only once the console has listened for the
    silent time, because its VM may have sent something meanwhile.
    """
    web = FakeVm()
    intake.take(web.event("E", transition="started", now=NOW))
    intake.now += timedelta(hours=2)
    intake.listen_since(intake.now)
    intake.let_pass(10)
    assert intake.vm(web).contact == "learning"
    assert intake.event().event.state == "started"
    intake.let_pass(180)
    assert intake.vm(web).contact == "silent"
    assert intake.event().event.state == "ended"


def test_a_fleet_that_falls_silent_together_is_looked_at_with_few_questions(
    intake: Intake,
) -> None:
    """When a whole fleet falls silent, the reporters of its events are chosen with few queries,
    because incoming messages wait for that transaction.
    """
    vms = [FakeVm(name=f"web-{number}") for number in range(40)]
    peer = FakeVm(name="peer")
    intake.take(*(vm.event(f"E-{vm.name}", now=NOW) for vm in vms))
    intake.let_pass(1)
    intake.take(*(peer.event(f"E-{vm.name}", resources=[vm.name], now=intake.now) for vm in vms))
    intake.take(*(vm.heartbeat(now=intake.now) for vm in vms))
    intake.now += timedelta(seconds=400)
    asked: list[str] = []

    def note(*given: object) -> None:
        asked.append(str(given[2]))

    event.listen(intake.database.writing, "before_cursor_execute", note)
    intake.let_pass(1)
    moving = len(asked)
    asked.clear()
    intake.let_pass(1)
    alone = len(asked)
    event.remove(intake.database.writing, "before_cursor_execute", note)
    assert {intake.event(f"E-{vm.name}").event.shown_by for vm in vms} == {peer.vm_id}
    assert moving < 30
    assert alone < 16
