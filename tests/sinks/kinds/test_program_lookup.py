"""The sink that runs a program: how the program is found."""

import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from support.process.scripts import executable, runnable, shell_script
from support.sinks.program import a_sink, failure

from sinks.base import SinkError
from sinks.kinds.program import ProgramSink
from sinks.kinds.program.settings import ProgramSettings
from sinks.shared.text import escaped
from sinks.testing import sample_context, sample_record

posix_only = pytest.mark.skipif(os.name != "posix", reason="Windows has no such modes and limits")


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: None, "the program does not exist; install it"),
        (Path.mkdir, "it is not a file; correct command"),
        pytest.param(
            lambda path: path.write_text("#!/bin/sh\n"),
            "it is not executable; allow it (chmod +x)",
            marks=posix_only,
        ),
        *(
            pytest.param(partial(executable, text=text), reason, marks=posix_only)
            for text, reason in (
                (
                    "#!/no/such/interpreter\n",
                    "the interpreter in its first line is missing; correct",
                ),
                ("#!/bin/sh\r\n", "the interpreter in its first line is missing; correct"),
                ("exit 0\n", "the system cannot run this kind of file; begin a script with"),
            )
        ),
    ],
)
def test_a_program_that_cannot_be_run_has_a_remedy(
    tmp_path: Path, make: Callable[[Path], object], reason: str
) -> None:
    """The error about a program that cannot be run has its name and a remedy, and never its
    arguments.
    """
    path = tmp_path / "drain.sh"
    make(path)
    error = failure(a_sink(path, "--token=that-is-secret"))
    assert error.startswith(f"{escaped(str(path))}: {reason}")
    assert "secret" not in error


def test_a_name_is_looked_for_in_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program is searched in PATH, as a shell does; an error names one that is not found."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    sink = a_sink("prepare-this-vm")
    with pytest.raises(SinkError, match="the program does not exist; install it"):
        sink.open()
    runnable(tmp_path / "prepare-this-vm", "pass")
    sink.open()
    sink.deliver([sample_record()])


@posix_only
def test_a_command_that_is_too_long_has_a_remedy() -> None:
    """The error about a command above the system's limit has a remedy."""
    error = failure(a_sink(sys.executable, "x" * 3_000_000))
    assert error.startswith(f"{escaped(sys.executable)}: command and environment are too long")


def test_a_program_that_vanishes_is_noticed_before_an_event(tmp_path: Path) -> None:
    """`maintain` of an idle sink raises if its program is missing."""
    path = runnable(tmp_path / "drain", "pass")
    sink = a_sink(path)
    sink.open()
    sink.maintain()
    path.unlink()
    with pytest.raises(SinkError, match="the program does not exist"):
        sink.maintain()


def test_check_runs_nothing(tmp_path: Path) -> None:
    """`check` names the program's path and does not run it."""
    path = runnable(tmp_path / "drain", f"open({str(tmp_path / 'ran')!r}, 'w')")
    (told,) = a_sink(path).check()
    assert (told.level, told.text) == ("ok", f"{escaped(str(path))} can be run, for 30 s a record")
    assert not (tmp_path / "ran").exists()


@posix_only
def test_check_warns_of_a_program_that_anybody_may_change(tmp_path: Path) -> None:
    """`check` warns of a program that every account may change, because it runs with the bridge's
    rights.
    """
    path = shell_script(tmp_path / "drain.sh", "exit 0")
    path.chmod(0o757)
    warned, fine = a_sink(path).check()
    assert (warned.level, fine.level) == ("warn", "ok")
    assert warned.remedy == "let only its owner write it (chmod o-w)"


def test_check_warns_where_no_types_are_chosen() -> None:
    """`check` warns if no `types` are set: a script that drains for any record would drain at each
    start of the bridge.
    """
    settings = ProgramSettings(kind="program", command=(sys.executable,))
    fine, warned = ProgramSink("drain", settings, sample_context()).check()
    assert (fine.level, warned.level) == ("ok", "warn")
    assert 'set types to ["seb.event.*"]' in (warned.remedy or "")
