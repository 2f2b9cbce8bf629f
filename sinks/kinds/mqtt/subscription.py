"""Receiving over a session: subscriptions, messages, acknowledgements."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.subscribeoptions import SubscribeOptions

from sinks.base import Problem
from sinks.kinds.mqtt.reason_codes import FIRST_FAILURE, reason
from sinks.kinds.mqtt.session import Session


def _options(handling: int) -> SubscribeOptions:
    # The broker sends nothing that this client has published itself, and leaves the retained flag
    # as the publisher set it.
    return SubscribeOptions(qos=1, noLocal=True, retainAsPublished=True, retainHandling=handling)


# MQTT 5, 3.8.3.1: whether the broker sends the messages that the topic has already.
_OPTIONS: Final = {
    True: _options(SubscribeOptions.RETAIN_SEND_ON_SUBSCRIBE),
    False: _options(SubscribeOptions.RETAIN_DO_NOT_SEND),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Inbound:
    """A message that arrived; `payload` is cut one byte above the largest that is accepted."""

    topic: str
    payload: bytes
    qos: int
    retained: bool
    is_duplicate: bool
    """Whether the broker marks this as sent for the second time."""
    mid: int


class Subscriptions:
    """The incoming side of a session; `receive` must return at once and never raise."""

    def __init__(
        self, session: Session, receive: Callable[[Inbound], None], *, largest: int | None = None
    ) -> None:
        self._session = session
        self._receive = receive
        self._end = None if largest is None else largest + 1
        self._granted: dict[int, int] = {}
        session.client.on_message = self._on_message
        session.client.on_subscribe = self._on_subscribe

    def subscribe(self, topic: str, *, retained: bool, timeout: float) -> Problem | None:
        """Subscribe to a topic at QoS 1; return the broker's refusal, or None. Raises `SinkError`
        without an answer.
        """
        session = self._session
        session.ensure()
        if session.plan.protocol == "5":
            mid = session.client.subscribe(topic, options=_OPTIONS[retained])[1]
        else:
            mid = session.client.subscribe(topic, 1)[1]
        session.wait_for(lambda: mid in self._granted, timeout=timeout)
        code = self._granted.pop(mid, None) if mid is not None else None
        if code is None:
            raise session.unanswered(timeout)
        if code == 0:
            return Problem(f"{topic}: the broker grants QoS 0 only", "allow QoS 1 there")
        return refused_subscription(topic, code) if code >= FIRST_FAILURE else None

    def acknowledge(self, mid: int) -> None:
        """Acknowledge a message at QoS 1 that is settled. May be called from any thread; never
        raises.
        """
        # The connection may be on its way out: then the broker sends the message again.
        with contextlib.suppress(OSError, ValueError):
            if self._session.is_alive:
                self._session.client.ack(mid, 1)

    def _on_message(self, _client: Client, _data: Any, message: MQTTMessage) -> None:
        self._receive(
            Inbound(
                topic=message.topic,
                payload=bytes(message.payload[: self._end]),
                qos=message.qos,
                retained=message.retain,
                is_duplicate=message.dup,
                mid=message.mid,
            )
        )
        self._session.notify()

    def _on_subscribe(
        self, _client: Client, _data: Any, mid: int, codes: Any, _properties: Any = None
    ) -> None:
        self._granted[mid] = max(code.value for code in codes)
        self._session.notify()


def refused_subscription(topic: str, code: int) -> Problem:
    """Return the problem that nothing can arrive on a topic, with the line of an ACL that would
    allow it.
    """
    return Problem(
        f"{topic}: the broker refuses the subscription: {reason(code).what}",
        f"add to its ACL: topic read {topic}",
    )
