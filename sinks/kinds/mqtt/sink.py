"""Delivers records to an MQTT broker, with the VM's state and status as retained messages.

A record counts as delivered only once the broker has acknowledged it. An acknowledgement does not
say that the broker has it on disk (Mosquitto saves every 30 minutes by default). docs/mqtt.md has
the ACL.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import ClassVar, Final

from sinks.base import (
    Check,
    CommandSender,
    Problem,
    Sink,
    SinkContext,
    SinkError,
    SinkRejected,
    SinkSettings,
)
from sinks.kinds.mqtt.check import check_broker, require_guarantees
from sinks.kinds.mqtt.client import KEEPALIVE, plan_for
from sinks.kinds.mqtt.commands import CommandChannel
from sinks.kinds.mqtt.messages import (
    Message,
    Topics,
    record_message,
    status_message,
    topics,
)
from sinks.kinds.mqtt.publisher import WINDOW, Publisher, PublishOutcome
from sinks.kinds.mqtt.reason_codes import ABOUT_THE_MESSAGE
from sinks.kinds.mqtt.remote import MqttRemote
from sinks.kinds.mqtt.retained_state import IMPAIRED_SECONDS, StatePublisher, refused
from sinks.kinds.mqtt.session import Session
from sinks.kinds.mqtt.settings import MqttSettings
from wire.record import APPROVAL, Record

# Refusals that end the connection, before the record counts as the cause and not the broker.
_TRIES: Final = 5


class MqttSink(Sink[MqttSettings]):
    """An MQTT broker: records on `…/event` and `…/receipt`, state and status retained."""

    KIND = "mqtt"
    Settings: ClassVar[type[SinkSettings]] = MqttSettings
    BATCH: ClassVar[int] = 100

    CONNECT_TIMEOUT: ClassVar[float] = 10.0
    """Seconds for a connection, from the name lookup to the broker's CONNACK."""
    ACK_TIMEOUT: ClassVar[float] = 15.0
    """Seconds for a batch, less than `deadline`: messages acknowledged by then count as
    delivered.
    """
    STATUS_TIMEOUT: ClassVar[float] = 5.0
    """Seconds for a state or a status; with the others, an `open` stays well within `deadline`."""
    WILLS_SECONDS: ClassVar[float] = 2.0 * KEEPALIVE
    """Seconds after which no will of an earlier client can arrive: a broker waits for one and a
    half times its keepalive.
    """
    CLOSE_TIMEOUT: ClassVar[float] = 1.0
    """Seconds for the last status, and as many for the end of the connection."""

    def __init__(self, name: str, settings: MqttSettings, context: SinkContext) -> None:
        super().__init__(name, settings, context)
        self._publisher: Publisher | None = None
        self._topics: Topics | None = None
        self._one_by_one = False
        self._apart = False
        """Whether the first record of the next batch may have caused the end of a connection."""
        self._state = StatePublisher(context, self._publish_apart, timeout=self.STATUS_TIMEOUT)
        self._retrying: Session | None = None
        self._begins_anew = False
        """Whether the session that the broker keeps holds a packet that is too large."""
        self._channel: CommandChannel | None = None
        self._subscription_problem: Problem | None = None
        self._announced_commands = False
        """Whether the published status says that commands are accepted."""
        self._online_again_at: float | None = None
        """Monotonic time at which the status is published once more."""

    def accepts(self, record_type: str, concerns_this_vm: bool | None) -> bool:  # noqa: FBT001
        """Check whether the sink takes a record of this type. If it takes commands, receipts are
        included whatever `types` says: the sender of a command waits for them.
        """
        asked = self.settings.commands and record_type == APPROVAL
        return asked or super().accepts(record_type, concerns_this_vm)

    def open(self) -> None:
        """Connect, and publish that the bridge is online. Raises `SinkError` with the remedy."""
        self.close()
        try:
            self._connect()
        except SinkError:
            self.close()
            raise

    def deliver(self, records: Sequence[Record]) -> None:
        """Publish in order and wait for each PUBACK. Raises `SinkError` or `SinkRejected`."""
        publisher, where = self._opened()
        messages = [record_message(record, where) for record in records]
        begun = time.monotonic()
        alone = 0
        if self._apart:
            outcome = self._publish_apart(messages[0])
            if outcome.refusal is not None:
                raise _refusal(messages, outcome, done=0, stays_open=True)
            self._apart = False
            alone = 1
        window = 1 if self._one_by_one else WINDOW
        timeout = self.ACK_TIMEOUT - (time.monotonic() - begun)
        self._one_by_one = True  # until a whole batch has passed
        outcome = publisher.publish(messages[alone:], timeout=timeout, window=window)
        if outcome.refusal is not None:
            raise _refusal(messages[alone:], outcome, done=alone)
        # One by one, because the broker accepts later records of a window before the refusal
        # arrives, and a record must not be marked as dead because of another one.
        self._one_by_one = False

    def _publish_apart(self, message: Message) -> PublishOutcome:
        """Publish one message over a connection of its own, without a will. Raises `SinkError`
        without an answer.

        A broker may end the connection because of this message, as Mosquitto does after a refusal.
        The connection for status, state and commands must not end with it.
        """
        session = Session(plan_for(self.settings, client_id=f"{self._client_id}-retry"))
        self._retrying = session
        try:
            publisher = Publisher(session)
            session.connect(timeout=self.STATUS_TIMEOUT)
            return publisher.publish([message], timeout=self.STATUS_TIMEOUT)
        except SinkError as error:
            raise SinkError(error.problem, stays_open=True) from error
        finally:
            self._retrying = None
            session.close(timeout=self.CLOSE_TIMEOUT)

    def maintain(self) -> None:
        """Check the connection, renew the state, retry commands. Raises `SinkError`."""
        publisher, where = self._opened()
        publisher.session.ensure()
        if self._channel is not None:
            self._channel.retry()
        self._state.renew(publisher, where)
        if self._channel is not None and self._subscription_problem is not None:
            self._subscribe_again(self._channel)
        again_at = self._online_again_at
        is_due = again_at is not None and time.monotonic() >= again_at
        if is_due or self._announced_commands is not self._takes_commands:
            self._publish_online(publisher, where)
            self._online_again_at = None if is_due else again_at

    def _subscribe_again(self, channel: CommandChannel) -> None:
        """Subscribe to the command topic again, after a refusal."""
        self._subscription_problem = channel.subscribe(timeout=self.STATUS_TIMEOUT)
        if self._subscription_problem is not None:
            # Here and not in `open`, and retried soon: records go out while no command comes in.
            raise SinkError(
                self._subscription_problem, retry_after=IMPAIRED_SECONDS, stays_open=True
            )

    def check(self) -> Sequence[Check]:
        """Connect as another client would: without a will, without publishing, and without
        disturbing a bridge that runs.
        """
        return check_broker(
            self.settings,
            self.context,
            connect=self.CONNECT_TIMEOUT,
            answer=self.STATUS_TIMEOUT,
            close=self.CLOSE_TIMEOUT,
        )

    def abort(self) -> None:
        """Cut the connection at once; the broker then publishes the will."""
        publisher = self._publisher
        retrying = self._retrying
        if publisher is not None:
            publisher.session.abort()
        if retrying is not None:
            retrying.abort()

    def close(self) -> None:
        """Publish that the bridge goes offline, and disconnect; takes about 2 seconds at most."""
        publisher = self._publisher
        where = self._topics
        commands = self._takes_commands
        self._publisher = None
        self._topics = None
        self._channel = None
        self._subscription_problem = None
        if publisher is None:
            return
        session = publisher.session
        self._begins_anew |= session.is_blocked_by_packet
        # A batch was not accepted, and the connection has ended too: perhaps because of a record.
        self._apart |= self._one_by_one and not session.is_alive
        self._state.note_end_of_connection(by_itself=not session.is_alive)
        if where is not None:
            # A normal disconnect makes the broker drop the will (MQTT 5, 3.14.4): publish it first.
            offline = self._status(where, "closed", commands=commands)
            try:
                publisher.publish([offline], timeout=self.CLOSE_TIMEOUT)
            except SinkError:
                # Without an orderly disconnect the broker publishes the will, which says it.
                session.abort()
        session.close(timeout=self.CLOSE_TIMEOUT)

    def _connect(self) -> None:
        where = topics(self.context)
        will = self._status(where, "lost", commands=self.settings.commands, is_will=True)
        plan = plan_for(self.settings, client_id=self._client_id, will=will)
        session = Session(replace(plan, begins_anew=self._begins_anew))
        self._publisher = publisher = Publisher(session)
        if self.settings.commands:
            self._channel = CommandChannel(
                session, topic=where.command, name=self.name, source=self.context.command
            )
        limits = session.connect(timeout=self.CONNECT_TIMEOUT)
        self._begins_anew = False
        require_guarantees(limits)
        self._topics = where
        if self._channel is not None:
            self._subscription_problem = self._channel.subscribe(timeout=self.STATUS_TIMEOUT)
        self._publish_online(publisher, where)
        # A sink that had another name was another client: its will may still arrive.
        self._online_again_at = time.monotonic() + self.WILLS_SECONDS
        if self._one_by_one:
            # The record that was not accepted may end this connection too: the state comes first.
            with suppress(SinkError):  # `maintain` tries again
                self._state.renew(publisher, where)

    @classmethod
    def sender(cls, settings: MqttSettings, *, site: str, vm_id: str) -> CommandSender:
        """Return a control plane's own connection to the same broker."""
        return MqttRemote(settings, site=site, vm_id=vm_id)

    @property
    def _client_id(self) -> str:
        # Fixed, so that the broker drops a stuck predecessor, and its will, as soon as we connect:
        # the will of another client comes up to a minute later, and the topic says offline until
        # the status is published again. The sink's name is in it for two sinks at one broker.
        return f"seb-{self.context.vm.vm_id}-{self.name}"

    @property
    def _takes_commands(self) -> bool:
        return (
            self._channel is not None
            and self._subscription_problem is None
            and self.context.verifies()
        )

    def _status(
        self, where: Topics, reason: str | None, *, commands: bool, is_will: bool = False
    ) -> Message:
        context = self.context
        sink = self.name
        return status_message(
            reason, context=context, where=where, sink=sink, commands=commands, is_will=is_will
        )

    def _opened(self) -> tuple[Publisher, Topics]:
        if self._publisher is None or self._topics is None:
            raise SinkError("the sink is not open")
        return self._publisher, self._topics

    def _publish_online(self, publisher: Publisher, where: Topics) -> None:
        commands = self._takes_commands
        self._publish_status(publisher, self._status(where, None, commands=commands))
        self._announced_commands = commands

    def _publish_status(self, publisher: Publisher, message: Message) -> None:
        """Publish the status. An operator must fix a refusal; until then nothing goes out, because
        Mosquitto ends the connection after it. Raises `SinkError`.
        """
        outcome = publisher.publish([message], timeout=self.STATUS_TIMEOUT)
        if outcome.refusal is not None:
            raise SinkError(refused(message.topic, outcome.refusal))


def _refusal(
    messages: Sequence[Message], outcome: PublishOutcome, *, done: int, stays_open: bool = False
) -> SinkError | SinkRejected:
    """Return the error for the message that was refused; `done` messages before these are
    acknowledged.
    """
    assert outcome.refusal is not None  # noqa: S101  # checked before
    problem = refused(messages[outcome.delivered].topic, outcome.refusal)
    delivered = done + outcome.delivered
    stays_open = stays_open or not outcome.has_ended_connection
    if outcome.has_ended_connection:
        return SinkRejected(str(problem), delivered=delivered, tries=_TRIES, stays_open=stays_open)
    if outcome.refusal in ABOUT_THE_MESSAGE:
        return SinkRejected(str(problem), delivered=delivered)
    return SinkError(problem, delivered=delivered, stays_open=stays_open)
