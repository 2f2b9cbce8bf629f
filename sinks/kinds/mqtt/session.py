"""One MQTT connection, from CONNECT to its end, on a thread of our own: paho's thread hides what
ended the connection, and a name server or a handshake that hangs must not block the caller.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any, Final

from paho.mqtt.client import Client, DisconnectFlags
from paho.mqtt.enums import MQTTErrorCode
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from sinks.base import Problem, SinkError
from sinks.kinds.mqtt.client import (
    KEEPALIVE,
    BrokerLimits,
    ConnectPlan,
    connect_properties,
    new_client,
    read_limits,
)
from sinks.kinds.mqtt.reason_codes import (
    ABOUT_THE_MESSAGE,
    PROTOCOL_ERROR,
    UNREADABLE,
    ending,
    network,
    reason,
)
from sinks.kinds.mqtt.tunnel import TunnelClient, plain
from sinks.shared.sockets import cut

# Well within the keepalive's half of tolerance; a publish or an answer ends the wait at once.
_LOOP_SECONDS: Final = 5.0
_GOES_ON: Final = MQTTErrorCode.MQTT_ERR_SUCCESS
_TOOK_TOO_LONG: Final = Problem("the connection was cut because a call took too long")


class Session:
    """A connection: call `connect` once, `ensure` as often as needed, then `close`."""

    def __init__(self, plan: ConnectPlan) -> None:
        self.plan = plan
        self.changed = threading.Condition()
        """Guards what arrives; never held while paho is called, because paho calls back."""
        self.limits: BrokerLimits | None = None
        """The limits in the broker's CONNACK; None before it."""
        self.blamed: int | None = None
        """The reason code for a message because of which the broker ended the connection."""
        self._lost: Problem | None = None
        self.client = new_client(plan, TunnelClient)
        """The paho client, for others to set callbacks on before `connect`."""
        self.client.on_connect = self._on_connect
        self.client.on_disconnect = self._on_disconnect
        self._thread = threading.Thread(
            target=self._run, name=f"mqtt {plan.client_id}", daemon=True
        )

    def connect(self, *, timeout: float) -> BrokerLimits:
        """Connect. All addresses and answers together take `timeout` seconds at most. A session
        connects only once. Raises `SinkError` with the remedy.
        """
        # Half of it for the connection, whichever address it is made to; the rest for the answers.
        self.client.connect_timeout = timeout / 2
        self._thread.start()
        self.wait_for(lambda: self.limits is not None, timeout=timeout)
        self.ensure()
        if self.limits is None:
            self.abort()
            raise SinkError(
                f"{self.plan.address}: no MQTT answer within {timeout:g} s",
                remedy="check HOST and PORT, and that a broker listens there",
            )
        return self.limits

    def wait_for(self, done: Callable[[], bool], *, timeout: float) -> None:
        """Wait for `done` at most `timeout` seconds. Raises `SinkError` if the connection
        is lost.
        """
        with self.changed:
            self.changed.wait_for(lambda: done() or self._lost, timeout)
        if not done():
            self.ensure()

    @property
    def is_blocked_by_packet(self) -> bool:
        """Whether a packet that the broker sent was too large: in a session that it keeps, it sends
        that again at each connect.
        """
        return self.client.oversized is not None

    @property
    def is_alive(self) -> bool:
        """Whether nothing has ended the connection yet."""
        return self._lost is None

    def notify(self) -> None:
        """Wake the threads that wait in `wait_for`: something has arrived."""
        with self.changed:
            self.changed.notify_all()

    def ensure(self) -> None:
        """Check that the connection has not ended. Raises `SinkError` with the reason if it has."""
        if self._lost is not None:
            raise SinkError(self._lost)

    def close(self, *, timeout: float, ends_session: bool = False) -> None:
        """Disconnect, so that the broker does not publish the will; cut after `timeout` seconds.
        With `ends_session` the broker of MQTT 5 does not keep the session.
        """
        if self._thread.ident is None:
            return
        self.client.disconnect(properties=_end_of_session() if ends_session else None)
        self._thread.join(timeout)
        if self._thread.is_alive():
            self.abort()

    def abort(self, reason: Problem = _TOOK_TOO_LONG) -> None:
        """Cut the connection at once, from any thread; the broker then publishes the will."""
        self._set_lost(reason)
        connection = plain(self.client.socket())
        if isinstance(connection, socket.socket):
            cut(connection)

    def unanswered(self, timeout: float, *, delivered: int = 0) -> SinkError:
        """End the connection because of a missing acknowledgement; return the error that
        says so.
        """
        lost = self._lost
        # What is still in flight must not be mistaken for a later publish: this connection is over.
        self.abort()
        silent = Problem(
            f"{self.plan.address}: the broker has not acknowledged within {timeout:g} s",
            "check the broker and the network",
        )
        return SinkError(lost or silent, delivered=delivered)

    def _set_lost(self, reason: Problem) -> None:
        """Note why the connection was lost; the first reason counts."""
        with self.changed:
            if self._lost is None:
                self._lost = reason.at(self.plan.address)
            self.changed.notify_all()

    # From here on: the network thread.

    def _run(self) -> None:
        try:
            self._serve()
        except Exception as error:  # noqa: BLE001  # the end of a thread: `ensure` raises it
            self._set_lost(network(error))
        finally:
            self._set_lost(Problem("the connection has ended"))
            self._release()

    def _serve(self) -> None:
        plan = self.plan
        if plan.protocol == "5":
            self.client.connect(
                plan.host,
                plan.port,
                KEEPALIVE,
                clean_start=plan.is_clean,
                properties=connect_properties(plan),
            )
        else:
            self.client.connect(plan.host, plan.port, KEEPALIVE)
        while self._lost is None and self.client.loop(_LOOP_SECONDS) == _GOES_ON:
            pass

    def _release(self) -> None:
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
        self,
        client: Client,
        _data: Any,
        _flags: Any,
        code: ReasonCode,
        properties: Properties | None,
    ) -> None:
        if code.is_failure:
            self._set_lost(reason(code.value).at("the broker refused the connection"))
            return
        limits = read_limits(properties, connection=client.socket())
        with self.changed:
            self.limits = limits
            self.changed.notify_all()

    def _on_disconnect(
        self,
        _client: Client,
        _data: Any,
        flags: DisconnectFlags,
        code: ReasonCode,
        _properties: Any,
    ) -> None:
        if self.client.oversized is not None:
            self._set_lost(_too_large(self.client.oversized, self.plan.max_packet_bytes))
            return
        from_broker = flags.is_disconnect_packet_from_server
        if from_broker and code.value in ABOUT_THE_MESSAGE:
            self.blamed = code.value
        elif not from_broker and code.value == PROTOCOL_ERROR and self.limits is not None:
            # Paho could not read what came instead of an acknowledgement. Acknowledgements come in
            # order (MQTT 5, 4.6), so it was the one of the first message that has none.
            self.blamed = UNREADABLE
        self._set_lost(
            ending(code.value, from_broker=from_broker, accepted=self.limits is not None)
        )


def _too_large(size: int, most: int) -> Problem:
    return Problem(
        f"the broker sent a packet of {size:,} bytes, and at most {most:,} are read",
        "see who may write the command topic, and limit the size of messages at the broker",
    )


def _end_of_session() -> Properties:
    """Return the properties of a DISCONNECT after which no session is kept (MQTT 5, 3.14.2.2)."""
    made = Properties(PacketTypes.DISCONNECT)  # type: ignore[no-untyped-call]
    made.SessionExpiryInterval = 0
    return made
