"""A subscriber for tests: it sees every message of its filters, with its MQTT 5 properties.

It fetches on demand: the broker keeps what comes in between, also over a restart, in a persistent
session. A fetch is complete without waiting for silence: it ends with a marker that it publishes
itself, behind everything that the broker had acknowledged before.
"""

import queue
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions
from support.patience import PATIENCE


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenMessage:
    """A message as it arrived."""

    topic: str
    payload: bytes
    retain: bool
    qos: int
    content_type: str | None = None
    expiry: int | None = None
    correlation: bytes | None = None
    user: Sequence[tuple[str, str]] = field(default=())


class Subscriber:
    """A persistent session at a broker; `messages` fetches what has come."""

    def __init__(
        self,
        *,
        host: str,
        port: int,
        filters: Sequence[str],
        username: str | None,
        password: str | None,
        tls: ssl.SSLContext | None,
    ) -> None:
        self._address = (host, port)
        self._filters = filters
        self._login = (username, password)
        self._tls = tls
        self._id = f"test-{uuid4().hex[:12]}"
        self._marker = f"test-marker/{self._id}"
        self._inbox: queue.Queue[SeenMessage] = queue.Queue()
        self._all: list[SeenMessage] = []
        self._client: Client | None = None
        # With its marker: to leave earlier would leave retained messages unacknowledged, and so
        # have them come twice.
        self.messages()

    def messages(self) -> Sequence[SeenMessage]:
        """Everything so far, in order; complete up to what the broker has acknowledged."""
        self._connect()
        try:
            self._fetch()
        finally:
            self._pause()
        return tuple(self._all)

    def payloads(self, topic: str | None = None) -> Sequence[bytes]:
        """The payloads of `messages`, of one topic or of all."""
        return [seen.payload for seen in self.messages() if topic in (None, seen.topic)]

    def wait_for(self, wanted: Callable[[SeenMessage], bool]) -> SeenMessage:
        """The next message that is wanted, as soon as it comes; `queue.Empty` after 10 s."""
        self._connect()
        try:
            seen = self._until(wanted)
            self._fetch()
        finally:
            self._pause()
        return seen

    def close(self) -> None:
        """Leave; the session is the broker's to forget."""
        self._pause()

    @property
    def _running(self) -> Client:
        if self._client is None:
            raise RuntimeError("the subscriber is not connected")
        return self._client

    def _fetch(self) -> None:
        token = uuid4().bytes
        self._running.publish(self._marker, token, 1)
        self._until(lambda seen: seen.topic == self._marker and seen.payload == token)

    def _until(self, wanted: Callable[[SeenMessage], bool]) -> SeenMessage:
        while True:
            answer = self._inbox.get(timeout=PATIENCE)
            if answer.topic != self._marker:
                self._all.append(answer)
            if wanted(answer):
                return answer

    def _connect(self) -> None:
        client = Client(
            CallbackAPIVersion.VERSION2, client_id=self._id, protocol=MQTTProtocolVersion.MQTTv5
        )
        if self._login[0] is not None:
            client.username_pw_set(*self._login)
        if self._tls is not None:
            client.tls_set_context(self._tls)
        subscribed: queue.Queue[object] = queue.Queue()
        client.on_message = self._keep
        client.on_subscribe = lambda *_: subscribed.put(None)
        keep = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        keep.SessionExpiryInterval = 3600
        client.connect(*self._address, clean_start=False, properties=keep)
        client.loop_start()
        self._client = client
        # Retained messages come on the first subscription only, and keep their flag.
        options = SubscribeOptions(
            qos=1, retainAsPublished=True, retainHandling=SubscribeOptions.RETAIN_SEND_IF_NEW_SUB
        )
        client.subscribe([(name, options) for name in (*self._filters, self._marker)])
        subscribed.get(timeout=PATIENCE)

    def _pause(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.disconnect()
            client.loop_stop()

    def _keep(self, _client: Client, _data: Any, message: MQTTMessage) -> None:
        told = message.properties
        self._inbox.put(
            SeenMessage(
                topic=message.topic,
                payload=bytes(message.payload),
                retain=message.retain,
                qos=message.qos,
                content_type=getattr(told, "ContentType", None),
                expiry=getattr(told, "MessageExpiryInterval", None),
                correlation=getattr(told, "CorrelationData", None),
                user=tuple(getattr(told, "UserProperty", ())),
            )
        )
