"""Approval with real parts: a simulated IMDS, Mosquitto, `seb run` as a process, and a control
plane's keys and connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from support.commands.control_plane import Signer, jwks
from support.mqtt.mosquitto import Mosquitto
from support.process.bridge import BridgeProcess, fast
from support.process.control_line import Came, ControlLine

from bridge.simulator.events import SimulatedEvent
from bridge.simulator.simulator import Simulator


class Stage:
    """One broker, one simulator, one set of keys; bridges are started by the tests."""

    def __init__(self, home: Path, *, simulator: Simulator | None = None) -> None:
        self.home = home
        self.simulator = simulator or Simulator(approval_delay=0.2)
        self.broker = Mosquitto(home / "broker")
        self.signer = Signer()
        self.trust = home / "trust.json"
        self.trust.write_text(jwks(self.signer))
        self.line: ControlLine
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._stack.enter_context(self.simulator)
        self._stack.enter_context(self.broker)
        self.line = self._stack.enter_context(ControlLine(self.broker))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def env(self) -> dict[str, str]:
        """A bridge that takes commands over MQTT and writes a file."""
        return {
            **fast(self.simulator.url, self.home),
            "SEB_APPROVAL__TRUST": str(self.trust),
            "SEB_SINK__MQTT__HOST": self.broker.host,
            "SEB_SINK__MQTT__PORT": str(self.broker.port),
            "SEB_SINK__MQTT__COMMANDS": "true",
            "SEB_SINK__FILE__PATH": str(self.home / "records.jsonl"),
        }

    def bridge(self, env: Mapping[str, str] | None = None) -> BridgeProcess:
        """`seb run`, not started."""
        return BridgeProcess("run", env={**self.env, **(env or {})}, home=self.home)

    def announce(self, **fields: Any) -> Came:
        """An event is announced; its record, as the control plane has it."""
        event = self.simulator.announce(SimulatedEvent(**fields))
        return self.line.wait_for_event(event.event_id)

    def send(self, token: bytes, *, vm_id: str | None = None, retain: bool = False) -> float:
        """A command for the bridge of the simulated VM; when it went out."""
        return self.line.send(vm_id or self.simulator.vm.vm_id, token, retain=retain)

    def effective(self) -> list[str]:
        """The EventIds of the POSTs that had an effect."""
        return [event_id for post in self.simulator.approvals for event_id in post.started]
