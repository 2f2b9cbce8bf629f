"""Values become rows, and are read from them unchanged."""

from __future__ import annotations

import json

from sqlalchemy import select
from support.console.records import FakeVm
from support.console.writer_bench import WriterBench, open_snapshot, received

from console.db.connection.opening import Database
from console.db.schema import tables


def test_everything_comes_back_from_the_rows(database: Database, writer_bench: WriterBench) -> None:
    """Every value that was stored is read unchanged."""
    vm = FakeVm(scale_set="set")
    first = vm.event("E1", resources=["web-1", "other"])
    vm.event("LOST")
    last = vm.event("E2", transition="started")
    fields = {
        "actor": "a" * 512,
        "jti": "j" * 512,
        "rsn": "r" * 512,
    }  # as long as a token may have it
    writer_bench.take(
        received(first), received(last), received(vm.receipt("E2", "posted", **fields))
    )
    with open_snapshot(database) as snapshot:
        heard = snapshot.vms.find_vm(vm.vm_id)
        known = {each.event.event_id: each for each in snapshot.event_lists.open_events()}
    assert heard is not None
    assert heard.vm.missing_records == 1
    assert heard.vm.scope == "sub-1/group-1"
    assert {event_id: each.event.state for event_id, each in known.items()} == {
        "E1": "scheduled",
        "E2": "started",
    }
    assert known["E1"].shown.report.event.resources == ("web-1", "other")
    assert known["E1"].event.scope == "sub-1/group-1"
    (receipt,) = (each.content for each in known["E2"].receipts)
    assert (receipt.state, receipt.person_reason) == ("posted", fields["rsn"])
    assert (receipt.actor, receipt.jti) == (fields["actor"], fields["jti"])


def test_a_field_that_is_newer_than_a_row_is_none(
    database: Database, writer_bench: WriterBench
) -> None:
    """In a report that was stored before the event had a field, that field is None."""
    writer_bench.take(received(FakeVm().event("E")))
    with database.writing.begin() as connection:
        (event_report,) = connection.execute(select(tables.report.c.event_report)).one()
        older = json.loads(event_report)
        del older["event"]["description"]
        connection.execute(tables.report.update().values(event_report=json.dumps(older)))
    with open_snapshot(database) as snapshot:
        event = snapshot.events.find_event("E").shown.report.event
    assert (event.event_id, event.description) == ("E", None)
