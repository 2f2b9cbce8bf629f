"""Approval with real parts: a simulated IMDS, Mosquitto, `seb run`, and a control plane."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from support.commands.control_plane import IssuerKey, jwks
from support.mqtt.mosquitto import Mosquitto
from support.process.bridge import BridgeProcess, fast
from support.process.control_line import Came, ControlLine

from bridge.simulator.events import SimulatedEvent
from bridge.simulator.simulator import Simulator

CONTROL = "control"
OTHER_VM = "00000000-0000-0000-0000-000000000002"


class ApprovalOverMqtt:
    """One broker, one simulator, one key; bridges are started by the tests. With an access list,
    the broker's users are this VM, another one and the control plane.
    """

    def __init__(
        self, home: Path, *, simulator: Simulator | None = None, acl: Sequence[str] | None = None
    ) -> None:
        self.home = home
        self.simulator = simulator or Simulator(approval_delay=0.2)
        self.vm_id = self.simulator.vm.vm_id
        users = {self.vm_id: "vm-word", OTHER_VM: "other-word", CONTROL: "control-word"}
        self.broker = Mosquitto(home / "broker", users=users if acl else {}, acl=acl)
        self.signer = IssuerKey()
        self.trust = home / "trust.json"
        self.trust.write_text(jwks(self.signer))
        self.line: ControlLine
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._stack.enter_context(self.simulator)
        self._stack.enter_context(self.broker)
        who = CONTROL if self.broker.users else None
        self.line = self._stack.enter_context(ControlLine(self.broker, username=who))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def login(self, user: str) -> dict[str, str]:
        """The variables that lead to the broker, as a user where there are any."""
        login = {
            "SEB_SINK__MQTT__HOST": self.broker.host,
            "SEB_SINK__MQTT__PORT": str(self.broker.port),
        }
        if self.broker.users:
            login["SEB_SINK__MQTT__USERNAME"] = user
            login["SEB_SINK__MQTT__PASSWORD"] = self.broker.users[user]
        return login

    @property
    def env(self) -> dict[str, str]:
        """A bridge that takes commands over MQTT and writes a file."""
        return {
            **fast(self.simulator.url, self.home),
            "SEB_APPROVAL__TRUST": str(self.trust),
            "SEB_SINK__MQTT__COMMANDS": "true",
            "SEB_SINK__FILE__PATH": str(self.home / "records.jsonl"),
            **self.login(self.vm_id),
        }

    def bridge(self, env: Mapping[str, str] | None = None) -> BridgeProcess:
        """`seb run`, not started."""
        return BridgeProcess("run", env={**self.env, **(env or {})}, home=self.home)

    def announce(self, **fields: Any) -> Came:
        """An event is announced; its record, as the control plane has it."""
        event = self.simulator.announce(SimulatedEvent(**fields))
        return self.line.wait_for_event(event.event_id)

    def send(self, token: bytes) -> float:
        """A command for the bridge of the simulated VM; when it went out."""
        return self.line.send(self.vm_id, token)

    def effective(self) -> list[str]:
        """The EventIds of the POSTs that had an effect."""
        return [event_id for post in self.simulator.approvals for event_id in post.started]
