"""`seb console backup`, beside a running console: the copy is whole, and a console starts on it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from support.console.process import ConsoleProcess
from support.console.records import FakeVm


@pytest.fixture
def console(tmp_path: Path) -> ConsoleProcess:
    """A console that is not started yet."""
    return ConsoleProcess(tmp_path / "first", PULL="true")


def test_a_copy_is_a_database_that_another_machine_takes(
    console: ConsoleProcess, tmp_path: Path
) -> None:
    """With the key file, a console on the copy shows the same VMs, and a VM's secrets still work
    there.
    """
    vm = FakeVm(name="kept")
    target = tmp_path / "console.db"
    with console:
        assert console.post(vm.heartbeat()).status_code == 204
        for _ in range(2):  # a second backup takes the place of the first
            done = console.run("backup", str(target))
            assert (done.returncode, "checked" in done.stdout) == (0, True), done.stderr
    if os.name == "posix":
        assert target.stat().st_mode & 0o077 == 0
    other = ConsoleProcess(tmp_path / "second", PULL="true")
    shutil.copy(target, other.directory / "console.db")
    shutil.copy(console.key_file, other.key_file)
    with other:
        assert vm.vm_id in other.run("vms", "--json").stdout
        assert other.post(vm.heartbeat()).status_code == 204


def test_a_folder_that_is_not_there(console: ConsoleProcess, tmp_path: Path) -> None:
    """A copy into a missing directory ends with 78 and the reason."""
    with console:
        done = console.run("backup", str(tmp_path / "no" / "console.db"))
    assert done.returncode == 78
    assert "No such file" in done.stderr


def test_without_a_database_nothing_is_made(console: ConsoleProcess, tmp_path: Path) -> None:
    """With a wrong state directory the command writes no empty backup."""
    target = tmp_path / "console.db"
    done = console.run("backup", str(target))
    assert (done.returncode, target.exists()) == (78, False)


def test_postgresql_has_its_own(console: ConsoleProcess, tmp_path: Path) -> None:
    """With PostgreSQL the command names pg_dump."""
    url = "SEB_CONSOLE_DATABASE=postgresql://u@127.0.0.1/x"
    done: subprocess.CompletedProcess[str] = console.run(
        "backup", str(tmp_path / "x"), "--set", url
    )
    assert done.returncode == 78
    assert "pg_dump" in done.stderr
