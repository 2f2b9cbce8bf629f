"""The view of an operator while a broker, IMDS or the poll loop fails."""

import json
from pathlib import Path
from typing import Any

from support.mqtt.mosquitto import Mosquitto
from support.page.onlooker import Onlooker
from support.process.bridge import BridgeProcess
from support.process.launch import Launch
from support.process.seb_here import Here
from support.sinks.http_server import HttpServer

from bridge.simulator.events import SimulatedEvent
from bridge.simulator.simulator import Simulator

BACKLOG = 'seb_sink_backlog_records{kind="mqtt",sink="mqtt"}'
OLDEST = 'seb_sink_oldest_pending_timestamp_seconds{kind="mqtt",sink="mqtt"}'
UP = 'seb_sink_up{kind="mqtt",sink="mqtt"}'


def probes(seen: Onlooker) -> tuple[int, int]:
    """Return the answers to a kubelet's probes."""
    return seen.code("/healthz"), seen.code("/readyz")


def test_a_dead_broker_changes_no_probe(
    launch: Launch, simulator: Simulator, tmp_path: Path
) -> None:
    """While a broker is dead, backlog and oldest record are in metrics and status; health and
    readiness stay.
    """
    onlooker = Onlooker()
    with Mosquitto(tmp_path) as broker:
        bridge = launch(
            **onlooker.env,
            SEB_SINK__MQTT__HOST="127.0.0.1",
            SEB_SINK__MQTT__PORT=str(broker.port),
        )
        for action in ("http_listening", "sink_up"):
            bridge.wait_for_log(action)
        onlooker.wait_for(lambda: onlooker.samples().get(BACKLOG) == 0.0, "an empty backlog")
        onlooker.wait_for(lambda: probes(onlooker) == (200, 200), "a bridge that looks")
        assert OLDEST not in onlooker.samples()
    simulator.announce(SimulatedEvent())
    onlooker.wait_for(lambda: onlooker.samples()[BACKLOG] > 0.0, "a backlog")
    onlooker.wait_for(lambda: onlooker.samples()[UP] == 0.0, "a sink that is down")
    assert OLDEST in onlooker.samples()
    (sink,) = onlooker.status()["sinks"]
    assert (sink["name"], sink["state"]) == ("mqtt", "failing")
    assert sink["backlog"] > 0
    assert sink["oldestPendingAt"] is not None
    assert probes(onlooker) == (200, 200)


def test_the_commands_show_what_the_server_tells(
    launch: Launch, simulator: Simulator, here: Here
) -> None:
    """`seb status`, `events` and `tail` show the server's data, for people and as JSON."""
    onlooker = Onlooker()
    launch(**onlooker.env).wait_for_log("http_listening")
    event = simulator.announce(SimulatedEvent())
    onlooker.wait_for(lambda: bool(onlooker.status()["events"]), "an event")
    env = {**launch.env, **onlooker.env}
    assert event.event_id in here("status", **env).out
    told = json.loads(here("status", "--json", **env).out)
    assert told.keys() == onlooker.status().keys()
    assert here("status", "--alive", **env).code == 0
    lines = here("events", **env).out.splitlines()
    assert ["started" in lines[0], "scheduled" in lines[1], len(lines)] == [True, True, 2]
    listed = json.loads(here("events", "--json", "--limit", "1", **env).out)
    assert [record["type"] for record in listed["records"]] == ["seb.event.scheduled.v1"]


def sink(seen: Onlooker, name: str) -> dict[str, Any]:
    """Return the line of a sink in the status."""
    (found,) = [each for each in seen.status()["sinks"] if each["name"] == name]
    line: dict[str, Any] = found
    return line


def test_status_is_green_while_everything_works(launch: Launch, here: Here) -> None:
    """`seb status` ends with 0 while each sink delivers, and with 1 while one holds its backlog;
    the bridge stays ready.
    """
    onlooker = Onlooker()
    with HttpServer() as server:
        server.answer(status=401)
        bridge = launch(
            **onlooker.env,
            SEB_SINK__HOOK__KIND="webhook",
            SEB_SINK__HOOK__URL=f"{server.origin}/x",
            SEB_HEARTBEAT_INTERVAL="0.5",
        )
        bridge.wait_for_log("sink_down")
        onlooker.wait_for(lambda: probes(onlooker) == (200, 200), "a bridge that looks")
        env = {**launch.env, **onlooker.env}
        result = here("status", **env)
        assert (result.code, "401 Unauthorized" in result.out) == (1, True)
        assert probes(onlooker) == (200, 200)
        server.answer(status=200)
        bridge.wait_for_log("sink_up")
        assert here("status", **env).code == 0


def test_status_is_not_green_while_a_sink_refuses(launch: Launch, here: Here) -> None:
    """A sink that refused the last record is not green until that record is dropped: `seb status`
    ends with 1, and `seb check` with 69, with the reason and a remedy.
    """
    onlooker = Onlooker()
    refusing = {
        "SEB_SINK__DRAIN__KIND": "program",
        "SEB_SINK__DRAIN__COMMAND": json.dumps(["/bin/sh", "-c", "exit 65"]),
    }
    bridge = launch(**onlooker.env, **refusing)
    bridge.wait_for_log("record_dead", count=2)  # the start, and the dead letter about it
    onlooker.wait_for(lambda: probes(onlooker) == (200, 200), "a bridge that looks")
    env = {**launch.env, **onlooker.env, **refusing}
    onlooker.wait_for(lambda: sink(onlooker, "drain")["reason"] is not None, "the last answer")
    assert sink(onlooker, "drain")["state"] == "idle"
    assert here("status", **env).code == 1
    checked = here("check", **env)
    assert (checked.code, "seb outbox drop" in checked.out) == (69, True)
    assert here("outbox", "drop", "drain", "--yes", **env).code == 0
    onlooker.wait_for(lambda: here("status", **env).code == 0, "a green status")


def test_tail_follows_through_a_restart(launch: Launch, simulator: Simulator) -> None:
    """`seb tail` prints the records of a restart once each, also those that were committed while it
    had no connection.
    """
    onlooker = Onlooker()
    first = launch(**onlooker.env)
    first.wait_for_log("http_listening")
    onlooker.wait_for(lambda: onlooker.code("/readyz") == 200, "a bridge that looks")
    env = {**launch.env, **onlooker.env}
    with BridgeProcess("tail", "--format", "json", env=env, home=launch.home) as tail:
        onlooker.wait_for(lambda: _followers(onlooker) == 1, "a follower")
        simulator.announce(SimulatedEvent())
        tail.wait_for_records(1, types="seb.event.")
        first.stop()
        simulator.announce(SimulatedEvent())
        launch(**onlooker.env).wait_for_log("started")
        tail.wait_for_records(2, types="seb.event.")
        sequences = [int(record["sequence"]) for record in tail.records]
        assert sequences == list(range(sequences[0], sequences[0] + len(sequences)))


def _followers(seen: Onlooker) -> int:
    """Return how many connections the server has, without this one."""
    ours = f"{seen.port:04X}"
    lines = Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()
    return sum(1 for line in lines if f":{ours} " in line[:30] and line.split()[3] == "01")
