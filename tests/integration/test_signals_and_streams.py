"""Signals that come between two runs of a process, and standard streams that are closed."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.request import urlopen

import pytest
from support.eventually import eventually
from support.faults.gated_receiver import GatedReceiver
from support.faults.proxy import FaultProxy, Spoil
from support.ports import free_port
from support.process.bridge import SEB, BridgeProcess, clean_environment, written
from support.process.launch import Launch

from bridge.simulator.events import SimulatedEvent
from bridge.simulator.simulator import Simulator
from bridge.simulator.vm import SimulatedVm

OTHER = SimulatedVm(vm_id="11111111-2222-4333-8444-555555555555", name="other")
posix = pytest.mark.skipif(sys.platform == "win32", reason="pipes of Windows have other calls")
IMPATIENT = (
    "import bridge.service.bridge as app, bridge.cli; app.IDENTITY_SECONDS = 0.3; bridge.cli.main()"
)
"""`seb`, but it asks IMDS for the identity often, not hourly."""

LOADING = """
import importlib.abc, sys, time

class Slow(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "bridge.cli":
            print("loading", file=sys.stderr, flush=True)
            time.sleep(60)

sys.meta_path.insert(0, Slow())
from bridge.__main__ import main
main()
"""
"""`seb` that takes a minute to load."""


@pytest.fixture
def sink() -> Iterator[GatedReceiver]:
    """A webhook that delays its answers, so that a run uses all its time to end."""
    with GatedReceiver() as made:
        made.hold()
        yield made


@pytest.mark.parametrize(("arguments", "code"), [(["run"], 0), (["run", "--once"], -15)])
@posix
def test_a_stop_before_anything_has_begun(tmp_path: Path, arguments: list[str], code: int) -> None:
    """A run that is stopped while it loads ends in order, and one that should deliver does not
    claim that it has.
    """
    prefix = (sys.executable, "-c", LOADING)
    with BridgeProcess(*arguments, env={}, home=tmp_path, prefix=prefix) as process:
        process.wait_until(lambda: "loading" in process.errors, "the import")
        assert process.stop() == code
        assert process.errors == "loading\n"


def test_a_signal_between_two_runs_ends_the_process(
    simulator: Simulator, sink: GatedReceiver, launch: Launch
) -> None:
    """SIGTERM ends the process if it comes between a run that IMDS's other VM ended and the next
    one.
    """
    env = {
        **launch.env,
        "SEB_SINK__WEBHOOK__URL": sink.url,
        "SEB_SINK__STDOUT__FORMAT": "json",
    }
    seb = (sys.executable, "-c", IMPATIENT)
    with Simulator(vm=OTHER) as other, FaultProxy(_port(simulator)) as gate:
        env["SEB_IMDS__URL"] = f"http://{gate.host}:{gate.port}"
        with BridgeProcess("run", env=env, home=launch.home, prefix=seb) as bridge:
            bridge.wait_for_records(1)
            gate.target = _port(other)
            gate.spoil(Spoil.REFUSED)  # ends the connection that is kept to the first one
            gate.heal()
            stopped = bridge.wait_for_records(1, types="seb.bridge.stopped")
            assert stopped[0]["data"]["stopped"] == {"reason": "another vm"}
            bridge.terminate()
            assert bridge.wait() == 0
            assert len(bridge.logs("started")) == 1


@pytest.mark.parametrize("closed", ["2>&-", "<&-", "<&- 2>&-"])
def test_a_bridge_runs_without_standard_error(launch: Launch, closed: str) -> None:
    """Without standard error the bridge delivers, and the log is lost."""
    with BridgeProcess("run", env=launch.env, home=launch.home, prefix=_with(closed)) as bridge:
        bridge.wait_for_records(1)
        assert bridge.stop() == 0
        assert [each["type"].split(".")[2] for each in bridge.records] == ["started", "stopped"]


@pytest.mark.parametrize("closed", [">&-", "<&- >&-"])
def test_a_bridge_runs_without_standard_output(launch: Launch, closed: str) -> None:
    """Without standard output its sink fails and keeps its backlog; the other sinks deliver."""
    out = launch.home / "out.jsonl"
    env = {**launch.env, "SEB_SINK__FILE__PATH": str(out), "SEB_SINK__STDOUT__FORMAT": "json"}
    with BridgeProcess("run", env=env, home=launch.home, prefix=_with(closed)) as bridge:
        down = bridge.wait_for_log("sink_down")
        eventually(lambda: len(written(out)) >= 1, what="the first record")
        assert bridge.stop() == 0
        assert (down["sink"], down["reason"]) == ("stdout", "this process has no standard output")
        assert bridge.logs("stopped")[0]["undelivered"] == "stdout"
        assert "Traceback" not in bridge.errors
    assert [each["type"] for each in written(out)] == [
        "seb.bridge.started.v1",
        "seb.bridge.stopped.v1",
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux'")
def test_no_file_or_socket_gets_the_number_of_a_closed_stream(launch: Launch) -> None:
    """No store and no connection gets the descriptor of a closed stream, to which a library could
    print.
    """
    out = launch.home / "out.jsonl"
    env = {**launch.env, "SEB_SINK__FILE__PATH": str(out)}
    every = _with("<&- >&- 2>&-")
    with BridgeProcess("run", env=env, home=launch.home, prefix=every) as bridge:
        eventually(lambda: len(written(out)) >= 1, what="the first record")
        behind = {str(Path(f"/proc/{bridge.pid}/fd/{number}").readlink()) for number in range(3)}
        assert bridge.stop() == 0
    assert behind == {"/dev/null"}


@pytest.mark.parametrize("command", ["version", "schema"])
def test_a_command_without_standard_output_ends_well(launch: Launch, command: str) -> None:
    """A command without standard output ends with success."""
    with BridgeProcess(command, env=launch.env, home=launch.home, prefix=_with(">&-")) as ended:
        assert ended.wait() == 0
        assert "Traceback" not in ended.errors


def test_an_error_without_standard_error_keeps_its_exit_code(launch: Launch) -> None:
    """Without standard error an error still has its exit code."""
    launch.state.write_text("a file in place of a directory")
    with BridgeProcess("run", env=launch.env, home=launch.home, prefix=_with("2>&-")) as bridge:
        assert bridge.wait() == 78


@pytest.fixture
def unread() -> Iterator[int]:
    """The writing end of a pipe that is full and that no program reads."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writer, b"x" * 4096)
    os.set_blocking(writer, True)
    yield writer
    os.close(reader)
    os.close(writer)


@posix
def test_a_log_that_no_program_reads_delays_nothing(
    simulator: Simulator, launch: Launch, unread: int
) -> None:
    """While no program reads the log, the bridge polls, delivers, answers and stops in time, and
    counts the lost lines.
    """
    out, port = launch.home / "out.jsonl", free_port()
    env = {
        **launch.env,
        "SEB_SINK__FILE__PATH": str(out),
        "SEB_HTTP__LISTEN": f"127.0.0.1:{port}",
        "SEB_LOG__LEVEL": "debug",
    }
    simulator.announce(SimulatedEvent())
    process = subprocess.Popen(
        [*SEB, "run"],
        env=clean_environment(launch.home, env),
        cwd=launch.home,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=unread,
    )
    try:
        eventually(lambda: len(written(out)) >= 2, what="the start and the event")
        simulator.announce(SimulatedEvent())
        eventually(lambda: len(written(out)) >= 3, what="another event")
        with urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5) as answer:
            assert answer.status == 200
        process.terminate()
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.wait()


@posix
def test_an_error_that_no_program_reads_ends_the_start(launch: Launch, unread: int) -> None:
    """A start with an error ends with its exit code within seconds, although no program reads
    standard error.
    """
    launch.state.write_text("a file in place of a directory")
    for arguments, code in ((("run",), 78), (("run", "--set", "SEB_SITE="), 78)):
        process = subprocess.Popen(
            [*SEB, *arguments],
            env=clean_environment(launch.home, launch.env),
            cwd=launch.home,
            stderr=unread,
        )
        try:
            assert process.wait(15) == code
        finally:
            process.kill()
            process.wait()


def _with(redirections: str) -> tuple[str, ...]:
    """Start `seb` in a shell with these redirections."""
    return ("sh", "-c", f'exec "$@" {redirections}', "sh", *SEB)


def _port(simulator: Simulator) -> int:
    return int(simulator.url.rsplit(":", 1)[1])
