"""A VM whose bridge takes commands over a real broker, and a control plane with a trusted key."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from support.mqtt.mosquitto import Mosquitto
from support.process.bridge import BridgeProcess, Ended

from bridge.approval import signing
from bridge.simulator.events import SimulatedEvent
from bridge.simulator.simulator import Simulator

ISSUER = "https://control.example"
BRIDGE, CONTROL = "bridge", "control"


class CommandFleet:
    """One broker with a user for each side, one IMDS, and keys; `bridge` starts the VM's `seb`, and
    `run` is what runs its commands.
    """

    run: Callable[..., Ended]

    def __init__(
        self, home: Path, imds: Simulator, *, users: bool = False, acl: Sequence[str] | None = None
    ) -> None:
        self.home = home
        self.imds = imds
        people = {BRIDGE: "bridge-word", CONTROL: "control-word"} if users else {}
        self.broker = Mosquitto(home / "broker", users=people, acl=acl)
        self.key, self.trust = home / "key.json", home / "trust.json"
        jwk = signing.generate(issuer=ISSUER, kid="k1", alg="EdDSA")
        signing.write_private(jwk, self.key)
        self.trust.write_text(json.dumps({"keys": [signing.public(jwk)]}))
        self.vm_id = imds.vm.vm_id
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._stack.enter_context(self.broker)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _login(self, user: str) -> dict[str, str]:
        login = {
            "SEB_SINK__MQTT__HOST": self.broker.host,
            "SEB_SINK__MQTT__PORT": str(self.broker.port),
        }
        if self.broker.users:
            login["SEB_SINK__MQTT__USERNAME"] = user
            login["SEB_SINK__MQTT__PASSWORD"] = self.broker.users[user]
        return login

    @property
    def on_the_vm(self) -> dict[str, str]:
        """The variables of the bridge, and of commands beside it."""
        return {
            "SEB_IMDS__URL": self.imds.url,
            "SEB_STATE_DIR": str(self.home / "state"),
            "SEB_POLL_INTERVAL": "0.2",
            "SEB_HEARTBEAT_INTERVAL": "0",
            "SEB_APPROVAL__TRUST": str(self.trust),
            "SEB_SINK__STDOUT__FORMAT": "json",
            "SEB_SINK__MQTT__COMMANDS": "true",
            **self._login(BRIDGE),
        }

    @property
    def at_the_control_plane(self) -> dict[str, str]:
        """The variables of `seb approve` elsewhere: the broker, and nothing else."""
        return self._login(CONTROL)

    def bridge(self, **variables: str) -> BridgeProcess:
        """A running bridge whose MQTT sink is connected."""
        made = BridgeProcess("run", env={**self.on_the_vm, **variables}, home=self.home)
        self._stack.enter_context(made)
        made.wait_until(lambda: any(line["sink"] == "mqtt" for line in made.logs("sink_up")))
        return made

    def announce(self, bridge: BridgeProcess, **event: Any) -> str:
        """The id of a new event that the bridge has seen."""
        made = self.imds.announce(SimulatedEvent(**event))
        about = f"scheduledEvents/{made.event_id}"
        bridge.wait_until(lambda: any(each["subject"] == about for each in bridge.records), about)
        return made.event_id

    def here(self, *arguments: str) -> Ended:
        """`seb approve` on the VM."""
        return self.run("approve", *arguments, **self.on_the_vm)

    def afar(self, *arguments: str, key: Path | None = None, **variables: str) -> Ended:
        """`seb approve --to` this VM, from the control plane."""
        return self.run(
            *("approve", *arguments, "--to", self.vm_id, "--key", str(key or self.key)),
            **{**self.at_the_control_plane, **variables},
        )
