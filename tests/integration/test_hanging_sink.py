"""A far end that takes connections and never answers: no other sink may notice."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from bridge_process import BridgeProcess
from eventually import eventually
from five_sinks import HUB, PATH, FiveSinks
from tcp_gate import TcpGate

from bridge.simulator import SimulatedEvent, Simulator

GRACE = 5.0
CHANGES = 9


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A bridge with standard output, a file, and one sink behind a gate."""

    kind: str
    sinks: FiveSinks
    gate: TcpGate
    simulator: Simulator
    bridge: BridgeProcess

    def arrived(self) -> list[bytes]:
        """What the far end behind the gate has; what came twice, as an answer was cut off, once."""
        return list(dict.fromkeys(self.sinks.received()[self.kind]))


def behind(gate: TcpGate, sinks: FiveSinks, kind: str) -> Mapping[str, str]:
    """The variables of a sink whose far end is behind the gate."""
    if kind == "webhook":
        return {"SEB_SINK__WEBHOOK__URL": f"http://127.0.0.1:{gate.port}{PATH}"}
    if kind == "mqtt":
        names = ("HOST", "USERNAME", "PASSWORD")
        variables = {name: sinks.env[name] for name in (f"SEB_SINK__MQTT__{n}" for n in names)}
        return {**variables, "SEB_SINK__MQTT__PORT": str(gate.port)}
    told = sinks.hub.connection_string(HUB).replace(f":{sinks.hub.port}/", f":{gate.port}/")
    return {"SEB_SINK__EVENTHUB__CONNECTION_STRING": told}


@pytest.fixture(params=["webhook", "mqtt", "eventhub"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    """Everything runs, and the sink behind the gate has had its first record."""
    kind = str(request.param)
    with FiveSinks(tmp_path) as sinks, Simulator() as simulator:
        far = {"webhook": sinks.http, "mqtt": sinks.broker, "eventhub": sinks.hub}[kind]
        with TcpGate(far.port) as gate:
            env = {
                "SEB_IMDS__URL": simulator.url,
                "SEB_STATE_DIR": str(tmp_path / "state"),
                "SEB_POLL_INTERVAL": "0.1",
                "SEB_SINK__STDOUT__FORMAT": "json",
                "SEB_SINK__FILE__PATH": str(sinks.file),
                **behind(gate, sinks, kind),
            }
            with BridgeProcess("run", env=env, home=tmp_path) as bridge:
                scene = Scene(kind=kind, sinks=sinks, gate=gate, simulator=simulator, bridge=bridge)
                bridge.wait_for_log("sink_up", count=3)
                eventually(lambda: len(scene.arrived()) == 1, what="the first record")
                yield scene
        assert sinks.hub.bugs == []


def latency(scene: Scene) -> float:
    """Median of seconds from a document's last byte to its record on standard output."""
    taken = []
    for _ in range(CHANGES):
        place = len(scene.simulator.history)
        event = scene.simulator.announce(SimulatedEvent())
        known = event.event_id.encode()
        scene.bridge.wait_until(
            lambda known=known: any(known in line.text for line in scene.bridge.output)  # type: ignore[misc]
        )
        line = next(line for line in scene.bridge.output if known in line.text)
        served = scene.simulator.history[place].first_served
        assert served is not None
        taken.append(line.time - served)
        scene.simulator.end_event(event.event_id)
    return statistics.median(taken)


def test_others_are_not_delayed_and_nothing_is_lost(scene: Scene) -> None:
    """The others' median stays, the backlog arrives once the far end is healed, a stop is quick."""
    healthy = latency(scene)
    scene.gate.shut()
    hanging = latency(scene)
    assert scene.gate.wait_for_held()
    assert hanging < 3 * healthy + 0.02

    scene.gate.open()
    eventually(
        lambda: scene.arrived() == scene.sinks.file.read_bytes().splitlines(), what="the backlog"
    )
    assert len(scene.arrived()) > 2 * CHANGES

    scene.gate.shut()
    latency(scene)
    assert scene.gate.wait_for_held()
    begun = time.monotonic()
    code = scene.bridge.stop()
    assert time.monotonic() - begun < GRACE + 1
    assert code == 0
    stopped = scene.bridge.logs("stopped")[0]
    assert (stopped["undelivered"], stopped["stuck"]) == (scene.kind, True)
    last = json.loads(scene.sinks.file.read_bytes().splitlines()[-1])
    assert last["type"] == "seb.bridge.stopped.v1"
