"""One MQTT connection, from CONNECT to its end. It never reconnects and never says what to send.

The connection is served by a thread of our own instead of paho's `loop_start`: whatever ends the
thread (an exception in a callback too, after which paho still calls itself connected) is noted as
the reason of a lost connection; and a name server, a TCP or a TLS handshake that hangs cannot hold
the caller longer than it asked for.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from paho.mqtt.client import Client, DisconnectFlags
from paho.mqtt.enums import MQTTErrorCode
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from sinks.base import Problem, SinkError
from sinks.mqtt.client import (
    KEEPALIVE,
    Limits,
    Plan,
    connect_properties,
    new_client,
    packets,
    read_limits,
)
from sinks.mqtt.messages import Message
from sinks.mqtt.reasons import (
    ABOUT_THE_MESSAGE,
    FIRST_FAILURE,
    NOBODY_SUBSCRIBED,
    PACKET_TOO_LARGE,
    PROTOCOL_ERROR,
    UNREADABLE,
    ending,
    network,
    reason,
)
from sinks.sockets import cut

# Well within the keepalive's half of tolerance; a publish or an answer ends the wait at once.
_LOOP_SECONDS: Final = 5.0
_GOES_ON: Final = MQTTErrorCode.MQTT_ERR_SUCCESS
WINDOW: Final = 20
"""Messages in flight at once: past the point where more makes loopback any faster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How far a publish came: so many acknowledged, then the refusal of the next, if any."""

    delivered: int
    refusal: int | None = None
    unheard: bool = False
    """The broker said of the last one that nobody is subscribed to its topic."""
    ended: bool = False
    """The refusal was the end of the connection; with others in flight, it may mean one of them."""


class Session:
    """A connection: `connect` once, `publish` and `ensure` as often as needed, `close`."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._changed = threading.Condition()
        # Guarded by `_changed`, which is never held while paho is called: paho calls back with
        # locks of its own held.
        self._limits: Limits | None = None
        self._lost: Problem | None = None
        self._blamed: int | None = None
        self._acks: dict[int, int] = {}
        self._awaited = 0
        self.client = new_client(plan)
        """Paho's, for an inbox to listen on before `connect`."""
        self.client.on_connect = self._on_connect
        self.client.on_publish = self._on_publish
        self.client.on_disconnect = self._on_disconnect
        self._thread = threading.Thread(
            target=self._run, name=f"mqtt {plan.client_id}", daemon=True
        )

    def connect(self, *, timeout: float) -> Limits:
        """Connect and wait for the CONNACK, `timeout` seconds at most for all of it.

        Raises `SinkError` with the remedy. Call it once.
        """
        # Half of it for each address: a name may stand for one that is dead and one that is not.
        self.client.connect_timeout = timeout / 2
        self._thread.start()
        with self._changed:
            self._changed.wait_for(lambda: self._limits or self._lost, timeout)
            limits, lost = self._limits, self._lost
        if lost is not None:
            raise SinkError(lost)
        if limits is None:
            self.abort()
            raise SinkError(
                f"{self.plan.address}: no MQTT answer within {timeout:g} s",
                remedy="check HOST and PORT, and that a broker listens there",
            )
        return limits

    def publish(
        self, messages: Sequence[Message], *, timeout: float, window: int = WINDOW
    ) -> Outcome:
        """Send in order and wait for every acknowledgement, `timeout` seconds at most.

        At most `window` messages are in flight at once, and fewer where the broker says so; nothing
        is sent after a refusal but what was in flight with it. Raises `SinkError`, with
        `delivered`, where the connection is lost or an acknowledgement does not come.
        """
        deadline = time.monotonic() + timeout
        limits = self._limits or Limits()
        window = min(window, limits.receive_maximum)
        delivered, unheard = 0, False
        while delivered < len(messages):
            self.ensure(delivered=delivered)
            some = messages[delivered : delivered + window]
            sendable = packets(some, plan=self.plan, limits=limits)
            if not sendable:
                return Outcome(delivered=delivered, refusal=PACKET_TOO_LARGE)
            for code in self._exchange(sendable, deadline):
                if code is None and self._blamed is not None:
                    return Outcome(delivered=delivered, refusal=self._blamed, ended=True)
                if code is None:
                    raise self.unanswered(timeout, delivered=delivered)
                if code >= FIRST_FAILURE:
                    return Outcome(delivered=delivered, refusal=code)
                delivered += 1
                unheard = code == NOBODY_SUBSCRIBED
        return Outcome(delivered=delivered, unheard=unheard)

    def wait_for(self, done: Callable[[], bool], *, timeout: float) -> None:
        """Wait until something holds that what comes in may change, `timeout` seconds at most.

        Raises `SinkError` where the connection is lost first.
        """
        with self._changed:
            self._changed.wait_for(lambda: done() or self._lost, timeout)
        if not done():
            self.ensure()

    @property
    def is_alive(self) -> bool:
        """Whether nothing has ended the connection yet."""
        return self._lost is None

    def notify(self) -> None:
        """Something came in."""
        with self._changed:
            self._changed.notify_all()

    def ensure(self, *, delivered: int = 0) -> None:
        """Raise `SinkError` with the reason where the connection is not there any more."""
        with self._changed:
            lost = self._lost
        if lost is not None:
            raise SinkError(lost, delivered=delivered)

    def close(self, *, timeout: float) -> None:
        """Disconnect, so that the broker drops the will, and let the thread end, `timeout` seconds
        at most; a thread that does not end is left, as the daemon that it is.
        """
        if self._thread.ident is None:
            return
        self.client.disconnect()
        self._thread.join(timeout)
        if self._thread.is_alive():
            self.abort()

    def abort(self) -> None:
        """Cut the connection, from any thread, at once; the broker then publishes the will."""
        self._lose(Problem("the connection was cut because a call took too long"))
        connection = self.client.socket()
        if isinstance(connection, socket.socket):
            cut(connection)

    def _exchange(
        self, sendable: Sequence[tuple[Message, Properties | None]], deadline: float
    ) -> list[int | None]:
        """Send, wait, and tell the reason code of each acknowledgement; None: there was none."""
        with self._changed:
            self._acks.clear()
            self._awaited = len(sendable)
        mids = [
            self.client.publish(
                message.topic, message.payload, 1, retain=message.retain, properties=properties
            ).mid
            for message, properties in sendable
        ]
        with self._changed:
            self._changed.wait_for(
                lambda: self._lost or len(self._acks) >= self._awaited,
                max(0.0, deadline - time.monotonic()),
            )
            return [self._acks.get(mid) for mid in mids]

    def unanswered(self, timeout: float, *, delivered: int = 0) -> SinkError:
        """End the connection over an acknowledgement that has not come; the error that says so."""
        with self._changed:
            lost = self._lost
        # What is still in flight must not be mistaken for a later publish: this connection is over.
        self.abort()
        silent = Problem(
            f"{self.plan.address}: the broker has not acknowledged within {timeout:g} s",
            "see how it and the network are doing",
        )
        return SinkError(lost or silent, delivered=delivered)

    def _lose(self, why: Problem) -> None:
        """Note why the connection is gone; the first reason is the one that counts."""
        with self._changed:
            if self._lost is None:
                self._lost = why.at(self.plan.address)
            self._changed.notify_all()

    # From here on: the network thread.

    def _run(self) -> None:
        try:
            self._serve()
        except Exception as error:  # noqa: BLE001  # the end of a thread: told to who waits for it
            self._lose(network(error))
        finally:
            self._lose(Problem("the connection has ended"))
            self._let_go()

    def _serve(self) -> None:
        plan = self.plan
        if plan.protocol == "5":
            self.client.connect(
                plan.host,
                plan.port,
                KEEPALIVE,
                clean_start=not plan.takes_commands,
                properties=connect_properties(plan),
            )
        else:
            self.client.connect(plan.host, plan.port, KEEPALIVE)
        while self._lost is None and self.client.loop(_LOOP_SECONDS) == _GOES_ON:
            pass

    def _let_go(self) -> None:
        connection = self.client.socket()
        if connection is not None:
            connection.close()
        # Callbacks are bound methods: without them nothing holds this session and paho's client,
        # with its socket pair, any longer than the sink does.
        self.client.on_connect = None
        self.client.on_publish = None
        self.client.on_disconnect = None
        self.client.on_message = None
        self.client.on_subscribe = None

    def _on_connect(
        self, client: Client, _data: Any, _flags: Any, code: ReasonCode, told: Properties | None
    ) -> None:
        if code.is_failure:
            self._lose(reason(code.value).at("the broker refused the connection"))
            return
        limits = read_limits(told, connection=client.socket())
        with self._changed:
            self._limits = limits
            self._changed.notify_all()

    def _on_publish(
        self, _client: Client, _data: Any, mid: int, code: ReasonCode, _told: Properties | None
    ) -> None:
        with self._changed:
            self._acks[mid] = code.value
            if len(self._acks) >= self._awaited:
                self._changed.notify_all()

    def _on_disconnect(
        self, _client: Client, _data: Any, flags: DisconnectFlags, code: ReasonCode, _told: Any
    ) -> None:
        from_broker = flags.is_disconnect_packet_from_server
        if from_broker and code.value in ABOUT_THE_MESSAGE:
            self._blamed = code.value
        elif not from_broker and code.value == PROTOCOL_ERROR and self._limits is not None:
            # Paho could not read what came instead of an acknowledgement. Acknowledgements come in
            # order (MQTT 5, 4.6), so it was the one of the first message that has none.
            self._blamed = UNREADABLE
        self._lose(ending(code.value, from_broker=from_broker, accepted=self._limits is not None))
