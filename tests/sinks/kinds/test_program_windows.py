"""How the program sink handles processes on Windows, run here with the platform faked."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import sinks.kinds.program.process


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Import `sinks.kinds.program.process` as on Windows."""
    monkeypatch.setattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0x200, raising=False)
    monkeypatch.setattr(subprocess, "CREATE_NO_WINDOW", 0x8000000, raising=False)
    path = sinks.kinds.program.process.__file__
    spec = importlib.util.spec_from_file_location("process_on_windows", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "platform", "win32")
        spec.loader.exec_module(module)
    return module


def test_modes_say_nothing_there(process: ModuleType, tmp_path: Path) -> None:
    """On Windows a file's mode is not used to find out whether any account may change it."""
    program = tmp_path / "drain.ps1"
    program.touch()
    program.chmod(0o777)
    assert process.writable_by_anybody(program) is False
