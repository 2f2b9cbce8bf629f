"""`seb sinks`: the kinds there are, and a try of a configured sink."""

from __future__ import annotations

import json
from pathlib import Path

from support.process.bridge import NOWHERE, run_seb
from support.process.launch import Launch
from support.sinks.http_server import HttpServer

from sinks import registry


def test_every_kind_is_listed(tmp_path: Path) -> None:
    """A line a kind, with what it is in a few words."""
    said = run_seb("sinks", "list", home=tmp_path)
    assert (said.code, said.err) == (0, "")
    lines = dict(line.split(maxsplit=1) for line in said.out.splitlines())
    assert set(lines) >= set(registry.BUILT_IN)
    assert [text for text in lines.values() if not text.endswith(".")] == []


def test_a_try_delivers_one_heartbeat(launch: Launch) -> None:
    """Its stream is all zeros, so that nobody takes it for the bridge's own; no state is kept."""
    with HttpServer() as server:
        env = {**launch.env, "SEB_SINK__WEBHOOK__URL": f"{server.origin}/x"}
        said = run_seb("sinks", "test", "webhook", home=launch.home, env=env)
        assert (said.code, said.out) == (0, "webhook: delivered\n")
        (record,) = [json.loads(request.body) for request in server.requests()]
    assert record["type"] == "seb.bridge.heartbeat.v1"
    assert set(record["stream"]) == {"0", "-"}
    assert not launch.state.exists()


def test_a_sink_that_does_not_answer_is_69(launch: Launch) -> None:
    """What went wrong, without the address's path."""
    env = {**launch.env, "SEB_SINK__WEBHOOK__URL": f"{NOWHERE}/path-that-is-secret"}
    said = run_seb("sinks", "test", "webhook", home=launch.home, env=env)
    assert (said.code, said.out) == (69, "")
    assert said.err.startswith(f"seb: webhook: {NOWHERE}: ")
    assert "path" not in said.err


def test_a_sink_that_is_not_there_is_78(launch: Launch) -> None:
    """The names that are configured are shown."""
    said = run_seb("sinks", "test", "ops", home=launch.home, env=launch.env)
    assert said.err == "seb: no sink is called ops; configured are: stdout\n"
    assert said.code == 78


def test_a_running_bridge_speaks_for_its_sinks(launch: Launch) -> None:
    """The sink is in its hands: its own word is given, and nothing is sent."""
    with HttpServer() as server:
        hook = {"SEB_SINK__WEBHOOK__URL": f"{server.origin}/x"}
        launch(**hook).wait_for_log("sink_up")
        env = {**launch.env, **hook}
        said = run_seb("sinks", "test", "webhook", home=launch.home, env=env)
        assert said.out == "webhook: the running bridge says ok, 0 to deliver\n"
        assert (said.code, len(server.requests())) == (0, 1)
