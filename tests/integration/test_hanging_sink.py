"""A far end that takes connections and never answers: no other sink may notice."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.eventually import eventually
from support.faults.tcp_gate import TcpGate
from support.process.bridge import BridgeProcess
from support.sinks.five import HUB, PATH, FiveSinks

from bridge.simulator.events import SimulatedEvent
from bridge.simulator.simulator import Simulator

GRACE = 5.0
CHANGES = 6


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A bridge with standard output, a file, and each kind of remote sink behind a gate."""

    sinks: FiveSinks
    gates: Mapping[str, TcpGate]
    simulator: Simulator
    bridge: BridgeProcess

    def arrived(self, kind: str) -> list[bytes]:
        """What a far end has; what came twice, as an answer was cut off, once."""
        return list(dict.fromkeys(self.sinks.received()[kind]))

    def written(self) -> list[bytes]:
        """What the file has."""
        return self.sinks.file.read_bytes().splitlines()

    def wait_for_everything(self, *kinds: str) -> None:
        """Wait until these far ends have what the file has."""
        for kind in kinds:
            eventually(lambda k=kind: self.arrived(k) == self.written(), what=f"all of {kind}")  # type: ignore[misc]

    def latency(self) -> float:
        """Median of seconds from a document's last byte to its record on standard output."""
        return statistics.median(self._delay() for _ in range(CHANGES))

    def _delay(self) -> float:
        place = len(self.simulator.history)
        event = self.simulator.announce(SimulatedEvent())
        known = event.event_id.encode()
        self.bridge.wait_until(lambda: any(known in line.text for line in self.bridge.output))
        line = next(line for line in self.bridge.output if known in line.text)
        served = self.simulator.history[place].first_served
        assert served is not None
        self.simulator.end_event(event.event_id)
        return line.time - served


def variables(gates: Mapping[str, TcpGate], sinks: FiveSinks) -> dict[str, str]:
    """The sinks, each at its gate."""
    told = sinks.hub.connection_string(HUB)
    gate = gates["eventhub"].port
    return {
        **sinks.env,
        "SEB_SINK__WEBHOOK__URL": f"http://127.0.0.1:{gates['webhook'].port}{PATH}",
        "SEB_SINK__MQTT__PORT": str(gates["mqtt"].port),
        "SEB_SINK__EVENTHUB__CONNECTION_STRING": told.replace(f":{sinks.hub.port}/", f":{gate}/"),
    }


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    """Everything runs, and every sink has had its first record."""
    with ExitStack() as stack:
        sinks = stack.enter_context(FiveSinks(tmp_path))
        simulator = stack.enter_context(Simulator())
        ports = {"webhook": sinks.http.port, "mqtt": sinks.broker.port, "eventhub": sinks.hub.port}
        gates = {kind: stack.enter_context(TcpGate(port)) for kind, port in ports.items()}
        env = {
            **variables(gates, sinks),
            "SEB_IMDS__URL": simulator.url,
            "SEB_STATE_DIR": str(tmp_path / "state"),
            "SEB_POLL_INTERVAL": "0.1",
            "SEB_HEARTBEAT_INTERVAL": "0",
        }
        bridge = stack.enter_context(BridgeProcess("run", env=env, home=tmp_path))
        bridge.wait_for_log("sink_up", count=5)
        yield Scene(sinks=sinks, gates=gates, simulator=simulator, bridge=bridge)
        assert sinks.hub.bugs == []


def test_one_hangs_and_the_others_do_not_notice(scene: Scene) -> None:
    """Each in turn: the others are as fast as without it, and its backlog comes once it heals.

    In the end all of them hang, and a stop is quick all the same.
    """
    healthy = scene.latency()
    for kind, gate in scene.gates.items():
        gate.shut()
        hanging = scene.latency()
        assert gate.wait_for_held(), kind
        assert hanging < 3 * healthy + 0.02, kind
        scene.wait_for_everything(*(other for other in scene.gates if other != kind))
        assert len(scene.arrived(kind)) < len(scene.written())
        gate.open()
        scene.wait_for_everything(kind)

    for gate in scene.gates.values():
        gate.shut()
    assert scene.latency() < 3 * healthy + 0.02
    for gate in scene.gates.values():
        assert gate.wait_for_held()
    begun = time.monotonic()
    assert scene.bridge.stop() == 0
    assert time.monotonic() - begun < GRACE + 1
    stopped = scene.bridge.logs("stopped")[0]
    assert set(stopped["undelivered"].split(",")) == set(scene.gates)
    assert json.loads(scene.written()[-1])["type"] == "seb.bridge.stopped.v1"
