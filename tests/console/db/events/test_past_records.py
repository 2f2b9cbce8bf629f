"""The records of an event and of a VM, as their pages list them."""

from __future__ import annotations

from datetime import timedelta

from support.console.intake import NOW, Intake
from support.console.records import FakeVm

from console.db.connection.transactions import read_from
from console.db.events.past_records import past_of_vm, records_of_event
from console.fleet.values.keys import EventKey


def test_one_vm_does_not_fill_the_timeline_of_an_event(intake: Intake) -> None:
    """The timeline of an event has the records of all reporters, however many records one of them
    sends.
    """
    named, liar = FakeVm(name="a"), FakeVm(name="liar")
    intake.take(named.event("E", resources=["a"], now=NOW))
    old = NOW - timedelta(days=4000)
    many = [
        liar.event("E", resources=["a"], transition="updated", description=str(number), now=old)
        for number in range(2100)
    ]
    intake.take(*many)
    with read_from(intake.database.reading) as connection:
        found = records_of_event(connection, EventKey("E", "sub-1/group-1"))
    assert named.vm_id in {each.vm_id for each in found}
    assert len(found) < len(many)


def test_an_id_that_another_vm_has_used_removes_no_record(intake: Intake) -> None:
    """If two VMs use one record id, in one transaction or in two, each record is in its VM's
    history; copies count once.
    """
    web, liar = FakeVm(), FakeVm(name="liar")
    for event_id, together in (("E", False), ("F", True)):
        own = web.event(event_id, now=NOW)
        forged = liar.record(
            own.type, {**own.data, "vm": liar.identity.to_wire()}, now=NOW, record_id=own.id
        )
        for _ in range(2):
            if together:
                intake.take(forged, own)
            else:
                intake.take(forged)
                intake.take(own)
    with intake.snapshots.open() as snapshot:
        found = {
            vm.vm_id: [
                each.event_id for each in past_of_vm(snapshot.connection, vm.vm_id, 9).records
            ]
            for vm in (web, liar)
        }
    assert {vm_id: sorted(map(str, several)) for vm_id, several in found.items()} == {
        web.vm_id: ["E", "F"],
        liar.vm_id: ["E", "F"],
    }
