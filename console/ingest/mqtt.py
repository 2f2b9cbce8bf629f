"""Records, states and statuses from an MQTT broker; each is acknowledged after its commit."""

from __future__ import annotations

import logging
import queue
import random
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.subscribeoptions import SubscribeOptions

from console.db.bulk import portions
from console.ingest.command_publisher import CommandPublisher
from console.ingest.messages import filters, read_message, retained_filters, vm_of_topic
from console.ingest.retained_topics import RetainedTopics
from console.ingest.settings import MqttSource
from console.ingest.source_batch import QuarantinedMessage, SourceBatch
from console.ingest.state import SourceState
from console.ingest.vm_limits import TOO_MUCH, VmLimits
from console.ingest.writer import Writer
from console.records.incoming import IncomingMessage, IncomingRecord
from sinks.base import SinkError
from sinks.kinds.mqtt.client import plan_for
from sinks.kinds.mqtt.reason_codes import FIRST_FAILURE, network, reason
from sinks.kinds.mqtt.session import Session

_LOG: Final = logging.getLogger("console")
_SESSION_EXPIRY_SECONDS: Final = 86_400
IN_FLIGHT: Final = 500
"""How many messages the broker may send before the first is acknowledged: enough for a large batch
while the previous one is committed, and less than the writer's queue holds.
"""
_MAX_PACKET_BYTES: Final = 1024 * 1024
_CONNECT_SECONDS: Final = 20.0
_LOOK_SECONDS: Final = 0.25
"""The time between two looks at what has come, until the retained messages are asked for."""
_ASK_SECONDS: Final = 1.0
"""The time for the answers to one portion of questions."""
_ASKED_AT_ONCE: Final = 300
"""How many retained messages are asked for at once: far fewer than a broker queues."""
_FILTERS_AT_ONCE: Final = 8
"""How many topic filters a SUBSCRIBE has; some brokers accept no more."""
_MAX_WAIT_SECONDS: Final = 30.0
_QUIET_SECONDS: Final = 0.5
_LEAVE_SECONDS: Final = 5.0
_CLOSE_SECONDS: Final = 2.0
_STOP_SECONDS: Final = 8.0


class MqttReader:
    """Keeps a session at a broker, and passes on what it receives. One thread connects; paho's
    callbacks run on the session's own.
    """

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
        self.publisher = CommandPublisher(state, protocol=settings.protocol)
        """Sends commands over the same connection."""
        self._stop = threading.Event()
        self._session: Session | None = None
        self._retained = RetainedTopics()
        self._wants_all = True
        """Whether everything that is retained must be asked for."""
        self._asked: list[str] = []
        """The topics of the last portion of questions."""
        self._optional: set[int] = set()
        """The ids of the SUBSCRIBE packets that may be refused."""
        self._received = 0
        """How many messages have come over the present connection."""
        self._settled = 0
        """How many of these need no acknowledgement any more."""
        self._thread = threading.Thread(target=self._run, name=f"mqtt {state.name}", daemon=True)

    def start(self) -> None:
        """Start the thread that connects."""
        self._state.note_disconnected("not connected yet")
        self._thread.start()

    def read_again(self) -> None:
        """Ask for the retained messages again: what VMs told meanwhile may be lost."""
        self._wants_all = True

    def ask_about(self, vm_ids: Collection[str]) -> None:
        """Ask again for what these VMs retain: records of them are missing."""
        self._retained.want(vm_ids)

    def stop(self) -> None:
        """Disconnect. The broker keeps the session, except with a shared subscription."""
        self._stop.set()
        session = self._session
        if session is not None and session.limits is None:  # it is still being made
            session.abort()
        elif session is not None:
            session.notify()
        if self._thread.is_alive():
            self._thread.join(_STOP_SECONDS)

    @property
    def _share(self) -> str | None:
        return self._settings.share if self._settings.protocol == "5" else None

    def _run(self) -> None:
        wait = 0.5
        while not self._stop.is_set():
            lost = "the connection has ended"
            try:
                self._serve()
            except SinkError as error:
                lost = str(error)
            except Exception as error:  # noqa: BLE001  # this thread must continue, whatever happens
                lost = str(network(error).at(self._settings.host))
            if self._state.is_connected:
                wait = 0.5
            if self._state.trouble != lost and not self._stop.is_set():
                fields = {"action": "source_lost", "source": self._state.name}
                _LOG.warning("%s", lost, extra=fields)
            self._state.note_disconnected(lost)
            self._stop.wait(random.uniform(wait / 2, wait))  # noqa: S311  # jitter
            wait = min(_MAX_WAIT_SECONDS, wait * 2)

    def _serve(self) -> None:
        """Use one connection, from CONNECT to its end. Raises `SinkError` with the reason for which
        it has ended, unless this reader ends it.
        """
        session = Session(
            replace(
                plan_for(self._settings, client_id=self._client_id),
                session_expiry=_SESSION_EXPIRY_SECONDS,
                receive_maximum=IN_FLIGHT,
                max_packet_bytes=_MAX_PACKET_BYTES,
            )
        )
        session.client.on_message = partial(self._on_message, session)
        session.client.on_subscribe = partial(self._on_subscribe, session)
        self.publisher.use(session.client)
        self._received = self._settled = 0
        self._wants_all = True
        self._asked = []
        self._optional = set()
        self._session = session
        try:
            session.connect(timeout=_CONNECT_SECONDS)
            self._subscribe(session.client, filters(self._share))
            while not self._stop.is_set():
                wait = _LOOK_SECONDS if self._wants_all else _ASK_SECONDS
                session.wait_for(self._stop.is_set, timeout=wait)
                self._ask_for_retained(session.client)
            if self._share is not None:
                self._leave(session)
        finally:
            is_over = self._stop.is_set() and self._share is not None
            session.close(timeout=_CLOSE_SECONDS, ends_session=is_over)

    def _subscribe(
        self, client: Client, topics: Sequence[str], *, is_optional: bool = False
    ) -> None:
        if self._settings.protocol == "5":
            # The retained flag then marks messages from before the subscription, and only those.
            options = SubscribeOptions(qos=1, retainAsPublished=False)
            _, mid = client.subscribe([(topic, options) for topic in topics])
        else:
            _, mid = client.subscribe([(topic, 1) for topic in topics])
        if is_optional and mid is not None:
            self._optional.add(mid)

    def _ask_for_retained(self, client: Client) -> None:
        """Ask for what VMs retain: for everything, once the queue at the broker has room for it;
        later, in portions, for what has not come of VMs that are heard.
        """
        if self._received - self._settled > IN_FLIGHT // 2:
            return
        if self._wants_all:
            self._wants_all = False
            self._retained.forget()
            self._subscribe(client, retained_filters())
            return
        if self._asked:  # they come by the subscription to all from now on
            for some in portions(self._asked, _FILTERS_AT_ONCE):
                client.unsubscribe(list(some))
        self._asked = self._retained.next_to_ask(_ASKED_AT_ONCE, time.monotonic())
        for some in portions(self._asked, _FILTERS_AT_ONCE):
            self._subscribe(client, some, is_optional=True)

    def _leave(self, session: Session) -> None:
        """Give up a shared subscription: unsubscribe, and receive what the broker still has for
        this console. The other consoles get everything else.
        """
        session.client.unsubscribe([*filters(self._share), *retained_filters()])
        until = time.monotonic() + _LEAVE_SECONDS
        before = -1
        while time.monotonic() < until and not before == self._received == self._settled:
            before = self._received
            time.sleep(_QUIET_SECONDS)
            session.ensure()

    # From here on: paho's callbacks, on the session's thread.

    def _on_subscribe(
        self,
        session: Session,
        _client: Client,
        _data: Any,
        mid: int,
        codes: Any,
        _properties: Any = None,
    ) -> None:
        is_optional = mid in self._optional
        self._optional.discard(mid)
        worst = max(code.value for code in codes)
        if worst >= FIRST_FAILURE:
            if is_optional:
                return
            session.abort(reason(worst).at("the broker refused the subscription"))
            return
        if self._state.is_connected:
            return
        self._state.note_connected(self._now())
        _LOG.info("connected", extra={"action": "source_connected", "source": self._state.name})

    def _on_message(
        self, session: Session, client: Client, _data: Any, message: MQTTMessage
    ) -> None:
        item = self._item_of(message)
        if isinstance(item, IncomingRecord):
            self._state.lag = item.received_at - item.sent_at
        self._received += 1

        def on_end(stored: bool) -> None:  # noqa: FBT001  # as SourceBatch.on_end
            # A message of a connection that has ended is sent again over the next one.
            if session is not self._session or not session.is_alive:
                return
            with session.changed:
                self._settled += 1
            if stored:
                client.ack(message.mid, message.qos)

        if item is None:
            on_end(True)  # noqa: FBT003  # there is nothing to store
            return
        delivery = SourceBatch(
            source=self._state.name, items=[item], on_end=on_end, size=len(message.payload)
        )
        while True:
            try:
                self._writer.put(delivery, timeout=1)
            except queue.Full:
                if self._stop.is_set():
                    return
            else:
                return

    def _item_of(self, message: MQTTMessage) -> IncomingMessage | QuarantinedMessage | None:
        """Return the content of a message; None if its VM sends too much. Such a message is
        acknowledged and counted: left at the broker, it would delay all VMs, which share one queue
        there. An honest VM does not reach this limit.
        """
        vm_id = vm_of_topic(message.topic)
        if vm_id:
            self._retained.note(message.topic, time.monotonic())
        now = time.monotonic()
        if not vm_id or not self._vm_limits.seconds_until_allowed(
            vm_id, len(message.payload), now=now
        ):
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
        self._writer.progress.quarantined[(self._state.name, TOO_MUCH)] += 1
        return None

    def _read(self, message: MQTTMessage) -> IncomingMessage | QuarantinedMessage | None:
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
            _LOG.exception("%s", error, extra={"action": "message_bug", "source": self._state.name})
            return QuarantinedMessage(
                reason="unreadable",
                message=f"{type(error).__name__}: {error}"[:300],
                sample=bytes(message.payload)[:2000],
                at=received_at,
            )
