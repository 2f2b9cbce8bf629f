"""Records, states and statuses from an MQTT broker; each is acknowledged after its commit."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import queue
import random
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from paho.mqtt.client import Client, DisconnectFlags
from paho.mqtt.enums import MQTTErrorCode
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from console.intake.delivery import Delivery, Refused
from console.intake.writer import Writer
from console.records.incoming import Incoming, IncomingRecord
from console.sources.acknowledgements import Acknowledgements
from console.sources.messages import filters, read_message
from console.sources.packets import Publish
from console.sources.receiving import Receiver
from console.sources.settings import MqttSource
from console.sources.state import SourceState
from sinks.base import SinkError
from sinks.mqtt.client import KEEPALIVE, new_client, plan_for
from sinks.mqtt.messages import Message
from sinks.mqtt.properties import publish_properties
from sinks.mqtt.reason_codes import FIRST_FAILURE, ending, network, reason

_LOG: Final = logging.getLogger("console")
_SESSION_EXPIRY: Final = 86_400
IN_FLIGHT: Final = 1000
"""Messages that the broker may send before the first is acknowledged: enough for a large batch
while the one before it is being committed. The writer's queue bounds the memory that they take.
"""
_LARGEST_PACKET: Final = 1024 * 1024
_LOOP_SECONDS: Final = 5.0
_CONNECT_SECONDS: Final = 10.0
_LONGEST_WAIT: Final = 30.0
_SUCCESS: Final = MQTTErrorCode.MQTT_ERR_SUCCESS


def client_id(directory: Path, name: str) -> str:
    """The same at each start of this console, and another one for every other."""
    place = f"{socket.gethostname()}\n{directory.resolve()}\n{name}"
    return f"seb-console-{hashlib.sha256(place.encode()).hexdigest()[:12]}"


class MqttReader:
    """One thread that keeps a connection to a broker, and hands over what comes in."""

    def __init__(
        self,
        settings: MqttSource,
        *,
        state: SourceState,
        writer: Writer,
        client_id: str,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self._state = state
        self._writer = writer
        self._client_id = client_id
        self._now = now
        self._stop = threading.Event()
        self._client: Receiver | None = None
        self._items: list[Incoming | Refused] = []
        """What has come in and is not handed over, with its size and the numbers of its packets."""
        self._numbers: list[int] = []
        self._size = 0
        self._lost: str | None = None
        self._acks = Acknowledgements()
        self._thread = threading.Thread(target=self._run, name=f"mqtt {state.name}", daemon=True)

    @property
    def name(self) -> str:
        """Of the source."""
        return self._state.name

    def start(self) -> None:
        """Begin to connect."""
        self._state.down("not connected yet")
        self._thread.start()

    def stop(self) -> None:
        """Disconnect; the broker keeps the session."""
        self._stop.set()
        client = self._client
        if client is not None:
            with contextlib.suppress(OSError, ValueError):
                client.disconnect()
        if self._thread.is_alive():
            self._thread.join(5)

    def publish(self, message: Message, done: Callable[[str | None], None]) -> bool:
        """Send at QoS 1; False if there is no connection. From any thread, and never waits.

        `done` is called on the reader's thread once the broker has the message (None) or refuses
        it (why); it is not called if the connection is lost before that.
        """
        client = self._client
        if client is None or not self._state.connected:
            return False
        properties = publish_properties(message) if self._settings.protocol == "5" else None
        sent = client.publish(message.topic, message.payload, 1, properties=properties)
        if sent.rc != MQTTErrorCode.MQTT_ERR_SUCCESS:
            return False
        self._acks.expect(sent.mid, done)
        return True

    def _run(self) -> None:
        wait = 0.5
        while not self._stop.is_set():
            try:
                self._lost = None
                self._serve()
            except SinkError as error:
                self._lost = str(error)
            except Exception as error:  # noqa: BLE001  # a thread that ends would leave us deaf
                self._lost = str(network(error).at(self._settings.host))
            if self._state.connected:
                wait = 0.5
            if self._state.trouble != self._lost and not self._stop.is_set():
                fields = {"action": "source_lost", "source": self._state.name}
                _LOG.warning("%s", self._lost, extra=fields)
            self._state.down(self._lost or "the connection has ended")
            self._stop.wait(random.uniform(wait / 2, wait))  # noqa: S311  # jitter
            wait = min(_LONGEST_WAIT, wait * 2)

    def _serve(self) -> None:
        """One connection, from CONNECT to its end."""
        plan = replace(
            plan_for(self._settings, client_id=self._client_id), session_expiry=_SESSION_EXPIRY
        )
        client = new_client(plan, Receiver)
        client.connect_timeout = _CONNECT_SECONDS
        client.on_connect = self._on_connect
        client.on_disconnect = self._on_disconnect
        client.on_subscribe = self._on_subscribe
        client.on_publish = self._on_acknowledged
        client.taken = self._on_publish
        self._acks.forget()
        self._client = client
        self._items, self._numbers, self._size = [], [], 0
        try:
            if plan.protocol == "5":
                properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
                properties.SessionExpiryInterval = _SESSION_EXPIRY
                properties.ReceiveMaximum = IN_FLIGHT
                properties.MaximumPacketSize = _LARGEST_PACKET
                client.connect(
                    plan.host, plan.port, KEEPALIVE, clean_start=False, properties=properties
                )
            else:
                client.connect(plan.host, plan.port, KEEPALIVE)
            code = _SUCCESS
            while self._lost is None and code == _SUCCESS:
                code = client.receive(_LOOP_SECONDS)
                self._hand_over(client)
        finally:
            self._client = None
            connection = client.socket()
            if connection is not None:
                connection.close()

    # From here on: paho's callbacks, on the same thread.

    def _on_connect(
        self, client: Client, _data: Any, _flags: Any, code: ReasonCode, _told: Properties | None
    ) -> None:
        if code.is_failure:
            self._lost = str(reason(code.value).at("the broker refused the connection"))
            return
        if self._settings.protocol == "5":
            # The retained flag then says what was there before us; what comes later has none.
            options = SubscribeOptions(qos=1, retainAsPublished=False)
            client.subscribe([(topic, options) for topic in filters(self._settings.share)])
        else:
            client.subscribe([(topic, 1) for topic in filters(None)])

    def _on_subscribe(
        self, _client: Client, _data: Any, _mid: int, codes: Any, _told: Any = None
    ) -> None:
        worst = max(code.value for code in codes)
        if worst >= FIRST_FAILURE:
            self._lost = str(reason(worst).at("the broker refused the subscription"))
            return
        self._state.up(self._now())
        _LOG.info("connected", extra={"action": "source_connected", "source": self._state.name})

    def _on_disconnect(
        self, _client: Client, _data: Any, flags: DisconnectFlags, code: ReasonCode, _told: Any
    ) -> None:
        from_broker = flags.is_disconnect_packet_from_server
        problem = ending(code.value, from_broker=from_broker, accepted=self._state.connected)
        self._lost = self._lost or str(problem)

    def _on_acknowledged(
        self, _client: Client, _data: Any, mid: int, code: ReasonCode, _told: Properties | None
    ) -> None:
        self._acks.came(mid, str(reason(code.value)) if code.value >= FIRST_FAILURE else None)

    def _on_publish(self, packet: Publish) -> None:
        item = read_message(packet, source=self._state.name, received_at=self._now())
        if isinstance(item, IncomingRecord):
            self._state.lag = item.received_at - item.sent_at
        if item is not None:
            self._items.append(item)
            self._size += len(packet.payload)
        if packet.number is not None:
            self._numbers.append(packet.number)

    def _hand_over(self, client: Receiver) -> None:
        """What has come in since the last time, as one delivery."""
        numbers, items, size = self._numbers, self._items, self._size
        if not numbers and not items:
            return
        self._numbers, self._items, self._size = [], [], 0

        def done(stored: bool) -> None:  # noqa: FBT001  # as Delivery.done
            # On another connection the broker sends it again by itself.
            if stored and client is self._client:
                with contextlib.suppress(OSError, ValueError):
                    client.acknowledge(numbers)

        delivery = Delivery(source=self._state.name, items=items, done=done, size=size)
        while not self._stop.is_set():
            with contextlib.suppress(queue.Full):
                self._writer.put(delivery, timeout=1)
                return
