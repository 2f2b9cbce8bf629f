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

from sinks.program import process
from sinks.testing import sample_record

pytestmark = pytest.mark.skipif(
    os.name != "posix", reason="of signals and sessions; test_program_trees.py is for Windows too"
)


STUBBORN = 'trap \'\' TERM; sleep 600 & echo $$ $! > "$1.new"; mv "$1.new" "$1"; wait; sleep 600'


def test_a_program_that_takes_too_long_is_ended_with_all_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the request that it does not hear, it and its child are gone before `deliver` is."""
    monkeypatch.setattr(process, "GRACE_SECONDS", 0.1)
    told = failure(shell(STUBBORN, tmp_path / "pids", timeout=3.0))
    assert told == (
        "/bin/sh did not end within 3 s, and was ended; raise timeout if it needs longer; "
        "it said nothing"
    )
    found = pids(tmp_path / "pids", 2)
    assert len(found) == 2
    eventually(lambda: not any(map(is_running, found)), what="the end of both")


def test_a_program_is_asked_to_end_first(tmp_path: Path) -> None:
    """It has the time to tidy up, and still has acknowledged nothing."""
    code = "trap 'echo tidied >&2; exit 0' TERM; while :; do sleep 0.05; done"
    told = failure(shell(code, timeout=2.0))
    assert told.endswith("tidied")


def test_a_run_that_failed_leaves_nobody_behind(tmp_path: Path) -> None:
    """Else each try would add one more."""
    shell_code = 'sleep 600 & echo $! > "$1"; exit 3'
    assert "exit code 3" in failure(shell(shell_code, tmp_path / "pids"))
    (pid,) = pids(tmp_path / "pids", 1)
    eventually(lambda: not is_running(pid), what="its end")


def test_whoever_has_left_the_group_delays_nobody(tmp_path: Path) -> None:
    """A daemon in a session of its own cannot be found, but nobody waits for it either."""
    began = time.monotonic()
    daemon = "import os, sys, time\nos.setsid()\nprint(os.getpid(), flush=True)\ntime.sleep(600)"
    code = '"$2" -SEc "$3" > "$1" & until [ -s "$1" ]; do sleep 0.01; done; exit 3'
    told = failure(shell(code, tmp_path / "pids", sys.executable, daemon))
    (pid,) = pids(tmp_path / "pids", 1)
    try:
        assert (is_running(pid), told) == (True, "/bin/sh ended with exit code 3; it said nothing")
        assert time.monotonic() - began < 10
    finally:
        os.kill(pid, signal.SIGKILL)


def test_whoever_is_left_behind_on_purpose_lives_and_delays_nobody(tmp_path: Path) -> None:
    """After exit 0 a background process goes on, though it holds the outputs open; once the sink is
    dropped there is no thread of it either.
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


def test_what_is_left_behind_costs_no_thread_and_no_descriptor_a_run(tmp_path: Path) -> None:
    """Background processes that hold the outputs open do not add up here; and they can write."""
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
    """A program that came up meanwhile is ended as well."""
    sink = a_sink("sleep", "600", timeout=500)
    sink.abort()
    assert failure(sink) == "sleep was ended by SIGKILL; it said nothing"


def test_the_watchdog_comes_after_the_timeout() -> None:
    """The sink ends the program itself, before the bridge gives up on the sink."""
    margin = process.GRACE_SECONDS + process.REAP_SECONDS + process.LAST_WORDS_SECONDS
    sink = a_sink("true", timeout=7)
    assert sink.deadline == 12
    assert sink.deadline > 7 + margin
