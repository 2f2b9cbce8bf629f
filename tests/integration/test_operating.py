"""What an operator sees of a bridge whose broker, whose IMDS or whose own loop fails."""

import json
import threading
from pathlib import Path

import pytest
from support.documents.documents import VM, StandInImds, body
from support.mqtt.mosquitto import Mosquitto
from support.page.onlooker import Onlooker
from support.process.bridge import BridgeProcess, run_seb
from support.process.launch import Launch

from bridge.api import liveness
from bridge.config import load
from bridge.logs import Redactor
from bridge.service import bridge as run
from bridge.service import ownership
from bridge.simulator.events import SimulatedEvent
from bridge.simulator.simulator import Simulator

BACKLOG = 'seb_sink_backlog_records{kind="mqtt",sink="mqtt"}'
OLDEST = 'seb_sink_oldest_pending_timestamp_seconds{kind="mqtt",sink="mqtt"}'
UP = 'seb_sink_up{kind="mqtt",sink="mqtt"}'


def probes(seen: Onlooker) -> tuple[int, int]:
    """What a kubelet would be told."""
    return seen.code("/healthz"), seen.code("/readyz")


def test_a_dead_broker_turns_its_sink_and_no_probe(
    launch: Launch, simulator: Simulator, tmp_path: Path
) -> None:
    """Backlog and the time of the oldest rise in metrics and status; health and readiness stay."""
    seen = Onlooker()
    with Mosquitto(tmp_path) as broker:
        launch(
            **seen.env,
            SEB_SINK__MQTT__HOST="127.0.0.1",
            SEB_SINK__MQTT__PORT=str(broker.port),
        ).wait_for_log("sink_up")
        seen.wait_for(lambda: seen.samples().get(BACKLOG) == 0.0, "an empty backlog")
        seen.wait_for(lambda: probes(seen) == (200, 200), "a bridge that looks")
        assert OLDEST not in seen.samples()
    simulator.announce(SimulatedEvent())
    seen.wait_for(lambda: seen.samples()[BACKLOG] > 0.0, "a backlog")
    seen.wait_for(lambda: seen.samples()[UP] == 0.0, "a sink that is down")
    assert OLDEST in seen.samples()
    (sink,) = seen.status()["sinks"]
    assert (sink["name"], sink["state"]) == ("mqtt", "failing")
    assert sink["backlog"] > 0
    assert sink["oldestPendingAt"] is not None
    assert probes(seen) == (200, 200)


def test_an_imds_that_is_gone_turns_readiness_alone(launch: Launch) -> None:
    """Within the fifteen seconds that an operator may wait."""
    seen = Onlooker()
    with Simulator() as simulator:
        launch(**seen.env, SEB_IMDS__URL=simulator.url).wait_for_log("started")
        seen.wait_for(lambda: probes(seen) == (200, 200), "a bridge that looks")
    seen.wait_for(lambda: seen.code("/readyz") == 503, "not ready", seconds=15.0)
    told = seen.status()
    assert (told["looking"], told["healthy"], told["ready"]) == (False, True, False)
    assert told["imds"]["trouble"]["reason"] == "refused"
    assert seen.samples()["seb_looking"] == 0.0
    assert seen.code("/healthz") == 200


def test_a_loop_that_hangs_turns_health(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A poll that never comes back is what a restart is for."""
    seen, hanging, stop = Onlooker(), threading.Event(), threading.Event()

    class Imds(StandInImds):
        """Answers once, and never again."""

        def document(self) -> bytes:
            if self.asked > 1:
                hanging.wait()
            return body()

    monkeypatch.setattr(liveness, "SLACK_SECONDS", 0.5)
    monkeypatch.setattr(run, "client", lambda *_: Imds())
    monkeypatch.setattr(ownership, "fetch_identity", lambda *_: VM)
    config = load.load(
        environ={
            "SEB_IMDS__URL": Imds.url,
            "SEB_IMDS__TIMEOUT": "0.1",
            "SEB_POLL_INTERVAL": "0.1",
            "SEB_STATE_DIR": str(tmp_path / "state"),
            "SEB_SINK__FILE__PATH": str(tmp_path / "out.jsonl"),
            **seen.env,
        }
    )
    bridge = run.Bridge(config, stop=stop, redact=Redactor())
    running = threading.Thread(target=bridge.run)
    running.start()
    try:
        seen.wait_for(lambda: seen.code("/readyz") == 200, "a bridge that looks")
        seen.wait_for(lambda: seen.code("/healthz") == 503, "a loop that hangs")
    finally:
        hanging.set()
        stop.set()
        running.join(30.0)


def test_it_is_seen_before_it_is_known_who_it_is(tmp_path: Path) -> None:
    """An IMDS that is late at boot must not have the bridge restarted."""
    seen = Onlooker()
    with Simulator() as simulator:
        gone = simulator.url
    launch_env = {
        **seen.env,
        "SEB_IMDS__URL": gone,
        "SEB_STATE_DIR": str(tmp_path / "state"),
        "SEB_POLL_INTERVAL": "0.1",
    }
    with BridgeProcess("run", env=launch_env, home=tmp_path):
        seen.wait_for(lambda: probes(seen) == (200, 503), "a bridge that waits")
        told = seen.status()
        assert (told["vm"], told["imds"]["trouble"]["reason"]) == (None, "identity")
        assert seen.samples()["seb_looking"] == 0.0
        code = run_seb("status", env=launch_env, home=tmp_path)
        assert (code.code, "waiting for the VM identity from IMDS" in code.out) == (1, True)


def test_the_commands_show_what_the_server_tells(
    launch: Launch, simulator: Simulator, tmp_path: Path
) -> None:
    """status, events and tail, for people and as JSON."""
    seen = Onlooker()
    launch(**seen.env).wait_for_log("started")
    event = simulator.announce(SimulatedEvent())
    seen.wait_for(lambda: bool(seen.status()["events"]), "an event")
    env = {**launch.env, **seen.env}
    assert event.event_id in run_seb("status", env=env, home=tmp_path).out
    told = json.loads(run_seb("status", "--json", env=env, home=tmp_path).out)
    assert told.keys() == seen.status().keys()
    assert run_seb("status", "--alive", env=env, home=tmp_path).code == 0
    lines = run_seb("events", env=env, home=tmp_path).out.splitlines()
    assert ["started" in lines[0], "scheduled" in lines[1], len(lines)] == [True, True, 2]
    listed = json.loads(run_seb("events", "--json", "--limit", "1", env=env, home=tmp_path).out)
    assert [record["type"] for record in listed["records"]] == ["seb.event.scheduled.v1"]


def test_tail_follows_through_a_restart(launch: Launch, simulator: Simulator) -> None:
    """What is committed before it is back is told all the same, once."""
    seen = Onlooker()
    first = launch(**seen.env)
    first.wait_for_log("started")
    seen.wait_for(lambda: seen.code("/readyz") == 200, "a bridge that looks")
    env = {**launch.env, **seen.env}
    with BridgeProcess("tail", "--format", "json", env=env, home=launch.home) as tail:
        seen.wait_for(lambda: _followers(seen) == 1, "a follower")
        simulator.announce(SimulatedEvent())
        tail.wait_for_records(1, types="seb.event.")
        first.stop()
        simulator.announce(SimulatedEvent())
        launch(**seen.env).wait_for_log("started")
        tail.wait_for_records(2, types="seb.event.")
        sequences = [int(record["sequence"]) for record in tail.records]
        assert sequences == list(range(sequences[0], sequences[0] + len(sequences)))


def _followers(seen: Onlooker) -> int:
    """How many connections the server has beside the one that asks."""
    ours = f"{seen.port:04X}"
    lines = Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()
    return sum(1 for line in lines if f":{ours} " in line[:30] and line.split()[3] == "01")
