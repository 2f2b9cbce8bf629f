"""A control plane's connection to a broker, of paho alone: it keeps every receipt and record."""

import json
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from paho.mqtt.client import Client, MQTTMessage, MQTTMessageInfo
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from support.mqtt.mosquitto import Mosquitto
from support.patience import PATIENCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Came:
    """A record on a topic; `time` is monotonic seconds."""

    topic: str
    record: Mapping[str, Any]
    correlation: bytes | None
    body: bytes
    time: float

    @property
    def data(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.record["data"]
        return found

    @property
    def is_receipt(self) -> bool:
        return self.topic.endswith("/receipt")

    @property
    def step(self) -> tuple[str, str | None]:
        """State and reason of a receipt."""
        return self.data["state"], self.data["reason"]


def _send_at_once(_client: Client, _data: Any, connection: Any) -> None:
    # What Nagle's algorithm holds back here would be measured as the bridge's.
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class ControlLine:
    """One client for all VMs of a site; a context manager."""

    def __init__(self, broker: Mosquitto, *, username: str | None = None) -> None:
        self._changed = threading.Condition()
        self._came: list[Came] = []
        self._listening = threading.Event()
        self._client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
        if username is not None:
            self._client.username_pw_set(username, broker.users[username])
        self._client.on_connect = lambda client, *_: client.subscribe(
            [(f"seb/v1/default/vm/+/{name}", 1) for name in ("event", "receipt")]
        )
        self._client.on_subscribe = lambda *_: self._listening.set()
        self._client.on_message = self._keep
        self._client.on_socket_open = _send_at_once
        self._broker = broker

    def __enter__(self) -> Self:
        self._client.connect(self._broker.host, self._broker.port)
        self._client.loop_start()
        assert self._listening.wait(PATIENCE)
        return self

    def __exit__(self, *_: object) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def send(self, vm_id: str, token: bytes) -> float:
        """Publish a command, and return once the broker has it; when it went out."""
        begun = time.monotonic()
        self.publish(vm_id, token).wait_for_publish(PATIENCE)
        return begun

    def publish(self, vm_id: str, token: bytes) -> MQTTMessageInfo:
        """Hand a command to the client, and do not wait until the broker has it."""
        return self._client.publish(f"seb/v1/default/vm/{vm_id}/command", token, 1)

    @property
    def came(self) -> list[Came]:
        """Everything so far."""
        with self._changed:
            return list(self._came)

    def receipts(self, jti: str | None = None) -> list[Came]:
        """The receipts so far, each record once: it may come twice after a crash."""
        unique = {each.record["id"]: each for each in self.came if each.is_receipt}
        return [each for each in unique.values() if jti in (None, each.data["jti"])]

    def wait_for(self, wanted: Callable[[Came], bool], *, what: str = "it") -> Came:
        """The first that is wanted, once it is there. Raises `AssertionError`."""
        with self._changed:
            found = self._changed.wait_for(
                lambda: next((each for each in self._came if wanted(each)), None), PATIENCE
            )
            assert found is not None, f"{what} did not come; there came {self._told()}"
            return found

    def wait_for_event(self, event_id: str, kind: str = "scheduled") -> Came:
        """The record of that event's transition."""
        return self.wait_for(
            lambda each: (
                not each.is_receipt
                and each.data.get("transition") == kind
                and each.data["event"]["eventId"] == event_id
            ),
            what=f"{kind} of {event_id}",
        )

    def wait_for_step(self, jti: str, state: str, reason: str | None = None) -> Came:
        """The receipt of a command that says so."""
        return self.wait_for(
            lambda each: (
                each.is_receipt and each.data["jti"] == jti and each.step == (state, reason)
            ),
            what=f"{state} {reason} of {jti}",
        )

    def _keep(self, _client: Client, _data: Any, message: MQTTMessage) -> None:
        came = Came(
            topic=message.topic,
            record=json.loads(message.payload),
            correlation=getattr(message.properties, "CorrelationData", None),
            body=bytes(message.payload),
            time=time.monotonic(),
        )
        with self._changed:
            self._came.append(came)
            self._changed.notify_all()

    def _told(self) -> list[str]:
        return [f"{each.record['type']} {each.data.get('state', '')}" for each in self._came]
