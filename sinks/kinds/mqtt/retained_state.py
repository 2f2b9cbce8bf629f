"""The retained state: the pending events now, published again when they change and every hour."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

from sinks.base import Problem, SinkContext, SinkError
from sinks.kinds.mqtt.messages import Message, Topics, state_message
from sinks.kinds.mqtt.publisher import Publisher, PublishOutcome
from sinks.kinds.mqtt.reason_codes import NOT_AUTHORIZED, reason
from wire.state import PendingEvent

IMPAIRED_SECONDS: Final = 5.0
"""The wait for the next try if records go out but the state is refused, or no command can come in:
records that are committed meanwhile wait for it, so it must not grow to a minute.
"""
STATE_RENEWAL: Final = timedelta(hours=1)


class StatePublisher:
    """Publishes the state of one VM. A broker may refuse it while it accepts records, for example
    because it is too large: then no state is retained, so that no subscriber gets an old one.
    """

    def __init__(
        self,
        context: SinkContext,
        publish_apart: Callable[[Message], PublishOutcome],
        *,
        timeout: float,
    ) -> None:
        """`publish_apart` publishes over a connection of its own; `timeout` is in seconds."""
        self._context = context
        self._publish_apart = publish_apart
        self._timeout = timeout
        self._shown: tuple[PendingEvent, ...] | None = None
        self._shown_at: datetime | None = None
        self._is_refused = False
        self._is_apart = False
        """Whether the state may have caused the end of a connection."""
        self._is_removed = False
        """Whether the retained state was removed because the present one does not fit."""
        self._problem = Problem("the state was not acknowledged")
        self._again_at = 0.0
        """Monotonic time before which a state is not sent again over a connection of its own."""

    def renew(self, publisher: Publisher, where: Topics) -> None:
        """Publish the state if it has changed or is an hour old. Raises `SinkError`."""
        now = self._context.now()
        pending = tuple(self._context.pending())
        if not pending and not self._context.has_polled():
            return  # a new store is empty: an event that the topic still shows may be pending
        # abs(): a clock that was set back must not keep the state from being renewed.
        fresh = self._shown_at is not None and abs(now - self._shown_at) < STATE_RENEWAL
        if fresh and pending == self._shown:
            return
        self._publish(
            publisher, state_message(pending, context=self._context, now=now, where=where)
        )
        self._shown = pending
        self._shown_at = now

    def note_end_of_connection(self, *, by_itself: bool) -> None:
        """Note the end of the connection; `by_itself`: the sink did not close it."""
        self._shown = None
        self._shown_at = None
        self._is_apart |= self._is_refused and by_itself

    def _publish(self, publisher: Publisher, state: Message) -> None:
        if self._is_apart and time.monotonic() < self._again_at:
            raise SinkError(self._problem, retry_after=IMPAIRED_SECONDS, stays_open=True)
        try:
            outcome = self._send(publisher, state)
        except SinkError:
            if self._is_apart:  # twice a connection has ended with it
                self._remove(state.topic)
            raise
        if outcome.refusal is not None:
            self._problem = refused(state.topic, outcome.refusal)
            keeps = self._is_apart or not outcome.has_ended_connection
            if keeps and outcome.refusal != NOT_AUTHORIZED:
                self._remove(state.topic)
            raise SinkError(self._problem, retry_after=IMPAIRED_SECONDS, stays_open=keeps)
        self._is_refused = False
        self._is_apart = False
        self._is_removed = False

    def _send(self, publisher: Publisher, state: Message) -> PublishOutcome:
        if self._is_apart:
            self._again_at = time.monotonic() + IMPAIRED_SECONDS
            return self._publish_apart(state)
        self._is_refused = True  # until it is accepted
        return publisher.publish([state], timeout=self._timeout)

    def _remove(self, topic: str) -> None:
        """Remove the retained state once: it shows what may be over by now, and the broker does not
        take the present one. An empty payload does that (MQTT 5, 3.3.1.3).
        """
        if not self._is_removed:
            with suppress(SinkError):
                removed = self._publish_apart(Message(topic=topic, payload=b"", retain=True))
                self._is_removed = removed.refusal is None
                self._shown = None


def refused(topic: str, code: int) -> Problem:
    """Return the problem of a message that the broker refused with this reason code."""
    if code == NOT_AUTHORIZED:
        remedy = "let the broker's ACL allow this user to write it"
        return Problem(f"{topic}: not authorized (0x87)", remedy)
    return reason(code).at(topic)
