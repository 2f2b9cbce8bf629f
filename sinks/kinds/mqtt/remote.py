"""A control plane's connection to the command topic, under a client id of its own."""

from __future__ import annotations

from collections import deque
from typing import ClassVar
from uuid import uuid4

from sinks.base import CommandSender, SinkError, SinkRejected
from sinks.kinds.mqtt.client import plan_for
from sinks.kinds.mqtt.messages import Message, Topics, topics_of
from sinks.kinds.mqtt.publisher import Publisher
from sinks.kinds.mqtt.reason_codes import NOT_AUTHORIZED, reason
from sinks.kinds.mqtt.session import Session
from sinks.kinds.mqtt.settings import MqttSettings
from sinks.kinds.mqtt.subscription import Inbound, Subscriptions


class MqttRemote(CommandSender):
    """A `CommandSender` over a connection of its own."""

    TIMEOUT: ClassVar[float] = 10.0
    """Seconds for the connection, and for each answer of the broker."""
    CLOSE_TIMEOUT: ClassVar[float] = 1.0

    def __init__(self, settings: MqttSettings, *, site: str, vm_id: str) -> None:
        self._settings = settings
        self._site = site
        self._vm_id = vm_id
        self._publisher: Publisher | None = None
        self._topics: Topics | None = None
        self._states: deque[bytes] = deque(maxlen=1)
        self._receipts: deque[bytes] = deque(maxlen=1000)

    def open(self) -> None:
        """Connect, and subscribe to `…/state` and `…/receipt`."""
        self._topics = where = topics_of(site=self._site, vm_id=self._vm_id)
        plan = plan_for(self._settings, client_id=f"seb-approve-{uuid4().hex[:12]}")
        session = Session(plan)
        self._publisher = Publisher(session)
        subscriptions = Subscriptions(session, self._receive)
        session.connect(timeout=self.TIMEOUT)
        for topic in (where.receipt, where.state):
            retained = topic == where.state
            refused = subscriptions.subscribe(topic, retained=retained, timeout=self.TIMEOUT)
            if refused is not None:
                raise SinkRejected(str(refused))

    def state(self, seconds: float) -> bytes | None:
        """Return the retained message of `…/state`, or a newer one."""
        return self._next(self._states, seconds)

    def send(self, token: bytes, *, lifetime: int) -> bool:
        """Publish to `…/command`, at QoS 1 and never retained."""
        publisher, where = self._opened()
        message = Message(
            topic=where.command, payload=token, content_type="application/jwt", expiry=lifetime
        )
        outcome = publisher.publish([message], timeout=self.TIMEOUT)
        if outcome.refusal == NOT_AUTHORIZED:
            raise SinkRejected(
                f"{where.command}: the broker does not let this user send commands (0x87); "
                f"add to its ACL: topic write {where.command}"
            )
        if outcome.refusal is not None:
            raise SinkError(reason(outcome.refusal).at(where.command))
        return not outcome.has_no_subscriber

    def receipt(self, seconds: float) -> bytes | None:
        """Return the next message of `…/receipt`."""
        return self._next(self._receipts, seconds)

    def close(self) -> None:
        """Disconnect; takes a second or two at most."""
        publisher = self._publisher
        self._publisher = None
        if publisher is not None:
            publisher.session.close(timeout=self.CLOSE_TIMEOUT)

    def _opened(self) -> tuple[Publisher, Topics]:
        if self._publisher is None or self._topics is None:
            raise SinkError("the sender is not open")
        return self._publisher, self._topics

    def _next(self, queue: deque[bytes], seconds: float) -> bytes | None:
        publisher, _ = self._opened()
        publisher.session.wait_for(lambda: bool(queue), timeout=seconds)
        return queue.popleft() if queue else None

    def _receive(self, inbound: Inbound) -> None:
        where = self._topics
        if where is not None and inbound.topic == where.state:
            self._states.append(inbound.payload)
        elif where is not None and inbound.topic == where.receipt:
            self._receipts.append(inbound.payload)
