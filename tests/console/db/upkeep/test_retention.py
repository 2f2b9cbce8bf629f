"""The retention deletes old rows, and keeps what is open or came in lately."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import func, select
from support.console.intake import Intake
from support.console.records import FakeVm
from support.console.writer_bench import AT, WriterBench, count_rows, open_snapshot, received
from support.eventually import eventually

from console.db.connection.opening import Database
from console.db.events.event_filters import WantedEvents
from console.db.schema import tables
from console.db.upkeep.retention import delete_before


def delete_older(intake: Intake, days: float) -> None:
    """Delete everything older than that."""
    moment = (intake.now - timedelta(days=days)).timestamp()
    with intake.database.writing.begin() as connection:
        delete_before(connection, moment, 500)


def past_events(intake: Intake) -> list[str]:
    """Return the ids of ended events."""
    with intake.snapshots.open() as snapshot:
        return [each.event.event_id for each in snapshot.event_lists.ended_events(WantedEvents())]


@pytest.mark.parametrize("behind", [timedelta(0), timedelta(days=365 * 20)])
def test_an_event_stays_as_long_as_its_records(database: Database, behind: timedelta) -> None:
    """An event is kept as long as its records, by the time at which they came in, although the VM's
    clock is years behind.
    """
    intake = Intake(database)
    vm = FakeVm(name="web-1")
    for transition in ("scheduled", "started", "ended"):
        intake.take(vm.event("E", transition=transition, now=intake.now - behind))
    delete_older(intake, days=1)
    assert past_events(intake) == ["E"]
    intake.now += timedelta(days=2)
    delete_older(intake, days=1)
    delete_older(intake, days=1)
    assert past_events(intake) == []


def test_old_records_go(database: Database, writer_bench: WriterBench) -> None:
    """The retention deletes records and ended events that are old enough, and keeps what
    is open.
    """
    vm, quiet = FakeVm(), FakeVm(name="quiet")
    over = [vm.event("OVER"), vm.event("OVER", transition="ended")]
    writer_bench.take(
        *(received(each) for each in [*over, quiet.event("OPEN"), vm.receipt("OVER", "confirmed")])
    )
    writer_bench.take(received(vm.event("NEW"), at=AT + 100))
    writer_bench.writer.delete_before(AT + 1)
    eventually(lambda: count_rows(database, "record") == 1, what="the deletion")
    with database.reading.begin() as connection:
        ids = set(connection.execute(select(tables.event.c.event_id)).scalars())
        kept = set(connection.execute(select(tables.record.c.event_id)).scalars())
        left = connection.execute(select(func.count()).select_from(tables.report)).scalar_one()
    assert ids == {"OPEN", "NEW"}
    assert kept == {"NEW"}
    assert left == 2
    with open_snapshot(database) as snapshot:
        assert snapshot.events.find_event("OVER") is None
