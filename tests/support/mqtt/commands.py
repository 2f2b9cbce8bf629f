"""The other side of a command topic: who publishes, and a source that notes what is handed in."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

from paho.mqtt import publish
from paho.mqtt.enums import MQTTProtocolVersion
from support.mqtt.mosquitto import Mosquitto
from support.patience import PATIENCE

from sinks.base import CommandMessage


def send(
    broker: Mosquitto, topic: str, *payloads: bytes, qos: int = 1, retain: bool = False
) -> None:
    """Publish, in order; returns once the broker has acknowledged all of them."""
    messages: list[Any] = [
        {"topic": topic, "payload": payload, "qos": qos, "retain": retain} for payload in payloads
    ]
    publish.multiple(
        messages,
        hostname=broker.host,
        port=broker.port,
        protocol=MQTTProtocolVersion.MQTTv5,
    )


class CommandTaker:
    """Takes commands, or turns them away while `full`; `settle` does it at once where it is set."""

    def __init__(self, *, settle: bool = False) -> None:
        self.full = False
        self.settle = settle
        self._messages: list[CommandMessage] = []
        self._tries = 0
        self._changed = threading.Condition()

    def __call__(self, message: CommandMessage) -> bool:
        with self._changed:
            self._tries += 1
            if not self.full:
                self._messages.append(message)
            self._changed.notify_all()
        if not self.full and self.settle:
            message.on_settled()
        return not self.full

    @property
    def messages(self) -> Sequence[CommandMessage]:
        """What was taken so far."""
        with self._changed:
            return tuple(self._messages)

    @property
    def tokens(self) -> Sequence[bytes]:
        """The same, the tokens alone."""
        return [message.token for message in self.messages]

    def wait_for(self, count: int) -> Sequence[CommandMessage]:
        """So many messages, once they are there."""
        self._wait(lambda: len(self._messages) >= count)
        return self.messages

    def wait_for_tries(self, count: int) -> None:
        """Until it was asked so often, whatever it said."""
        self._wait(lambda: self._tries >= count)

    def _wait(self, done: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(done, PATIENCE), f"only {len(self._messages)} came"
