"""Where records go while they are measured: a receiver of each kind, in a process of its own."""

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Literal

from support.amqp.server import SHARED_KEY
from support.mqtt.mosquitto import Mosquitto

from bridge.simulator.events import SimulatedEvent
from bridge.simulator.simulator import Simulator
from tests.benchmarks.measure import child

Kind = Literal["mqtt", "webhook", "eventhub"]
KINDS: Final[tuple[Kind, ...]] = ("mqtt", "webhook", "eventhub")
LIBRARIES: Final = {"mqtt": "paho-mqtt", "webhook": "requests", "eventhub": "azure-eventhub"}
"""What a user would send with."""
HUB: Final = "scheduled-events"
_PATIENCE: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredEnd:
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


def announce(simulator: Simulator, far: MeasuredEnd, *, count: int = 1) -> tuple[float, float]:
    """Announce one event, and see it arrive so many times; milliseconds from IMDS serving it to the
    first and to the last. Raises `TimeoutError`.
    """
    not_before = datetime.now(UTC) + timedelta(minutes=15)
    event = SimulatedEvent(resources=(simulator.vm.name,), not_before=not_before)
    if not simulator.wait_until_served(timeout=_PATIENCE):
        raise TimeoutError("the document was not polled")
    simulator.announce(event)
    first, last = far.find(event.event_id, count=count)
    served = simulator.history[-1].first_served
    assert served is not None
    simulator.end_event(event.event_id)
    return 1000 * (first - served), 1000 * (last - served)


@contextmanager
def far_end(kind: Kind, scratch: Path) -> Iterator[MeasuredEnd]:
    """A receiver of that kind, and for MQTT the broker before it."""
    with ExitStack() as stack:
        arguments = {"mqtt": ["mqtt"], "webhook": ["http"], "eventhub": ["hub"]}[kind]
        if kind == "mqtt":
            broker = stack.enter_context(Mosquitto(scratch / "broker"))
            arguments.append(str(broker.port))
        process = stack.enter_context(child("receiver", *arguments, scratch=scratch))
        assert process.stdout
        yield MeasuredEnd(kind=kind, port=int(process.stdout.readline()), process=process)
