"""A console with a key, a broker, and bridges that trust the key: everything real but Azure."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

import requests
from support.console.process import ConsoleProcess
from support.eventually import eventually
from support.mqtt.mosquitto import Mosquitto
from support.process.bridge import BridgeProcess

from bridge.cli.key_files import write_private
from bridge.simulator.approvals import Post
from bridge.simulator.events import SimulatedEvent
from bridge.simulator.simulator import Simulator
from bridge.simulator.timeline import UnknownEventError
from bridge.simulator.vm import SimulatedVm
from wire import keys

FINAL = ("confirmed", "failed", "rejected", "unanswered")


def made_key(directory: Path, *, alg: str = "EdDSA") -> tuple[Path, Path]:
    """A private key, and the file that the bridges trust."""
    directory.mkdir(parents=True, exist_ok=True)
    private, trust = directory / "console.jwk", directory / "trust.jwks"
    jwk = keys.generate(issuer="https://console.example", kid=None, alg=alg)
    write_private(jwk, private)
    trust.write_text(json.dumps({"keys": [keys.public(jwk)]}))
    return private, trust


class DecisionBench:
    """VMs with their simulators and bridges, one broker, and a console that can approve."""

    def __init__(
        self,
        directory: Path,
        *,
        vms: int = 1,
        alg: str = "EdDSA",
        heartbeat: str = "1",
        on_approval: Callable[[Post], None] = lambda _: None,
    ) -> None:
        self.directory = directory
        self.heartbeat = heartbeat
        self.key, self.trust = made_key(directory / "keys", alg=alg)
        self.broker = Mosquitto(directory / "broker")
        self.simulators = [
            Simulator(
                vm=SimulatedVm(name=f"web-{n}", vm_id=f"{n:08}-0000-4000-8000-000000000000"),
                approval_delay=0.3,
                on_approval=on_approval,
            )
            for n in range(vms)
        ]
        self.bridges: list[BridgeProcess] = []
        self.stack = ExitStack()

    def __enter__(self) -> Self:
        self.stack.enter_context(self.broker)
        for n, simulator in enumerate(self.simulators):
            self.stack.enter_context(simulator)
            self.bridges.append(self._bridge(n, simulator))
            self.stack.enter_context(self.bridges[-1])
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    def broker_port(self, name: str) -> int:
        """Where a console or a bridge finds the broker."""
        del name
        return self.broker.port

    def source(self, name: str) -> dict[str, str]:
        """A console's settings for the broker and the key."""
        return {
            "SOURCE__BROKER__KIND": "mqtt",
            "SOURCE__BROKER__HOST": self.broker.host,
            "SOURCE__BROKER__PORT": str(self.broker_port(name)),
            "KEY": str(self.key),
        }

    def console(self, name: str = "console", **settings: str) -> ConsoleProcess:
        """A console of this bench, not started."""
        return ConsoleProcess(self.directory / name, **{**self.source(name), **settings})

    def _bridge(self, number: int, simulator: Simulator) -> BridgeProcess:
        home = self.directory / f"bridge-{number}"
        home.mkdir()
        env = {
            "SEB_IMDS__URL": simulator.url,
            "SEB_STATE_DIR": str(home / "state"),
            "SEB_POLL_INTERVAL": "0.2",
            "SEB_HEARTBEAT_INTERVAL": self.heartbeat,
            "SEB_SINK__MQTT__HOST": self.broker.host,
            "SEB_SINK__MQTT__PORT": str(self.broker_port(home.name)),
            "SEB_SINK__MQTT__COMMANDS": "true",
            "SEB_APPROVAL__TRUST": str(self.trust),
            **self.more(home),
        }
        return BridgeProcess("run", env=env, home=home)

    def more(self, home: Path) -> dict[str, str]:
        """Further settings of a bridge; `home` is its directory."""
        del home
        return {}

    def announce(self, event_type: str = "Reboot") -> str:
        """An event that names every VM of this bench; its id."""
        soon = datetime.now(UTC) + timedelta(minutes=10)
        names = tuple(each.vm.name for each in self.simulators)
        event = SimulatedEvent(event_type=event_type, not_before=soon, resources=names)
        for simulator in self.simulators:
            simulator.announce(event)
        return event.event_id

    def spread(self, event_id: str) -> None:
        """Let an event start at every VM once it has started at one: Azure shows all the same."""
        with suppress(UnknownEventError):
            if any(each.find(event_id).status == "Started" for each in self.simulators):
                for simulator in self.simulators:
                    simulator.start_event(event_id)

    @property
    def effective(self) -> list[str]:
        """The events that POSTs at any VM have started."""
        posts = [post for each in self.simulators for post in each.approvals]
        return [event_id for post in posts for event_id in post.started]

    def due(self, console: ConsoleProcess, event_id: str) -> dict[str, Any]:
        """Wait until an event waits for a decision and every VM has reported it; the event."""

        def is_due() -> bool:
            event = console.events().get(event_id, {})
            seen = event.get("seenBy") == len(self.simulators)
            return bool(seen and event["decision"]["state"] == "due")

        eventually(is_due, what="a due decision", timeout=60)
        return dict(console.events()[event_id])


def decide(
    console: ConsoleProcess,
    event: dict[str, Any],
    reason: str = "maintenance",
    *,
    to: str = "approve",
    **more: Any,
) -> requests.Response:
    """Say what is to be done about an event as it was seen."""
    url = f"{console.url}/api/v1/events/{event['eventId']}/{to}"
    body = {"fingerprint": event["fingerprint"], "reason": reason, **more}
    return console.http.post(url, json=body, timeout=20)


def ended(console: ConsoleProcess, jti: str, *, timeout: float = 60) -> dict[str, Any]:
    """The command, once it has come to its end."""
    eventually(
        lambda: console.get(f"commands/{jti}")["state"] in FINAL,
        what=f"the end of the command\n{console.log}",
        timeout=timeout,
    )
    found: dict[str, Any] = console.get(f"commands/{jti}")
    return found


def audit(console: ConsoleProcess) -> list[dict[str, Any]]:
    """Every row of the audit that is about an event."""
    text = console.http.get(f"{console.url}/api/v1/audit?limit=1000", timeout=10).text
    rows = [json.loads(line) for line in text.splitlines()]
    return [row for row in rows if "eventId" in row]
