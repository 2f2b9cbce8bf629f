"""The VMs that have changed since a number."""

from __future__ import annotations

from support.console.records import FakeVm
from support.console.writer_bench import AT, WriterBench, open_snapshot, received

from console.db.connection.opening import Database
from console.db.connection.transactions import newest_change_number


def test_a_heartbeat_is_no_change_of_its_vm(database: Database, writer_bench: WriterBench) -> None:
    """A heartbeat changes its VM only if it ends a silence, because ten thousand VMs send 170
    heartbeats a second.
    """
    vm = FakeVm()
    writer_bench.take(received(vm.heartbeat()))
    writer_bench.take(received(vm.heartbeat(), at=AT + 1))
    with open_snapshot(database) as snapshot:
        change_number = newest_change_number(snapshot.connection)
    writer_bench.take(received(vm.heartbeat(), at=AT + 61))
    with open_snapshot(database) as snapshot:
        assert snapshot.vms.changed_vms(change_number) == []
    writer_bench.take(received(vm.heartbeat(), at=AT + 999))
    with open_snapshot(database) as snapshot:
        assert [each.vm.heard_at for each in snapshot.vms.changed_vms(change_number)] == [AT + 999]
