"""Signed commands from the command topic, acknowledged once they are settled."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from sinks.base import CommandMessage, CommandSource, Problem
from sinks.kinds.mqtt.session import Session
from sinks.kinds.mqtt.subscription import Inbound, Subscriptions
from wire.command import MAX_TOKEN_BYTES

MAX_UNSETTLED: Final = 1024 * 1024
"""The most bytes that may wait in all: far more than the broker may have in flight, see
`ConnectPlan`. But Mosquitto 2.0.11 sends 16 more for each command that is settled, and MQTT 3.1.1
has no such limit.
"""
_OVERHEAD: Final = 512
"""About how many bytes a command takes up in addition to its payload."""
AGAIN_SECONDS: Final = 60.0
"""A command that was accepted and is not settled after this time was most likely lost on a full
disk.
"""


@dataclass(slots=True, kw_only=True)
class _Unsettled:
    mid: int
    """The broker's number of the message, which it uses again after the acknowledgement."""
    message: CommandMessage
    due: float
    """When to hand it in (again), by the monotonic clock."""

    @property
    def size(self) -> int:
        """About how many bytes of memory the command needs."""
        return len(self.message.token) + _OVERHEAD


class CommandChannel:
    """The command topic over one connection. `receive` and `retry` may be called from any thread.

    A command at QoS 1 that cannot be handed in now is kept unacknowledged; if memory is short it is
    acknowledged and dropped, because it would block the channel. A command at QoS 0 is tried once,
    so that a flood of them does not displace the others.
    """

    def __init__(
        self,
        session: Session,
        *,
        topic: str,
        name: str,
        source: CommandSource,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._subscriptions = Subscriptions(session, self.receive, largest=MAX_TOKEN_BYTES)
        self._topic = topic
        self._name = name
        self._source = source
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._unsettled: dict[int, _Unsettled] = {}
        self._size = 0

    def subscribe(self, *, timeout: float) -> Problem | None:
        """Subscribe to the topic; return the broker's refusal, or None. Raises `SinkError` without
        an answer.
        """
        return self._subscriptions.subscribe(self._topic, retained=False, timeout=timeout)

    def receive(self, inbound: Inbound) -> None:
        """Hand in a message, or keep it for later."""
        if inbound.topic != self._topic:
            # Left over in the session from other settings: SEB_SITE is part of the topic.
            self._subscriptions.acknowledge(inbound.mid)
            return
        if inbound.qos == 0:
            self._source(self._message(inbound, self.retry))
            return
        with self._lock:
            room = self._size < MAX_UNSETTLED
            if room:
                message = self._message(inbound, lambda: self._settle(waits))
                waits = _Unsettled(mid=inbound.mid, message=message, due=0.0)
                self._drop(self._unsettled.get(inbound.mid))
                self._unsettled[inbound.mid] = waits
                self._size += waits.size
        if room:
            self.retry()
        else:
            self._subscriptions.acknowledge(inbound.mid)

    def retry(self) -> None:
        """Hand in the commands that are due, until too many are waiting again."""
        while (unsettled := self._next_due()) is not None:
            if not self._source(unsettled.message):
                unsettled.due = 0.0
                return

    def _next_due(self) -> _Unsettled | None:
        """Return a command that is due, and postpone it, so that no other thread returns it too."""
        with self._lock:
            now = self._monotonic()
            for unsettled in self._unsettled.values():
                if unsettled.due <= now:
                    if unsettled.due:
                        unsettled.message = replace(unsettled.message, redelivered=True)
                    unsettled.due = now + AGAIN_SECONDS
                    return unsettled
        return None

    def _message(self, inbound: Inbound, on_settled: Callable[[], None]) -> CommandMessage:
        return CommandMessage(
            token=inbound.payload,
            channel=self._name,
            retained=inbound.retained,
            redelivered=inbound.is_duplicate,
            on_settled=on_settled,
        )

    def _settle(self, settled: _Unsettled) -> None:
        """Acknowledge a command. One that was handed in twice is settled twice; the second time is
        ignored, because the number may belong to another command by then.
        """
        with self._lock:
            is_new = self._unsettled.get(settled.mid) is settled
            self._drop(settled if is_new else None)
        if is_new:
            self._subscriptions.acknowledge(settled.mid)
        self.retry()

    def _drop(self, known: _Unsettled | None) -> None:
        if known is not None:
            del self._unsettled[known.mid]
            self._size -= known.size
