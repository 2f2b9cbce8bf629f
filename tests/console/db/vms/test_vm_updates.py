"""What is written of a VM besides its records."""

from __future__ import annotations

from support.console.records import FakeVm
from support.console.writer_bench import AT, WriterBench, open_snapshot, received

from console.db.connection.opening import Database
from console.db.connection.transactions import write_to
from console.db.vms.vm_updates import write_polls


def test_when_a_vm_polled_is_written_once_it_is_known(
    database: Database, writer_bench: WriterBench
) -> None:
    """The poll of a VM without a record is kept until the VM has a row."""
    vm = FakeVm()
    with write_to(database) as (connection, change_number):
        assert write_polls(connection, {vm.vm_id: AT}, change_number) == set()
    writer_bench.take(received(vm.heartbeat()))
    with write_to(database) as (connection, change_number):
        assert write_polls(connection, {vm.vm_id: AT}, change_number) == {vm.vm_id}
    with open_snapshot(database) as snapshot:
        assert [each.vm.pulled_at for each in snapshot.vms.changed_vms(change_number - 1)] == [AT]
    with write_to(database) as (connection, change_number):
        write_polls(connection, {vm.vm_id: AT + 20}, change_number)
    with open_snapshot(database) as snapshot:
        assert snapshot.vms.changed_vms(change_number - 1) == []
        assert snapshot.vms.find_vm(vm.vm_id).vm.pulled_at == AT + 20
