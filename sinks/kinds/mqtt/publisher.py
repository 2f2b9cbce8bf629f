"""Publishing over a session: messages in order, with the broker's answer to each."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from paho.mqtt.client import Client
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from sinks.kinds.mqtt.client import BrokerLimits, ConnectPlan
from sinks.kinds.mqtt.messages import Message
from sinks.kinds.mqtt.properties import publish_properties, publish_size
from sinks.kinds.mqtt.reason_codes import FIRST_FAILURE, NOBODY_SUBSCRIBED, PACKET_TOO_LARGE
from sinks.kinds.mqtt.session import Session

WINDOW: Final = 20
"""How many messages are in flight at once: more is not faster on loopback."""

_Packet = tuple[Message, Properties | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishOutcome:
    """The result of a publish: how many were acknowledged, then the refusal of the next one, if
    any.
    """

    delivered: int
    refusal: int | None = None
    has_no_subscriber: bool = False
    """Whether the broker reported for the last message that its topic has no subscriber."""
    has_ended_connection: bool = False
    """Whether the refusal was the end of the connection; it may be about any of the messages in
    flight.
    """


class Publisher:
    """Publishes over a session. Create it before the session connects: it takes over the session's
    `on_publish`.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self._acks: dict[int, int] = {}
        """Reason codes by packet id; guarded by the session's `changed`."""
        self._awaited = 0
        session.client.on_publish = self._on_publish

    def publish(
        self, messages: Sequence[Message], *, timeout: float, window: int = WINDOW
    ) -> PublishOutcome:
        """Send in order, in rounds of at most `window`, and wait for every acknowledgement within
        `timeout` seconds; after a refusal no round follows. Raises `SinkError` with `delivered`.
        """
        session = self.session
        session.ensure()
        deadline = time.monotonic() + timeout
        limits = session.limits or BrokerLimits()
        window = min(window, limits.receive_maximum)
        delivered = 0
        has_no_subscriber = False
        while delivered < len(messages):
            next_ones = messages[delivered : delivered + window]
            packets = _packets(next_ones, plan=session.plan, limits=limits)
            if not packets:
                return PublishOutcome(delivered=delivered, refusal=PACKET_TOO_LARGE)
            codes = self._exchange(packets, deadline)
            for code in codes:
                if code is None and session.blamed is not None:
                    return PublishOutcome(
                        delivered=delivered, refusal=session.blamed, has_ended_connection=True
                    )
                if code is None:
                    raise session.unanswered(timeout, delivered=delivered)
                if code >= FIRST_FAILURE:
                    if None in codes:
                        session.abort()  # as `unanswered` does: a late answer is no later publish's
                    return PublishOutcome(delivered=delivered, refusal=code)
                delivered += 1
                has_no_subscriber = code == NOBODY_SUBSCRIBED
        return PublishOutcome(delivered=delivered, has_no_subscriber=has_no_subscriber)

    def _exchange(self, packets: Sequence[_Packet], deadline: float) -> list[int | None]:
        """Send, and return the reason code for each packet; None for one without an answer."""
        session = self.session
        with session.changed:
            self._acks.clear()
            self._awaited = len(packets)
        mids = [
            session.client.publish(
                message.topic, message.payload, 1, retain=message.retain, properties=properties
            ).mid
            for message, properties in packets
        ]
        with session.changed:
            session.changed.wait_for(
                lambda: not session.is_alive or len(self._acks) >= self._awaited,
                max(0.0, deadline - time.monotonic()),
            )
            return [self._acks.get(mid) for mid in mids]

    def _on_publish(
        self,
        _client: Client,
        _data: Any,
        mid: int,
        code: ReasonCode,
        _properties: Properties | None,
    ) -> None:
        with self.session.changed:
            self._acks[mid] = code.value
            if len(self._acks) >= self._awaited:
                self.session.changed.notify_all()


def _packets(
    messages: Sequence[Message], *, plan: ConnectPlan, limits: BrokerLimits
) -> list[_Packet]:
    """Return the messages with their properties, up to the first one that is too large for the
    broker.
    """
    made = []
    for message in messages:
        properties = publish_properties(message) if plan.protocol == "5" else None
        limit = limits.maximum_packet_size
        if limit is not None and publish_size(message, properties) > limit:
            break
        made.append((message, properties))
    return made
