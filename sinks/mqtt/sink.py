"""Delivers records to an MQTT broker, with the VM's state and status as retained messages.

It never counts a record as delivered that the broker has not acknowledged; that the broker has it
on disk is not said (Mosquitto saves every 30 minutes by default). docs/mqtt.md has the ACL.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import ClassVar, Final

from sinks.base import (
    Check,
    CommandSender,
    PendingEvent,
    Problem,
    Sink,
    SinkContext,
    SinkError,
    SinkRejected,
    SinkSettings,
)
from sinks.mqtt.check import look_at, require
from sinks.mqtt.client import plan_for
from sinks.mqtt.commands import CommandChannel
from sinks.mqtt.messages import (
    Message,
    Topics,
    record_message,
    state_message,
    status_message,
    topics,
)
from sinks.mqtt.publisher import WINDOW, Publisher
from sinks.mqtt.reason_codes import ABOUT_THE_MESSAGE, NOT_AUTHORIZED, reason
from sinks.mqtt.remote import MqttRemote
from sinks.mqtt.session import Session
from sinks.mqtt.settings import MqttSettings
from sinks.record import APPROVAL, EventRecord

# To the next try if records go out but the state is refused, or no command can come in: records
# that are committed meanwhile wait for it, so the wait must not grow to a minute.
IMPAIRED_SECONDS: Final = 5.0
STATE_RENEWAL: Final = timedelta(hours=1)
# Refusals that end the connection, before the record counts as the cause and not the broker.
_TRIES: Final = 5


class MqttSink(Sink[MqttSettings]):
    """An MQTT broker: records on `…/event` and `…/receipt`, state and status retained."""

    KIND = "mqtt"
    Settings: ClassVar[type[SinkSettings]] = MqttSettings
    BATCH: ClassVar[int] = 100

    CONNECT_TIMEOUT: ClassVar[float] = 10.0
    """Seconds for a connection, from the name's resolution to the broker's CONNACK."""
    ACK_TIMEOUT: ClassVar[float] = 15.0
    """Seconds for a batch, less than `deadline`: what got through by then counts."""
    SAY_TIMEOUT: ClassVar[float] = 5.0
    """Seconds for a state or a status; with the others, an `open` stays well within `deadline`."""
    CLOSE_TIMEOUT: ClassVar[float] = 1.0
    """Seconds for the farewell, and as many for the end of the connection."""

    def __init__(self, name: str, settings: MqttSettings, context: SinkContext) -> None:
        super().__init__(name, settings, context)
        self._publisher: Publisher | None = None
        self._topics: Topics | None = None
        self._shown: tuple[PendingEvent, ...] | None = None
        self._shown_at: datetime | None = None
        self._one_by_one = False
        self._channel: CommandChannel | None = None
        self._deaf: Problem | None = None

    def accepts(self, record_type: str, affects_this_vm: bool | None) -> bool:  # noqa: FBT001
        """Receipts too if it takes commands, whatever its `types`: who asks waits for them."""
        asked = self.settings.commands and record_type == APPROVAL
        return asked or super().accepts(record_type, affects_this_vm)

    def open(self) -> None:
        """Connect, and say that the bridge is online. Raises `SinkError` with the remedy."""
        self.close()
        try:
            self._connect()
        except SinkError:
            self.close()
            raise

    def deliver(self, records: Sequence[EventRecord]) -> None:
        """Publish in order and await each PUBACK. Raises `SinkError` or `SinkRejected`."""
        publisher, where = self._opened()
        messages = [record_message(record, where) for record in records]
        window = 1 if self._one_by_one else WINDOW
        outcome = publisher.publish(messages, timeout=self.ACK_TIMEOUT, window=window)
        # After a refusal one by one, until a whole batch has passed: what lies behind the refused
        # record in a window is taken before it, and no record may be parked for its neighbour.
        self._one_by_one = outcome.refusal is not None
        if outcome.refusal is None:
            return
        problem = _refused(messages[outcome.delivered].topic, outcome.refusal)
        if outcome.ended:
            raise SinkRejected(str(problem), delivered=outcome.delivered, tries=_TRIES)
        if outcome.refusal in ABOUT_THE_MESSAGE:
            raise SinkRejected(str(problem), delivered=outcome.delivered)
        raise SinkError(problem, delivered=outcome.delivered)

    def maintain(self) -> None:
        """Check the connection, renew the state, retry commands. Raises `SinkError`."""
        publisher, where = self._opened()
        publisher.session.ensure()
        if self._channel is not None:
            self._channel.retry()
        self._renew_state(publisher, where)
        if self._deaf is not None:
            # Here and not in `open`, and retried soon: records go out while no command comes in.
            raise SinkError(self._deaf, retry_after=IMPAIRED_SECONDS)

    def _renew_state(self, publisher: Publisher, where: Topics) -> None:
        now = self.context.now()
        pending = tuple(self.context.pending())
        # abs(): a clock that was set back must not keep the state from being renewed.
        fresh = self._shown_at is not None and abs(now - self._shown_at) < STATE_RENEWAL
        if fresh and pending == self._shown:
            return
        state = state_message(pending, context=self.context, now=now, where=where)
        self._say(publisher, state, retry_after=IMPAIRED_SECONDS)
        self._shown, self._shown_at = pending, now

    def check(self) -> Sequence[Check]:
        """Connect as another client would: no will, nothing published, the bridge undisturbed."""
        return look_at(
            self.settings,
            self.context,
            connect=self.CONNECT_TIMEOUT,
            answer=self.SAY_TIMEOUT,
            close=self.CLOSE_TIMEOUT,
        )

    def abort(self) -> None:
        """Cut the connection at once; the broker then publishes the last will."""
        publisher = self._publisher
        if publisher is not None:
            publisher.session.abort()

    def close(self) -> None:
        """Say that the bridge goes offline, and disconnect; about 2 seconds at most."""
        publisher, where, commands = self._publisher, self._topics, self._takes_commands
        self._publisher, self._topics, self._channel, self._deaf = None, None, None, None
        self._shown, self._shown_at = None, None
        if publisher is None:
            return
        session = publisher.session
        if where is not None:
            # A normal disconnect makes the broker drop the will (MQTT 5, 3.14.4): say it first.
            farewell = self._status(where, "closed", commands=commands)
            try:
                publisher.publish([farewell], timeout=self.CLOSE_TIMEOUT)
            except SinkError:
                # Without an orderly disconnect the broker says it for us.
                session.abort()
        session.close(timeout=self.CLOSE_TIMEOUT)

    def _connect(self) -> None:
        where = topics(self.context)
        will = self._status(where, "lost", commands=self.settings.commands, is_will=True)
        session = Session(plan_for(self.settings, client_id=self._client_id, will=will))
        self._publisher = publisher = Publisher(session)
        if self.settings.commands:
            self._channel = CommandChannel(
                session, topic=where.command, name=self.name, source=self.context.command
            )
        limits = session.connect(timeout=self.CONNECT_TIMEOUT)
        require(limits)
        self._topics = where
        if self._channel is not None:
            self._deaf = self._channel.subscribe(timeout=self.SAY_TIMEOUT)
        self._say(publisher, self._status(where, None, commands=self._takes_commands))

    @classmethod
    def sender(cls, settings: MqttSettings, *, site: str, vm_id: str) -> CommandSender:
        """A control plane's own connection to the same broker."""
        return MqttRemote(settings, site=site, vm_id=vm_id)

    @property
    def _client_id(self) -> str:
        # Fixed, so that the broker drops a stuck predecessor, and its will, as soon as we connect:
        # the will of another client would come a minute later and call us offline. The sink's name
        # is in it for two sinks at one broker.
        return f"seb-{self.context.vm.vm_id}-{self.name}"

    @property
    def _takes_commands(self) -> bool:
        return self._channel is not None and self._deaf is None

    def _status(
        self, where: Topics, reason: str | None, *, commands: bool, is_will: bool = False
    ) -> Message:
        context, sink = self.context, self.name
        return status_message(
            reason, context=context, where=where, sink=sink, commands=commands, is_will=is_will
        )

    def _opened(self) -> tuple[Publisher, Topics]:
        if self._publisher is None or self._topics is None:
            raise SinkError("the sink is not open")
        return self._publisher, self._topics

    def _say(
        self, publisher: Publisher, message: Message, *, retry_after: float | None = None
    ) -> None:
        """Publish state or status; a refusal is for the operator to fix, and parks no record."""
        outcome = publisher.publish([message], timeout=self.SAY_TIMEOUT)
        if outcome.refusal is not None:
            raise SinkError(_refused(message.topic, outcome.refusal), retry_after=retry_after)


def _refused(topic: str, code: int) -> Problem:
    if code == NOT_AUTHORIZED:
        remedy = "let the broker's ACL allow this user to write it"
        return Problem(f"{topic}: not authorized (0x87)", remedy)
    return reason(code).at(topic)
