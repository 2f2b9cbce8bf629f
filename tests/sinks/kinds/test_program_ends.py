"""The sink that runs a program: how a program is ended with its children."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
from support.eventually import eventually
from support.process.scripts import is_running, pids
from support.sinks.program import a_sink, failure, shell
from support.threads import no_new_threads

from sinks.kinds.program import process
from sinks.testing import sample_record

pytestmark = pytest.mark.skipif(
    os.name != "posix", reason="of signals and sessions; test_program_trees.py is for Windows too"
)


STUBBORN = 'trap \'\' TERM; sleep 600 & echo $$ $! > "$1.new"; mv "$1.new" "$1"; wait; sleep 600'


def test_a_program_that_takes_too_long_is_ended_with_all_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that ignores the request to end is ended by force, with its child, before `deliver`
    returns.
    """
    monkeypatch.setattr(process, "GRACE_SECONDS", 0.1)
    error = failure(shell(STUBBORN, tmp_path / "pids", timeout=3.0))
    assert error == (
        "/bin/sh did not end within 3 s, and was ended; raise timeout if it needs longer; "
        "it printed nothing"
    )
    found = pids(tmp_path / "pids", 2)
    assert len(found) == 2
    eventually(lambda: not any(map(is_running, found)), what="the end of both")


def test_a_program_is_asked_to_end_first(tmp_path: Path) -> None:
    """A program that takes too long is asked to end and has time to clean up; the record is tried
    again.
    """
    code = "trap 'echo tidied >&2; exit 0' TERM; while :; do sleep 0.05; done"
    error = failure(shell(code, timeout=2.0))
    assert error.endswith("tidied")


def test_a_failed_run_leaves_no_process(tmp_path: Path) -> None:
    """A failed run leaves no process of the program, because each further try would add one."""
    shell_code = 'sleep 600 & echo $! > "$1"; exit 3'
    assert "exit code 3" in failure(shell(shell_code, tmp_path / "pids"))
    (pid,) = pids(tmp_path / "pids", 1)
    eventually(lambda: not is_running(pid), what="its end")


def test_a_daemon_outside_the_group_delays_nothing(tmp_path: Path) -> None:
    """A daemon in a session of its own is not ended, and the delivery does not wait for it."""
    began = time.monotonic()
    daemon = "import os, sys, time\nos.setsid()\nprint(os.getpid(), flush=True)\ntime.sleep(600)"
    code = '"$2" -SEc "$3" > "$1" & until [ -s "$1" ]; do sleep 0.01; done; exit 3'
    error = failure(shell(code, tmp_path / "pids", sys.executable, daemon))
    (pid,) = pids(tmp_path / "pids", 1)
    try:
        assert (is_running(pid), error) == (
            True,
            "/bin/sh ended with exit code 3; it printed nothing",
        )
        assert time.monotonic() - began < 10
    finally:
        os.kill(pid, signal.SIGKILL)


def test_a_background_process_lives_on_and_delays_nothing(tmp_path: Path) -> None:
    """After exit code 0, a background process runs on although it holds the outputs open; no thread
    waits for it once the sink is closed.
    """
    before, began = threading.active_count(), time.monotonic()
    sink = shell('sleep 600 & echo $! > "$1"; exit 0', tmp_path / "pids")
    sink.deliver([sample_record()])
    took = time.monotonic() - began
    (pid,) = pids(tmp_path / "pids", 1)
    try:
        assert is_running(pid)
        assert took < 10
        del sink
        eventually(lambda: threading.active_count() <= before, what="the end of the threads")
    finally:
        os.kill(pid, signal.SIGKILL)


def test_background_processes_use_up_no_threads_and_descriptors(tmp_path: Path) -> None:
    """Background processes that hold the outputs open can write, and do not add a thread or a
    descriptor with each run.
    """
    code = '(while [ ! -e "$1" ]; do sleep 0.05; done; echo words && echo wrote >> "$2") &'
    sink = shell(code, tmp_path / "go", tmp_path / "written")
    sink.deliver([sample_record()])

    def cost() -> int:
        return threading.active_count() + len(list(Path("/proc/self/fd").iterdir()))

    before = cost()
    for _ in range(5):
        sink.deliver([sample_record()])
    eventually(lambda: cost() <= before, what="as many threads and descriptors as after one run")
    (tmp_path / "go").touch()
    written = tmp_path / "written"
    eventually(
        lambda: written.exists() and written.read_text().count("wrote") == 6, what="all to write"
    )


def test_an_abort_during_the_start_counts_too() -> None:
    """A program that starts during an `abort` is ended as well."""
    sink = a_sink("sleep", "600", timeout=500)
    sink.abort()
    assert failure(sink) == "sleep was ended by SIGKILL; it printed nothing"


def test_the_watchdog_comes_after_the_timeout() -> None:
    """The sink's own timeout ends the program before the bridge abandons the call."""
    margin = process.GRACE_SECONDS + process.REAP_SECONDS + process.LAST_WORDS_SECONDS
    sink = a_sink("true", timeout=7)
    assert sink.deadline == 12
    assert sink.deadline > 7 + margin


def test_a_program_that_cannot_be_given_its_input_is_ended(tmp_path: Path) -> None:
    """If no thread can be started to write the input, the program does not run on beside the next
    try, which succeeds.
    """
    file = tmp_path / "ran"
    sink = shell('sleep 0.5; echo ran >> "$1"', file)
    sink.deliver([sample_record()])
    with no_new_threads():
        assert "allows no more processes" in failure(sink)
    sink.deliver([sample_record()])
    assert file.read_text().splitlines() == ["ran", "ran"]


@pytest.mark.skipif(sys.platform != "linux", reason="counts in /proc")
def test_tries_without_a_new_thread_use_up_no_descriptors() -> None:
    """A try that fails because no thread can be started leaves no pipe behind."""
    sink = shell("exit 0")
    before = len(list(Path("/proc/self/fd").iterdir()))
    with no_new_threads():
        for _ in range(3):
            assert "allows no more processes" in failure(sink)
    assert len(list(Path("/proc/self/fd").iterdir())) <= before
    sink.deliver([sample_record()])
