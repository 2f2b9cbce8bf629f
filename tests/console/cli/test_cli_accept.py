"""`seb console accept` and `seb console forget`, beside a console that runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from support.console.process import ConsoleProcess
from support.console.records import FakeVm
from support.eventually import eventually


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    """A console that runs."""
    groups = '[{"name": "db", "match": {"name": ["db-*"]}}]'
    with ConsoleProcess(tmp_path_factory.mktemp("console"), GROUPS=groups) as running:
        yield running


def test_what_a_vm_says_is_accepted(console: ConsoleProcess) -> None:
    """The command accepts a VM's identity once; a VM without a conflict is named."""
    vm = FakeVm(name="before")
    assert console.post(vm.heartbeat()).status_code == 204
    assert console.post(replace(vm, name="after").heartbeat()).status_code == 204
    done = console.run("accept", vm.vm_id)
    assert done.returncode == 0, done.stderr
    assert "is after of sub-1/group-1, site default" in done.stderr
    eventually(lambda: console.get(f"vms/{vm.vm_id}")["name"] == "after", what="the new name")
    (row,) = console.audit("vm_accepted")
    assert (row["vmId"], row["name"]) == (vm.vm_id, "after")
    assert console.run("accept", vm.vm_id).returncode == 1
    assert console.run("accept").returncode == 2


def test_what_a_vm_has_sent_is_removed(console: ConsoleProcess) -> None:
    """The command removes a VM's events, records and name; what others report of the same event
    stays, and so does the audit.
    """
    vm, peer = FakeVm(name="flood"), FakeVm(name="peer")
    for number in range(3):
        assert console.post(vm.event(f"X-{number}")).status_code == 204
    for each in (vm, peer):
        assert console.post(each.event("E", resources=["peer", "flood"])).status_code == 204
    done = console.run("forget", vm.vm_id, "--reason", "its secrets were stolen")
    assert done.returncode == 0, done.stderr
    assert "is removed, with 4 records" in done.stderr
    found = {each["eventId"]: each for each in console.get("events")["items"]}
    assert (set(found), found["E"]["seenBy"]) == ({"E"}, 1)
    assert found["E"]["resources"][1]["vmId"] is None
    (row,) = console.audit("vm_forgotten")
    assert (row["vmId"], row["reason"]) == (vm.vm_id, "its secrets were stolen")
    assert console.run("forget", vm.vm_id, "--reason", "again").returncode == 1
    assert console.run("forget", vm.vm_id).returncode == 2
    assert console.post(vm.heartbeat()).status_code == 204
    eventually(lambda: console.get(f"vms/{vm.vm_id}")["contact"] == "heard", what="it is back")


def test_a_vm_that_is_away_is_not_removed(console: ConsoleProcess) -> None:
    """The command keeps a VM that is away in its group and says what to do next; the others of the
    same call are removed. It removes the VM once that is retired.
    """
    away, here = FakeVm(name="db-1"), FakeVm(name="db-2")
    for vm in (away, here):
        assert console.post(vm.heartbeat()).status_code == 204
    assert console.post(away.event("E-1", transition="started")).status_code == 204
    done = console.run("forget", away.vm_id, here.vm_id, "x", "--reason", "stolen")
    assert done.returncode == 1
    assert f"{away.vm_id} is not removed: it is away in group db: its event has" in done.stderr
    assert "retire it first if it is gone for good (seb console retire)" in done.stderr
    assert f"{here.vm_id} is removed, with 0 records" in done.stderr
    assert "x: the console knows no such VM" in done.stderr
    assert f"{away.vm_id}: the console knows" not in done.stderr
    assert console.run("retire", away.vm_id, "--reason", "deleted").returncode == 0
    done = console.run("forget", away.vm_id, "--reason", "deleted")
    assert (done.returncode, "is removed, with 1 records" in done.stderr) == (0, True)
