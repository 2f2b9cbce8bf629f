"""A signal that comes between two runs of one process, and standard streams that are closed."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.eventually import eventually
from support.faults.gate import GatedReceiver
from support.faults.proxy import FaultProxy, Spoil
from support.process.bridge import SEB, BridgeProcess, written
from support.process.launch import Launch

from bridge.simulator.simulator import Simulator
from bridge.simulator.vm import SimulatedVm

OTHER = SimulatedVm(vm_id="11111111-2222-4333-8444-555555555555", name="other")
IMPATIENT = (
    "import bridge.service.bridge as app, bridge.cli; app.IDENTITY_SECONDS = 0.3; bridge.cli.main()"
)
"""`seb`, but it asks IMDS for the identity often, not hourly."""


@pytest.fixture
def sink() -> Iterator[GatedReceiver]:
    """A webhook that holds back its answers, so that a run needs all its time to end."""
    with GatedReceiver() as made:
        made.hold()
        yield made


def test_a_signal_between_two_runs_ends_the_process(
    simulator: Simulator, sink: GatedReceiver, launch: Launch
) -> None:
    """A run ends because IMDS names another VM; SIGTERM comes before the next run begins."""
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
    """The log goes nowhere, and the records come."""
    with BridgeProcess("run", env=launch.env, home=launch.home, prefix=_with(closed)) as bridge:
        bridge.wait_for_records(1)
        assert bridge.stop() == 0
        assert [each["type"].split(".")[2] for each in bridge.records] == ["started", "stopped"]


@pytest.mark.parametrize("closed", [">&-", "<&- >&-"])
def test_a_bridge_runs_without_standard_output(launch: Launch, closed: str) -> None:
    """The sink that writes there fails and keeps its backlog; the others get their records."""
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
    """What a library prints must never reach a store or a connection."""
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
    """Nobody wanted to read it."""
    with BridgeProcess(command, env=launch.env, home=launch.home, prefix=_with(">&-")) as ended:
        assert ended.wait() == 0
        assert "Traceback" not in ended.errors


def test_an_error_without_standard_error_keeps_its_exit_code(launch: Launch) -> None:
    """What cannot be said is in the exit code."""
    launch.state.write_text("a file in place of a directory")
    with BridgeProcess("run", env=launch.env, home=launch.home, prefix=_with("2>&-")) as bridge:
        assert bridge.wait() == 78


def _with(redirections: str) -> tuple[str, ...]:
    """`seb`, started by a shell with these redirections."""
    return ("sh", "-c", f'exec "$@" {redirections}', "sh", *SEB)


def _port(simulator: Simulator) -> int:
    return int(simulator.url.rsplit(":", 1)[1])
