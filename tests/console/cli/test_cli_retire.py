"""`seb console retire`: VMs that are gone are not waited for, until they are heard again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.console.process import ConsoleProcess
from support.console.records import FakeVm
from support.eventually import eventually


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    """A console that runs."""
    with ConsoleProcess(tmp_path_factory.mktemp("console")) as running:
        yield running


def contact(console: ConsoleProcess, vm: FakeVm) -> str:
    """Return how the console says that a VM is heard."""
    said: str = console.get(f"vms/{vm.vm_id}")["contact"]
    return said


def test_a_vm_is_retired_until_it_is_heard(console: ConsoleProcess) -> None:
    """A VM is retired at once, with its reason in the audit; its next record ends that."""
    vm = FakeVm(name="gone")
    assert console.post(vm.heartbeat()).status_code == 204
    done = console.run("retire", vm.vm_id, "--reason", "deleted on Monday")
    assert done.returncode == 0, done.stderr
    eventually(lambda: contact(console, vm) == "retired", what="the VM is retired")
    (row,) = console.audit("vm_retired")
    assert (row["vmId"], row["reason"]) == (vm.vm_id, "deleted on Monday")
    assert console.run("retire", vm.vm_id, "--reason", "again").returncode == 1
    assert len(console.audit("vm_retired")) == 1
    assert console.post(vm.heartbeat()).status_code == 204
    eventually(lambda: contact(console, vm) == "heard", what="the VM is back")


def test_a_list_is_retired(console: ConsoleProcess, tmp_path: Path) -> None:
    """The command takes a list with names behind the vmIds, as `enroll` does, and names an unknown
    VM.
    """
    vms = [FakeVm(name=f"listed-{number}") for number in range(3)]
    for vm in vms:
        assert console.post(vm.heartbeat()).status_code == 204
    lines = [f"{vm.vm_id} {vm.name}" for vm in vms]
    path = tmp_path / "gone.txt"
    path.write_text("\n".join(["# gone", *lines, "unknown-vm"]))
    done = console.run("retire", "--file", str(path), "--reason", "set deleted")
    assert done.returncode == 1
    assert "unknown-vm: the console knows no such VM" in done.stderr
    eventually(
        lambda: {contact(console, vm) for vm in vms} == {"retired"}, what="three retired VMs"
    )


@pytest.mark.parametrize("words", [("vm-a",), ("--reason", "x"), ("a b", "--reason", "x")])
def test_a_wrong_call_is_a_usage_error(console: ConsoleProcess, words: tuple[str, ...]) -> None:
    """A call without a reason, without a VM, or with a text that is no vmId is a usage error."""
    assert console.run("retire", *words).returncode == 2
