"""Records, states and statuses from an MQTT broker; each is acknowledged after its commit."""

from __future__ import annotations

import contextlib
import logging
import queue
import random
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from paho.mqtt.client import Client, DisconnectFlags, MQTTMessage
from paho.mqtt.enums import MQTTErrorCode
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from console.ingest.delivery import Delivery, QuarantinedMessage
from console.ingest.messages import filters, read_message, vm_of_topic
from console.ingest.settings import MqttSource
from console.ingest.state import SourceState
from console.ingest.vm_limits import TOO_MUCH, VmLimits
from console.ingest.writer import Writer
from console.records.incoming import Incoming, IncomingRecord
from sinks.base import SinkError
from sinks.mqtt.client import KEEPALIVE, new_client, plan_for
from sinks.mqtt.messages import Message
from sinks.mqtt.properties import publish_properties
from sinks.mqtt.reason_codes import FIRST_FAILURE, ending, network, reason
from sinks.mqtt.tunnel import TunnelClient

_LOG: Final = logging.getLogger("console")
_SESSION_EXPIRY: Final = 86_400
IN_FLIGHT: Final = 500
"""How many messages the broker may send before the first is acknowledged: enough for a large batch
while the previous one is committed, and less than the writer's queue holds.
"""
_MAX_PACKET: Final = 1024 * 1024
_LOOP_SECONDS: Final = 5.0
_CONNECT_SECONDS: Final = 10.0
_MAX_WAIT: Final = 30.0
_QUIET_SECONDS: Final = 0.5
_LEAVE_SECONDS: Final = 5.0
_STOP_SECONDS: Final = 8.0
_SUCCESS: Final = MQTTErrorCode.MQTT_ERR_SUCCESS
Done = Callable[[str | None], None]


class MqttReader:
    """Keeps a connection to a broker on one thread, and passes on what it receives."""

    def __init__(
        self,
        settings: MqttSource,
        *,
        state: SourceState,
        writer: Writer,
        vm_limits: VmLimits,
        client_id: str,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self._state = state
        self._writer = writer
        self._vm_limits = vm_limits
        self._client_id = client_id
        self._now = now
        self._stop = threading.Event()
        self._client: TunnelClient | None = None
        self._lost: str | None = None
        self._waiting = 0
        """How many messages of this connection are not acknowledged yet."""
        self._lock = threading.Lock()
        """Guards the attributes below: other threads send commands."""
        self._expected: dict[int, Done] = {}
        """The callback for the acknowledgement of a published message, by packet id."""
        self._answers: dict[int, str | None] = {}
        """Acknowledgements by packet id; one may come before its callback is set."""
        self._thread = threading.Thread(target=self._run, name=f"mqtt {state.name}", daemon=True)

    @property
    def name(self) -> str:
        """The source's name."""
        return self._state.name

    def start(self) -> None:
        """Start the thread that connects."""
        self._state.down("not connected yet")
        self._thread.start()

    def stop(self) -> None:
        """Disconnect. The broker keeps the session, except with a shared subscription."""
        self._stop.set()
        client = self._client
        if client is not None:
            with contextlib.suppress(OSError, ValueError):
                if self._leaves_a_share:
                    client.unsubscribe(filters(self._settings.share))
                else:
                    client.disconnect()
        if self._thread.is_alive():
            self._thread.join(_STOP_SECONDS)

    def publish(self, message: Message, done: Done) -> bool:
        """Publish at QoS 1; return False without a connection. May be called from any thread, and
        never waits.

        `done` is called, on the reader's thread or this one, with None once the broker has the
        message, or with the reason for which it refuses it. It is not called if the connection is
        lost before that.
        """
        client = self._client
        if client is None or not self._state.connected:
            return False
        properties = publish_properties(message) if self._settings.protocol == "5" else None
        sent = client.publish(message.topic, message.payload, 1, properties=properties)
        if sent.rc != _SUCCESS:
            return False
        with self._lock:
            self._expected[sent.mid] = done
        self._settle(sent.mid)
        return True

    @property
    def _leaves_a_share(self) -> bool:
        return self._settings.share is not None and self._settings.protocol == "5"

    def _run(self) -> None:
        wait = 0.5
        while not self._stop.is_set():
            try:
                self._lost = None
                self._serve()
            except SinkError as error:
                self._lost = str(error)
            except Exception as error:  # noqa: BLE001  # this thread must continue, whatever happens
                self._lost = str(network(error).at(self._settings.host))
            if self._state.connected:
                wait = 0.5
            if self._state.trouble != self._lost and not self._stop.is_set():
                fields = {"action": "source_lost", "source": self._state.name}
                _LOG.warning("%s", self._lost, extra=fields)
            self._state.down(self._lost or "the connection has ended")
            self._stop.wait(random.uniform(wait / 2, wait))  # noqa: S311  # jitter
            wait = min(_MAX_WAIT, wait * 2)

    def _serve(self) -> None:
        """Use one connection, from CONNECT to its end."""
        plan = replace(
            plan_for(self._settings, client_id=self._client_id), session_expiry=_SESSION_EXPIRY
        )
        client = new_client(plan, TunnelClient)
        client.connect_timeout = _CONNECT_SECONDS
        client.on_connect = self._on_connect
        client.on_disconnect = self._on_disconnect
        client.on_subscribe = self._on_subscribe
        client.on_publish = self._on_publish
        client.on_message = self._on_message
        with self._lock:
            self._expected.clear()
            self._answers.clear()
            self._waiting = 0
        self._client = client
        try:
            if plan.protocol == "5":
                properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
                properties.SessionExpiryInterval = _SESSION_EXPIRY
                properties.ReceiveMaximum = IN_FLIGHT
                properties.MaximumPacketSize = _MAX_PACKET
                client.connect(
                    plan.host, plan.port, KEEPALIVE, clean_start=False, properties=properties
                )
            else:
                client.connect(plan.host, plan.port, KEEPALIVE)
            code = _SUCCESS
            while self._lost is None and code == _SUCCESS:
                code = client.loop(_LOOP_SECONDS)
                if self._stop.is_set() and self._leaves_a_share:
                    self._leave(client)
                    return
        finally:
            self._client = None
            connection = client.socket()
            if connection is not None:
                connection.close()

    def _leave(self, client: TunnelClient) -> None:
        """Give up a shared subscription, after its unsubscribe: receive what the broker still has
        for this console, and end the session. The other consoles get everything else.
        """
        until = time.monotonic() + _LEAVE_SECONDS
        while self._lost is None and time.monotonic() < until:
            before = self._waiting
            client.loop(_QUIET_SECONDS)
            if before == 0 and self._waiting == 0:
                break
        properties = Properties(PacketTypes.DISCONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = 0
        client.disconnect(properties=properties)
        client.loop(_QUIET_SECONDS)

    # From here on: paho's callbacks, on the same thread.

    def _on_connect(
        self,
        client: Client,
        _data: Any,
        _flags: Any,
        code: ReasonCode,
        _properties: Properties | None,
    ) -> None:
        if code.is_failure:
            self._lost = str(reason(code.value).at("the broker refused the connection"))
            return
        if self._settings.protocol == "5":
            # The retained flag then marks messages from before the subscription, and only those.
            options = SubscribeOptions(qos=1, retainAsPublished=False)
            client.subscribe([(topic, options) for topic in filters(self._settings.share)])
        else:
            client.subscribe([(topic, 1) for topic in filters(None)])

    def _on_subscribe(
        self, _client: Client, _data: Any, _mid: int, codes: Any, _properties: Any = None
    ) -> None:
        worst = max(code.value for code in codes)
        if worst >= FIRST_FAILURE:
            self._lost = str(reason(worst).at("the broker refused the subscription"))
            return
        self._state.up(self._now())
        _LOG.info("connected", extra={"action": "source_connected", "source": self._state.name})

    def _on_disconnect(
        self,
        _client: Client,
        _data: Any,
        flags: DisconnectFlags,
        code: ReasonCode,
        _properties: Any,
    ) -> None:
        from_broker = flags.is_disconnect_packet_from_server
        problem = ending(code.value, from_broker=from_broker, accepted=self._state.connected)
        self._lost = self._lost or str(problem)

    def _on_publish(
        self,
        _client: Client,
        _data: Any,
        mid: int,
        code: ReasonCode,
        _properties: Properties | None,
    ) -> None:
        with self._lock:
            self._answers[mid] = str(reason(code.value)) if code.value >= FIRST_FAILURE else None
        self._settle(mid)

    def _settle(self, mid: int) -> None:
        """Call the callback of a packet id once its acknowledgement is here."""
        with self._lock:
            if mid not in self._expected or mid not in self._answers:
                return
            done = self._expected.pop(mid)
            why = self._answers.pop(mid)
        done(why)

    def _on_message(self, client: Client, _data: Any, message: MQTTMessage) -> None:
        item = self._within_limits(message)
        if isinstance(item, IncomingRecord):
            self._state.lag = item.received_at - item.sent_at
        with self._lock:
            self._waiting += 1

        def done(stored: bool) -> None:  # noqa: FBT001  # as Delivery.done
            # A message of a connection that has ended is sent again over the next one.
            if client is not self._client:
                return
            with self._lock:
                self._waiting -= 1
            if stored:
                client.ack(message.mid, message.qos)

        if item is None:
            done(True)  # noqa: FBT003  # there is nothing to store
            return
        delivery = Delivery(
            source=self._state.name, items=[item], done=done, size=len(message.payload)
        )
        while True:
            try:
                self._writer.put(delivery, timeout=1)
            except queue.Full:
                if self._stop.is_set():
                    return
            else:
                return

    def _within_limits(self, message: MQTTMessage) -> Incoming | QuarantinedMessage | None:
        """Return the content of a message; None if its VM sends too much. Such a message is
        acknowledged and counted: left at the broker, it would delay all VMs, which share one queue
        there. An honest VM does not reach this limit.
        """
        vm_id = vm_of_topic(message.topic)
        now = time.monotonic()
        if not vm_id or not self._vm_limits.wait(vm_id, len(message.payload), now=now):
            item = self._read(message)
            if vm_id:
                self._vm_limits.charge(vm_id, item, now=now)
            return item
        if self._vm_limits.may_report(vm_id, now=now):
            return QuarantinedMessage(
                reason=TOO_MUCH,
                message=f"{message.topic[:200]}: the VM sends more than it may",
                sample=bytes(message.payload)[:2000],
                at=self._now(),
            )
        self._writer.progress.quarantined[(self.name, TOO_MUCH)] += 1
        return None

    def _read(self, message: MQTTMessage) -> Incoming | QuarantinedMessage | None:
        """Return the content of a message. An unexpected error must not end the connection: the
        broker would send the message again over the next one, and intake would stop.
        """
        received_at = self._now()
        try:
            return read_message(
                message.topic,
                bytes(message.payload),
                expiry=getattr(message.properties, "MessageExpiryInterval", None),
                source=self._state.name,
                received_at=received_at,
            )
        except Exception as error:  # noqa: BLE001  # see above
            _LOG.exception("%s", error, extra={"action": "message_bug", "source": self.name})
            return QuarantinedMessage(
                reason="unreadable",
                message=f"{type(error).__name__}: {error}"[:300],
                sample=bytes(message.payload)[:2000],
                at=received_at,
            )
