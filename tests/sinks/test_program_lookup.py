import os
import sys
from pathlib import Path
from typing import Any

import pytest
from support.process.scripts import executable, runnable, shell_script
from support.sinks.program import a_sink, failure

from sinks.base import SinkError
from sinks.program import ProgramSink
from sinks.program.settings import ProgramSettings
from sinks.readable import escaped
from sinks.testing import sample_context, sample_record

posix_only = pytest.mark.skipif(os.name != "posix", reason="Windows has no such modes and limits")


def no_interpreter(path: Path) -> Path:
    """Its interpreter is not installed."""
    return executable(path, "#!/no/such/interpreter\n")


def windows_lines(path: Path) -> Path:
    """Its lines end as Windows' do."""
    return executable(path, "#!/bin/sh\r\nexit 0\r\n")


def no_first_line(path: Path) -> Path:
    """It does not say what is to run it."""
    return executable(path, "exit 0\n")


def not_executable(path: Path) -> Path:
    """Nobody ran chmod."""
    path.write_text("#!/bin/sh\n")
    return path


def directory(path: Path) -> Path:
    """A directory."""
    path.mkdir()
    return path


def absent(path: Path) -> Path:
    """Nothing at all."""
    return path


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (absent, "the program does not exist; install it"),
        pytest.param(not_executable, "it is not executable; allow it (chmod +x)", marks=posix_only),
        (directory, "it is not a file; correct command"),
        pytest.param(
            *(no_interpreter, "the interpreter in its first line is missing; correct"),
            marks=posix_only,
        ),
        pytest.param(
            *(windows_lines, "the interpreter in its first line is missing; correct"),
            marks=posix_only,
        ),
        pytest.param(
            *(no_first_line, "the system cannot run this kind of file; begin a script with"),
            marks=posix_only,
        ),
    ],
)
def test_a_program_that_cannot_be_run_is_told_with_a_remedy(
    tmp_path: Path, make: Any, reason: str
) -> None:
    """The error names the program, never its arguments."""
    path = make(tmp_path / "drain.sh")
    told = failure(a_sink(path, "--token=that-is-secret"))
    assert told.startswith(f"{escaped(str(path))}: {reason}")
    assert "secret" not in told


def test_a_name_is_looked_for_in_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a shell would; a name that is nowhere is told."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    sink = a_sink("prepare-this-vm")
    with pytest.raises(SinkError, match="the program does not exist; install it"):
        sink.open()
    runnable(tmp_path / "prepare-this-vm", "pass")
    sink.open()
    sink.deliver([sample_record()])


@posix_only
def test_a_command_that_is_too_long_is_told() -> None:
    """The system's limit has a remedy as well."""
    told = failure(a_sink(sys.executable, "x" * 3_000_000))
    assert told.startswith(f"{escaped(sys.executable)}: command and environment are too long")


def test_a_program_that_vanishes_is_noticed_before_an_event(tmp_path: Path) -> None:
    """An idle sink looks whether its program is still there."""
    path = runnable(tmp_path / "drain", "pass")
    sink = a_sink(path)
    sink.open()
    sink.maintain()
    path.unlink()
    with pytest.raises(SinkError, match="the program does not exist"):
        sink.maintain()


def test_check_runs_nothing(tmp_path: Path) -> None:
    """It says where the program is."""
    path = runnable(tmp_path / "drain", f"open({str(tmp_path / 'ran')!r}, 'w')")
    (told,) = a_sink(path).check()
    assert (told.level, told.text) == ("ok", f"{escaped(str(path))} can be run, for 30 s a record")
    assert not (tmp_path / "ran").exists()


@posix_only
def test_check_warns_of_a_program_that_anybody_may_change(tmp_path: Path) -> None:
    """It would be everybody's way to the bridge's rights."""
    path = shell_script(tmp_path / "drain.sh", "exit 0")
    path.chmod(0o757)
    warned, fine = a_sink(path).check()
    assert (warned.level, fine.level) == ("warn", "ok")
    assert warned.remedy == "let only its owner write it (chmod o-w)"


def test_check_warns_where_no_types_are_chosen() -> None:
    """A script that drains whatever it is told would drain at each start of the bridge."""
    settings = ProgramSettings(kind="program", command=(sys.executable,))
    fine, warned = ProgramSink("drain", settings, sample_context()).check()
    assert (fine.level, warned.level) == ("ok", "warn")
    assert 'set types to ["seb.event.*"]' in (warned.remedy or "")
