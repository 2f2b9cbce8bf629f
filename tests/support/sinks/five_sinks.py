"""Every kind of sink with a real far end, configured by variables as a user would."""

import base64
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from support.amqp.server import SHARED_KEY, EventHubServer
from support.mqtt.mosquitto import Mosquitto
from support.mqtt.subscriber import Subscriber
from support.process.bridge import BridgeProcess
from support.sinks.http_server import HttpServer

HUB = "scheduled-events"
KEY = "whsec_" + base64.b64encode(b"thirty-two bytes that are secret").decode()
PATH = "/hooks/path-that-is-secret"
USER, PASSWORD = "bridge", "password-that-is-secret"
SECRETS = (
    KEY.removeprefix("whsec_"),
    "thirty-two bytes",
    "path-that-is-secret",
    PASSWORD,
    SHARED_KEY,
)


class FiveSinks:
    """Webhook server, broker and hub, each running; and the variables that name them."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "records.jsonl"
        self.http = HttpServer()
        self.broker = Mosquitto(directory / "broker", users={USER: PASSWORD})
        self.hub = EventHubServer()
        self.seen: Subscriber
        self._stack: ExitStack

    def __enter__(self) -> Self:
        with ExitStack() as stack:  # where there is no broker, the others are ended
            for each in (self.http, self.broker, self.hub):
                stack.enter_context(each)
            self.seen = stack.enter_context(self.broker.subscriber("seb/#"))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def env(self) -> dict[str, str]:
        """The variables of the five sinks."""
        return {
            "SEB_SINK__STDOUT__FORMAT": "json",
            "SEB_SINK__FILE__PATH": str(self.file),
            "SEB_SINK__WEBHOOK__URL": f"{self.http.origin}{PATH}",
            "SEB_SINK__WEBHOOK__SECRET": KEY,
            "SEB_SINK__MQTT__HOST": self.broker.host,
            "SEB_SINK__MQTT__PORT": str(self.broker.port),
            "SEB_SINK__MQTT__USERNAME": USER,
            "SEB_SINK__MQTT__PASSWORD": PASSWORD,
            "SEB_SINK__EVENTHUB__CONNECTION_STRING": self.hub.connection_string(HUB),
        }

    def received(self, bridge: BridgeProcess | None = None) -> dict[str, list[bytes]]:
        """What every far end has, in the order of its arrival; of a process, its output too."""
        return {
            "stdout": [line.text.rstrip(b"\n") for line in bridge.output] if bridge else [],
            "file": self.file.read_bytes().splitlines() if self.file.exists() else [],
            "webhook": [request.body for request in self.http.requests()],
            "mqtt": [each.payload for each in self.seen.messages() if is_event(each.topic)],
            "eventhub": [message.body for message in self.hub.messages(HUB)],
        }


def is_event(topic: str) -> bool:
    """Whether records come on this topic."""
    return topic.endswith("/event")
