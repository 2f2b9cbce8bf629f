"""Where records go while they are measured: a receiver in a process of its own, of each kind.

Beside it: what the bridge and its peers must be told to send there.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from support.amqp.server import SHARED_KEY
from support.mqtt.mosquitto import Mosquitto

from tests.benchmarks.measure import PYTHON, environment

Kind = Literal["mqtt", "webhook", "eventhub"]
KINDS: Final[tuple[Kind, ...]] = ("mqtt", "webhook", "eventhub")
LIBRARIES: Final = {"mqtt": "paho-mqtt", "webhook": "requests", "eventhub": "azure-eventhub"}
"""What a user would send with."""
HUB: Final = "scheduled-events"


@dataclass(frozen=True, slots=True, kw_only=True)
class FarEnd:
    """A receiver of one kind, and how it is reached."""

    kind: Kind
    port: int
    process: subprocess.Popen[str]

    @property
    def address(self) -> str:
        """What a small program is told to reach it."""
        if self.kind == "mqtt":
            return str(self.port)
        if self.kind == "webhook":
            return f"http://127.0.0.1:{self.port}/hook"
        return (
            f"Endpoint=sb://127.0.0.1:{self.port}/;SharedAccessKeyName=send;"
            f"SharedAccessKey={SHARED_KEY};EntityPath={HUB};UseDevelopmentEmulator=true"
        )

    @property
    def variables(self) -> dict[str, str]:
        """What the bridge is told to reach it."""
        if self.kind == "mqtt":
            return {"SEB_SINK__MQTT__HOST": "127.0.0.1", "SEB_SINK__MQTT__PORT": str(self.port)}
        if self.kind == "webhook":
            return {"SEB_SINK__WEBHOOK__URL": self.address}
        return {"SEB_SINK__EVENTHUB__CONNECTION_STRING": self.address}

    def find(self, text: str, *, count: int = 1) -> tuple[float, float]:
        """When the first and the last of so many messages that hold the text had come, in
        monotonic seconds. Messages that were passed on the way are not looked at again.

        Raises `TimeoutError`.
        """
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(f"{count} {text}\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().strip()
        try:
            first, last = map(float, answer.split())
        except ValueError:
            raise TimeoutError(f"{self.kind}: {answer or 'the receiver has ended'}") from None
        return first, last


@contextmanager
def far_end(kind: Kind, scratch: Path) -> Iterator[FarEnd]:
    """A receiver of that kind, and for MQTT the broker before it."""
    with ExitStack() as stack:
        arguments = {"mqtt": ["mqtt"], "webhook": ["http"], "eventhub": ["hub"]}[kind]
        if kind == "mqtt":
            broker = stack.enter_context(Mosquitto(scratch / "broker"))
            arguments.append(str(broker.port))
        process = stack.enter_context(
            subprocess.Popen(
                [PYTHON, "-m", "tests.benchmarks.receiver", *arguments],
                env=environment(),
                cwd=scratch,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        stack.callback(process.kill)
        assert process.stdout
        yield FarEnd(kind=kind, port=int(process.stdout.readline()), process=process)
