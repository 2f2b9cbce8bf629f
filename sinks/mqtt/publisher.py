"""What goes out over a session: messages in order, each with the broker's answer."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from paho.mqtt.client import Client
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from sinks.mqtt.client import Limits, Plan
from sinks.mqtt.messages import Message
from sinks.mqtt.properties import publish_properties, publish_size
from sinks.mqtt.reason_codes import FIRST_FAILURE, NOBODY_SUBSCRIBED, PACKET_TOO_LARGE
from sinks.mqtt.session import Session

WINDOW: Final = 20
"""Messages in flight at once: past the point where more makes loopback any faster."""

_Packet = tuple[Message, Properties | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How far a publish came: so many acknowledged, then the refusal of the next, if any."""

    delivered: int
    refusal: int | None = None
    unheard: bool = False
    """The broker reported for the last one that its topic has no subscriber."""
    ended: bool = False
    """The refusal was the end of the connection; with others in flight, it may mean one of them."""


class Publisher:
    """The outgoing side of a session that is not connected yet."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._mids: list[int] = []
        # Guarded by the session's `changed`:
        self._acks: dict[int, int] = {}
        self._refused = False
        self._sent = self._settled = self._window = 0
        self._rest: deque[_Packet] = deque()
        """What the network thread is to send, one for each acknowledgement."""
        session.client.on_publish = self._on_publish
        session.client.max_inflight_messages_set(0)  # it would look through all at each PUBACK

    def publish(
        self, messages: Sequence[Message], *, timeout: float, window: int = WINDOW
    ) -> Outcome:
        """Send in order, at most `window` in flight, and await every acknowledgement within
        `timeout` seconds; nothing follows a refusal. Raises `SinkError` with `delivered`.
        """
        session = self.session
        session.ensure()
        limits = session.limits or Limits()
        sendable = _packets(messages, plan=session.plan, limits=limits)
        delivered, unheard = 0, False
        for code in self._exchange(sendable, min(window, limits.receive_maximum), timeout):
            if code is None and session.blamed is not None:
                return Outcome(delivered=delivered, refusal=session.blamed, ended=True)
            if code is None:
                raise session.unanswered(timeout, delivered=delivered)
            if code >= FIRST_FAILURE:
                if len(self._acks) < self._sent:
                    session.abort()  # as `unanswered` does: a late answer is not a later publish's
                return Outcome(delivered=delivered, refusal=code)
            delivered, unheard = delivered + 1, code == NOBODY_SUBSCRIBED
        if delivered < len(messages):
            return Outcome(delivered=delivered, refusal=PACKET_TOO_LARGE)
        return Outcome(delivered=delivered, unheard=unheard)

    def _exchange(self, made: list[_Packet], window: int, timeout: float) -> list[int | None]:
        """Send, wait, and tell each packet's reason code; None: not acknowledged, or not sent."""
        changed, deadline, rest = self.session.changed, time.monotonic() + timeout, deque(made)
        with changed:
            self._acks, self._mids, self._refused = {}, [], False
            self._sent, self._settled, self._window = 0, 0, window
            now = self._next(rest)
        while now:
            self._send(now)
            with changed:
                # As long as something is in flight, the network thread goes on by itself: two
                # threads that take turns would wait for each other.
                now = self._next(rest) if len(self._acks) == self._sent else []
                self._rest = deque() if now else rest
        with changed:
            changed.wait_for(
                lambda: not self.session.is_alive or len(self._acks) == self._sent,
                max(0.0, deadline - time.monotonic()),
            )
            self._rest = deque()
            return [self._acks.get(mid) for mid in (self._mids + [0] * len(made))[: len(made)]]

    def _next(self, rest: deque[_Packet]) -> list[_Packet]:
        """What may be sent now: within the window, which begins at the oldest without an answer."""
        while self._settled < len(self._mids) and self._mids[self._settled] in self._acks:
            self._settled += 1
        room = 0 if self._refused else self._window - (self._sent - self._settled)
        now = [rest.popleft() for _ in range(min(room, len(rest)))]
        self._sent += len(now)
        return now

    def _send(self, packets: Sequence[_Packet]) -> None:
        for message, properties in packets:
            sent = self.session.client.publish(
                message.topic, message.payload, 1, retain=message.retain, properties=properties
            )
            self._mids.append(sent.mid)

    def _on_publish(
        self, _client: Client, _data: Any, mid: int, code: ReasonCode, _told: Properties | None
    ) -> None:
        with self.session.changed:
            self._acks[mid] = code.value
            self._refused |= code.value >= FIRST_FAILURE
            now = self._next(self._rest)
            if len(self._acks) == self._sent:
                self.session.changed.notify_all()
        self._send(now)


def _packets(messages: Sequence[Message], *, plan: Plan, limits: Limits) -> list[_Packet]:
    """The messages with their properties, up to the first one that the broker is too small for."""
    made = []
    for message in messages:
        properties = publish_properties(message) if plan.protocol == "5" else None
        limit = limits.maximum_packet_size
        if limit is not None and publish_size(message, properties) > limit:
            break
        made.append((message, properties))
    return made
