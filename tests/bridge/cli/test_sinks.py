"""`seb sinks`: lists the kinds of sinks, and tests a configured one."""

import json
from pathlib import Path

from support.eventually import eventually
from support.kubernetes.fake_api import FakeApi
from support.process.bridge import NOWHERE
from support.process.launch import Launch
from support.process.seb_here import Here
from support.sinks.http_server import HttpServer

from bridge.simulator.events import SimulatedEvent
from bridge.simulator.simulator import Simulator
from sinks import registry


def test_every_kind_is_listed(here: Here) -> None:
    """`list` has a line for each kind, with its description."""
    result = here("sinks", "list")
    assert (result.code, result.err) == (0, "")
    lines = dict(line.split(maxsplit=1) for line in result.out.splitlines())
    assert set(lines) >= set(registry.BUILT_IN)
    assert [text for text in lines.values() if not text.endswith(".")] == []


def test_a_try_delivers_one_heartbeat(here: Here, launch: Launch) -> None:
    """`test` delivers one heartbeat whose stream is all zeros, so that no consumer takes it for the
    bridge's; no state is kept.
    """
    with HttpServer() as server:
        env = {**launch.env, "SEB_SINK__WEBHOOK__URL": f"{server.origin}/x"}
        result = here("sinks", "test", "webhook", **env)
        assert (result.code, result.out) == (0, "webhook: delivered\n")
        (record,) = [json.loads(request.body) for request in server.requests()]
    assert record["type"] == "seb.bridge.heartbeat.v1"
    assert set(record["stream"]) == {"0", "-"}
    assert not launch.state.exists()


def test_a_try_leaves_the_node_as_it_is(
    here: Here, launch: Launch, imds_simulator: Simulator, tmp_path: Path
) -> None:
    """`test` without a bridge does not know the pending events, so it removes no mark from a
    node.
    """
    cluster = FakeApi()
    cluster.start()
    cluster.add_node("node-1")
    kubernetes = {
        "SEB_SINK__KUBERNETES__NODE": "node-1",
        "SEB_SINK__KUBERNETES__KUBECONFIG": str(cluster.kubeconfig(tmp_path / "config")),
        "SEB_SINK__KUBERNETES__CORDON": "true",
    }
    try:
        bridge = launch(**kubernetes)
        imds_simulator.announce(SimulatedEvent(event_type="Reboot"))
        eventually(lambda: cluster.nodes["node-1"]["spec"].get("unschedulable"), what="a cordon")
        assert bridge.stop() == 0
        result = here("sinks", "test", "kubernetes", **launch.env, **kubernetes)
        assert (result.code, result.out) == (0, "kubernetes: delivered\n")
        assert cluster.nodes["node-1"]["spec"]["unschedulable"]
    finally:
        cluster.stop()


def test_a_sink_that_does_not_answer_is_69(here: Here, launch: Launch) -> None:
    """If the sink does not answer, the exit code is 69, with the reason and without the address's
    path.
    """
    env = {**launch.env, "SEB_SINK__WEBHOOK__URL": f"{NOWHERE}/path-that-is-secret"}
    result = here("sinks", "test", "webhook", **env)
    assert (result.code, result.out) == (69, "")
    assert result.err.startswith(f"seb: webhook: {NOWHERE}: ")
    assert "path" not in result.err


def test_a_sink_that_is_not_there_is_78(here: Here, launch: Launch) -> None:
    """For an unknown sink the exit code is 78, and the configured names are listed."""
    result = here("sinks", "test", "ops", **launch.env)
    assert result.err == "seb: no sink is called ops; configured are: stdout\n"
    assert result.code == 78


def test_a_running_bridge_reports_its_sinks(here: Here, launch: Launch) -> None:
    """If a bridge runs, `test` prints the state that it reports for the sink, and sends nothing."""
    with HttpServer() as server:
        hook = {"SEB_SINK__WEBHOOK__URL": f"{server.origin}/x"}
        launch(**hook).wait_for_log("sink_up")
        env = {**launch.env, **hook}
        result = here("sinks", "test", "webhook", **env)
        assert result.out == "webhook: ok in the running bridge, records to deliver: 0\n"
        assert (result.code, len(server.requests())) == (0, 1)
