"""`seb run --once` and `--dry-run`: one poll with an exit code, and a run that leaves no trace."""

import signal
import time

import pytest
from support.process.launch import Launch
from support.sinks.http_server import HttpServer

from bridge.simulator.events import SimulatedEvent
from bridge.simulator.faults import RefusedFault, Silence
from bridge.simulator.simulator import Simulator


def types(records: list[dict[str, object]]) -> list[object]:
    """Return the types of records."""
    return [record["type"] for record in records]


def test_once_delivers_and_ends_with_0(launch: Launch, simulator: Simulator) -> None:
    """The first call gives the records of the pending events; the next one those of the changes."""
    event = simulator.announce(SimulatedEvent())
    first = launch("--once")
    assert (first.wait(), types(first.records)) == (0, ["seb.event.scheduled.v1"])
    again = launch("--once")
    assert (again.wait(), again.records) == (0, [])
    simulator.end_event(event.event_id)
    last = launch("--once")
    assert (last.wait(), types(last.records)) == (0, ["seb.event.ended.v1"])


def test_once_without_imds_is_69(launch: Launch, simulator: Simulator) -> None:
    """The message names the address, and `seb check`."""
    simulator.fault(RefusedFault(seconds=None))
    bridge = launch("--once")
    assert bridge.wait() == 69
    assert simulator.url in bridge.errors
    assert "see `seb check`" in bridge.errors
    assert "Traceback" not in bridge.errors


def test_once_with_a_sink_that_is_down_is_69(launch: Launch, simulator: Simulator) -> None:
    """The record stays in the store, and the next call delivers it."""
    simulator.announce(SimulatedEvent())
    with HttpServer() as server:
        server.stop()
        url = f"{server.origin}/x"
        assert launch("--once", SEB_SINK__WEBHOOK__URL=url).wait() == 69
        server.start()
        assert launch("--once", SEB_SINK__WEBHOOK__URL=url).wait() == 0
        assert len(server.requests()) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_once_can_be_interrupted(launch: Launch, simulator: Simulator, number: int) -> None:
    """A poll that hangs can be interrupted at once, and no record is lost."""
    simulator.fault(Silence(seconds=60), times=None)
    # A signal can come between two instructions of http.client, which then leaves its socket to
    # the end of the process.
    bridge = launch("--once", PYTHONWARNINGS="default,ignore::ResourceWarning")
    assert simulator.wait_for_gets(1)
    begun = time.monotonic()
    bridge.send(number)
    assert (bridge.wait(), bridge.errors.strip()) == (130, "interrupted")
    assert time.monotonic() - begun < 10.0


def test_a_dry_run_leaves_no_trace(launch: Launch, simulator: Simulator) -> None:
    """In a dry run standard output is the only sink, and no state is kept."""
    simulator.announce(SimulatedEvent())
    with HttpServer() as server:
        hook = {"SEB_SINK__WEBHOOK__URL": f"{server.origin}/x"}
        first, second = (launch("--dry-run", "--once", **hook) for _ in range(2))
        assert (first.wait(), second.wait()) == (0, 0)
        assert types(first.records) == types(second.records) == ["seb.event.scheduled.v1"]
        assert server.connections() == 0
    assert not launch.state.exists()


def test_a_dry_run_beside_a_running_bridge(launch: Launch, simulator: Simulator) -> None:
    """A dry run needs no lock of a running bridge, and does not touch its store."""
    launch().wait_for_log("started")
    simulator.announce(SimulatedEvent())
    dry = launch("--dry-run", "--once")
    assert (dry.wait(), types(dry.records)) == (0, ["seb.event.scheduled.v1"])
