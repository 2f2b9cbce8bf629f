"""How the program sink handles processes on Windows, run here with the platform faked."""

import importlib.util
import io
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import sinks.program.process
from sinks.program.output import Output


class Started:
    """A process that Popen would have started."""

    def __init__(self, command: list[str], **how: Any) -> None:
        self.command = command
        self.how = how
        self.pid = 4711
        self.killed = False
        self.stdin = io.BytesIO()
        os.write(how["stdout"], b"out")

    def wait(self, seconds: float) -> int:
        if not self.killed:
            raise subprocess.TimeoutExpired(self.command, seconds)
        return 1

    def kill(self) -> None:
        self.killed = True


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """`sinks.program.process` as Windows would load it."""
    monkeypatch.setattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0x200, raising=False)
    monkeypatch.setattr(subprocess, "CREATE_NO_WINDOW", 0x8000000, raising=False)
    path = sinks.program.process.__file__
    spec = importlib.util.spec_from_file_location("process_on_windows", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "platform", "win32")
        spec.loader.exec_module(module)
    return module


def test_a_program_has_a_group_no_window_and_an_end(
    process: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C at the bridge is not meant for it, and a service has no screen. It is ended with all
    it started by the system's own taskkill, named with its path; without that, alone.
    """
    ended: list[list[str]] = []

    def taskkill(command: list[Any], **_: Any) -> None:
        if ended:
            raise FileNotFoundError(2, "no such file")
        ended.append([str(word) for word in command])

    monkeypatch.setattr(subprocess, "Popen", Started)
    monkeypatch.setattr(subprocess, "run", taskkill)
    monkeypatch.setenv("SYSTEMROOT", "/windows")
    run = process.Run(["drain.exe"], env={}, body=b"{}", out=Output(), err=Output())
    assert run._process.how["creationflags"] == 0x8000200
    assert "start_new_session" not in run._process.how
    assert run.last_words() == "out"
    assert run.wait(0.0) is None
    assert run.end() is True
    taskkill_exe = str(Path("/windows/System32/taskkill.exe"))
    assert ended == [[taskkill_exe, "/T", "/F", "/PID", "4711"]]
    run._process.killed = False
    run.kill()
    assert run._process.killed


def test_modes_say_nothing_there(process: ModuleType, tmp_path: Path) -> None:
    """Whether anybody may change a program is not to be read from its mode."""
    program = tmp_path / "drain.ps1"
    program.touch()
    program.chmod(0o777)
    assert process.writable_by_anybody(program) is False
