"""A VM whose bridge takes commands over a real broker, and a control plane with a trusted key."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from support.commands.approval_over_mqtt import CONTROL, ApprovalOverMqtt
from support.process.bridge import BridgeProcess, EndedCommand
from support.process.seb_here import Here

from bridge.cli.key_files import write_private
from bridge.simulator.events import SimulatedEvent
from bridge.simulator.simulator import Simulator
from wire import keys

ISSUER = "https://control.example"


class CommandFleet(ApprovalOverMqtt):
    """The same at an IMDS that runs already, with a key in a file; `run` runs the commands."""

    run: Here

    def __init__(self, home: Path, imds: Simulator, *, acl: Sequence[str] | None = None) -> None:
        super().__init__(home, simulator=imds, acl=acl)
        self.imds = imds
        self.key = home / "key.json"
        jwk = keys.generate(issuer=ISSUER, kid="k1", alg="EdDSA")
        write_private(jwk, self.key)
        self.trust.write_text(json.dumps({"keys": [keys.public(jwk)]}))

    def __enter__(self) -> Self:
        self._stack.enter_context(self.broker)
        return self

    @property
    def on_the_vm(self) -> dict[str, str]:
        """The variables of the bridge, and of commands beside it."""
        return {**self.env, "SEB_SINK__STDOUT__FORMAT": "json"}

    def running(self, **variables: str) -> BridgeProcess:
        """A running bridge whose MQTT sink is connected."""
        made = self._stack.enter_context(self.bridge({**self.on_the_vm, **variables}))
        made.wait_until(lambda: any(line["sink"] == "mqtt" for line in made.logs("sink_up")))
        return made

    def news(self, bridge: BridgeProcess, **event: Any) -> str:
        """The id of a new event that the bridge has seen."""
        made = self.imds.announce(SimulatedEvent(**event))
        about = f"scheduledEvents/{made.event_id}"
        bridge.wait_until(lambda: any(each["subject"] == about for each in bridge.records), about)
        return made.event_id

    def here(self, *arguments: str) -> EndedCommand:
        """`seb approve` on the VM."""
        return self.run("approve", *arguments, **self.on_the_vm)

    def afar(self, *arguments: str, key: Path | None = None, **variables: str) -> EndedCommand:
        """`seb approve --to` this VM, from the control plane: the broker, and nothing else."""
        return self.run(
            *("approve", *arguments, "--to", self.vm_id, "--key", str(key or self.key)),
            **{**self.login(CONTROL), **variables},
        )
