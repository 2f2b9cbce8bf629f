"""Programs of the `program` sink that start others, and how they end, on every system."""

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from support.eventually import eventually
from support.sinks.program import failure, python

from sinks.base import SinkRejected
from sinks.kinds.program import ProgramSink
from sinks.kinds.program.settings import ProgramSettings
from sinks.testing import sample_context, sample_record

windows_only = pytest.mark.skipif(os.name != "nt", reason="cmd is Windows' own")
# A child that holds a port as long as it lives (a byte ends it), and its parent that waits.
CHILD = """
import socket, sys
held = socket.create_server(('127.0.0.1', 0))
with open(sys.argv[1] + '.new', 'w') as file:
    file.write(str(held.getsockname()[1]))
import os; os.replace(sys.argv[1] + '.new', sys.argv[1])
while not held.accept()[0].recv(1):
    pass
"""
PARENT = """
import subprocess, sys
subprocess.run([sys.executable, '-SEc', sys.argv[1], sys.argv[2]])
"""
LEAVER = """
import os, subprocess, sys, time
subprocess.Popen([sys.executable, '-SEc', sys.argv[1], sys.argv[2]])
while not os.path.exists(sys.argv[2]):
    time.sleep(0.05)
"""
BRIDGE = """
import sys
from sinks.testing import sample_record
from support.sinks.program import python
python(*sys.argv[1:], timeout=500).deliver([sample_record()])
"""
# Exit code 0 without a window, and in another console than the process that is named.
UNSEEN = """
import ctypes, sys
kernel = ctypes.windll.kernel32
listed = (ctypes.c_ulong * 50)()
count = kernel.GetConsoleProcessList(listed, 50)
sys.exit(1 if kernel.GetConsoleWindow() or int(sys.argv[1]) in listed[:count] else 0)
"""


def lives(port: int) -> bool:
    """Check whether the child that holds this port runs."""
    with socket.socket() as probe:
        probe.settimeout(2)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_program_that_takes_too_long_ends_with_all_that_it_started(tmp_path: Path) -> None:
    """A program that takes too long is ended with its child, and the record is tried again."""
    noted = tmp_path / "port"
    seconds = 8 if os.name == "nt" else 2  # Wine takes long to start a program
    error = failure(python(PARENT, CHILD, noted, timeout=float(seconds)))
    assert f"did not end within {seconds} s, and was ended" in error
    port = int(noted.read_text())
    eventually(lambda: not lives(port), what="the end of the child")


def test_abort_ends_both_at_once(tmp_path: Path) -> None:
    """`abort` from another thread ends the program and its child long before the timeout."""
    noted = tmp_path / "port"
    sink = python(PARENT, CHILD, noted, timeout=500)
    told: list[str] = []
    thread = threading.Thread(target=lambda: told.append(failure(sink)))
    thread.start()
    eventually(noted.exists, what="the child", timeout=60)
    sink.abort()
    thread.join(60)
    assert len(told) == 1
    port = int(noted.read_text())
    eventually(lambda: not lives(port), what="the end of the child")


def test_what_a_program_leaves_in_the_background_lives_on(tmp_path: Path) -> None:
    """A background process of a program that ended with 0 runs on after the sink is closed."""
    noted = tmp_path / "port"
    python(LEAVER, CHILD, noted, timeout=60).deliver([sample_record()])
    port = int(noted.read_text())
    assert lives(port)
    with socket.create_connection(("127.0.0.1", port)) as near:
        near.sendall(b"x")
    eventually(lambda: not lives(port), what="the end of the child")


@windows_only
def test_the_end_of_the_bridge_ends_all(tmp_path: Path) -> None:
    """TerminateProcess on the bridge ends the program and everything that it has started."""
    noted = tmp_path / "port"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", BRIDGE, PARENT, CHILD, noted], env=env) as bridge:
        eventually(noted.exists, what="the child", timeout=60)
        bridge.kill()
    port = int(noted.read_text())
    eventually(lambda: not lives(port), what="the end of the child")


@windows_only
def test_a_program_has_no_window_and_a_console_of_its_own() -> None:
    """A program gets no window, and Ctrl-C at the bridge does not reach it."""
    python(UNSEEN, os.getpid()).deliver([sample_record()])


def windows_sink(command: str) -> ProgramSink:
    """Return a sink with a command as a person writes it on one line."""
    settings = ProgramSettings.model_validate(
        {"kind": "program", "command": command, "types": ["seb.event.*"], "timeout": 30}
    )
    return ProgramSink("drain", settings, sample_context())


@windows_only
def test_a_line_of_cmd() -> None:
    """A line of cmd runs: its exit code is the answer, and its output is the reason."""
    windows_sink("cmd /d /c exit 0").deliver([sample_record()])
    with pytest.raises(SinkRejected):
        windows_sink("cmd /d /c exit 65").deliver([sample_record()])
    assert "exit code 7; it said: not now" in failure(
        windows_sink('cmd /d /c "echo not now 1>&2 & exit 7"')
    )


@windows_only
def test_a_batch_file_with_spaces_in_its_path(tmp_path: Path) -> None:
    """A batch file in double quotes runs, and has the variables of the record."""
    place = tmp_path / "Program Files" / "drain it.cmd"
    place.parent.mkdir()
    place.write_text("@echo %SEB_EVENT_TRANSITION%> seen.txt\r\n@exit /b 0\r\n", "ascii")
    here = Path.cwd()
    os.chdir(tmp_path)
    try:
        windows_sink(f'"{place}"').deliver([sample_record()])
    finally:
        os.chdir(here)
    assert (tmp_path / "seen.txt").read_text().strip() == "scheduled"


@windows_only
def test_an_interpreter_with_options_and_a_path(tmp_path: Path) -> None:
    """An interpreter such as powershell runs with options and a quoted script whose path has
    backslashes.
    """
    script = tmp_path / "Program Files" / "drain.ps1"
    script.parent.mkdir()
    script.write_text("import sys; sys.exit(0 if sys.argv[1] == r'C:\\a b' else 1)")
    windows_sink(f'"{sys.executable}" -S -E "{script}" "C:\\a b"').deliver([sample_record()])
