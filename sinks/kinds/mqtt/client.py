"""The settings of a paho client, and the limits in the broker's answer."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from sinks.base import SinkError, read_secret
from sinks.kinds.mqtt.messages import Message
from sinks.kinds.mqtt.properties import properties_of
from sinks.kinds.mqtt.settings import MqttSettings, MqttTls, Protocol
from sinks.kinds.mqtt.tunnel import TunnelClient, plain
from sinks.shared.proxy import Proxy

C = TypeVar("C", bound=TunnelClient)

KEEPALIVE: Final = 30
"""Seconds of silence after which paho pings; after as many again the connection is lost."""

# How long a broker keeps the session for commands: as long as a command can live.
_COMMAND_SESSION: Final = 900


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectPlan:
    """Everything a connection is made with."""

    host: str
    port: int
    client_id: str
    protocol: Protocol = "5"
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = None
    path: str | None = None
    """The path of the broker's WebSockets; None: MQTT without WebSockets."""
    proxy: Proxy | None = None
    will: Message | None = None
    session_expiry: int = 0
    """Seconds for which the broker keeps the session after the connection's end; 0: a new session,
    not kept.
    """
    receive_maximum: int = 16
    """How many messages the broker may send before the first of them is acknowledged."""
    max_packet_bytes: int = 1024 * 1024 + 64 * 1024
    """How large a packet from the broker may be. This is more than a command may have: one that is
    too large is counted as that. MQTT 5 tells the broker; a larger packet ends the connection.
    """
    begins_anew: bool = False
    """Whether the broker is to forget the session that it keeps: it holds a packet that is too
    large, and would send that again and again.
    """

    @property
    def keeps_session(self) -> bool:
        """Whether the session is kept after the connection's end, and each message is acknowledged
        by hand.
        """
        return self.session_expiry > 0

    @property
    def is_clean(self) -> bool:
        """Whether the connection takes up no session that the broker has kept."""
        return self.begins_anew or not self.keeps_session

    @property
    def address(self) -> str:
        """The broker's address, as errors name it."""
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLimits:
    """The limits in the broker's CONNACK; the defaults are MQTT's (MQTT 5, 3.2.2.3)."""

    maximum_qos: int = 2
    receive_maximum: int = 65535
    retain: bool = True
    maximum_packet_size: int | None = None
    tls_version: str | None = None


def plan_for(settings: MqttSettings, *, client_id: str, will: Message | None = None) -> ConnectPlan:
    """Return the connection's plan from the settings and the files that they name; a session is
    kept only for commands.
    """
    try:
        proxy = settings.effective_proxy
    except ValueError as error:
        raise SinkError(f"HTTPS_PROXY: {error}") from None
    return ConnectPlan(
        host=settings.host,
        path=settings.path if settings.transport == "websocket" else None,
        proxy=proxy,
        port=settings.effective_port,
        client_id=client_id,
        protocol=settings.protocol,
        username=settings.username,
        password=read_secret(settings.password, settings.password_file),
        tls=_tls(settings.tls or MqttTls()) if settings.uses_tls else None,
        will=will,
        session_expiry=_COMMAND_SESSION if settings.commands and will is not None else 0,
    )


class _Socket(ssl.SSLSocket):
    """A TLS socket that closes itself after a failed handshake; paho leaves that to the garbage
    collector.
    """

    def do_handshake(self, block: bool = False) -> None:  # noqa: FBT001, FBT002  # ssl's signature
        try:
            super().do_handshake(block)
        except OSError:
            self.close()
            raise


def _tls(settings: MqttTls) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=settings.ca)
        context.sslsocket_class = _Socket
    except OSError as error:
        raise _unusable("CA", settings.ca, error) from None
    if settings.cert is not None:
        try:
            # There is no setting for the key's password: without this, OpenSSL asks for it on the
            # terminal.
            context.load_cert_chain(settings.cert, settings.key, password=_no_password)
        except (OSError, ValueError) as error:
            raise _unusable("CERT or TLS__KEY", settings.key or settings.cert, error) from None
    return context


def _no_password() -> str:
    raise ValueError("the key is encrypted")


def _unusable(what: str, file: Path | None, error: Exception) -> SinkError:
    if isinstance(error, ssl.SSLError):
        # OpenSSL names a pair that does not match, and has only a line of its source for no PEM.
        reason = error.reason or "it holds no PEM of the right kind"
    else:
        reason = getattr(error, "strerror", None) or str(error)
    remedy = f"set TLS__{what} to a readable PEM file"
    return SinkError(f"{file} cannot be used: {reason}", remedy=remedy)


def new_client(plan: ConnectPlan, kind: type[C]) -> C:
    """Return a paho client that does not reconnect by itself. It is not connected, and has no
    callbacks.
    """
    transport: Literal["tcp", "websockets"] = "tcp" if plan.path is None else "websockets"
    is_5 = plan.protocol == "5"
    made = kind(
        CallbackAPIVersion.VERSION2,
        transport=transport,
        client_id=plan.client_id,
        clean_session=None if is_5 else plan.is_clean,
        protocol=MQTTProtocolVersion.MQTTv5 if is_5 else MQTTProtocolVersion.MQTTv311,
        reconnect_on_failure=False,
        manual_ack=plan.keeps_session,
    )
    made.proxy = plan.proxy
    made.max_packet_bytes = plan.max_packet_bytes
    if plan.path is not None:
        made.ws_set_options(path=plan.path)
    if plan.username is not None:
        made.username_pw_set(plan.username, plan.password)
    if plan.tls is not None:
        made.tls_set_context(plan.tls)
    if plan.will is not None:
        properties = properties_of(PacketTypes.WILLMESSAGE, plan.will) if is_5 else None
        made.will_set(plan.will.topic, plan.will.payload, 1, plan.will.retain, properties)
    made.on_socket_open = _send_at_once
    # With this set, paho leaves writing to the thread that runs its loop.
    made.on_socket_register_write = lambda *_: None
    return made


def _send_at_once(_client: Client, _data: Any, connection: Any) -> None:
    # Nagle's algorithm would hold a small PUBLISH back until the last one's TCP acknowledgement.
    plain(connection).setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def read_limits(properties: Properties | None, *, connection: object) -> BrokerLimits:
    """Return the limits in a CONNACK's properties, and the TLS version of the connection."""
    secured = plain(connection)
    return BrokerLimits(
        maximum_qos=getattr(properties, "MaximumQoS", 2),
        receive_maximum=getattr(properties, "ReceiveMaximum", 65535),
        retain=bool(getattr(properties, "RetainAvailable", 1)),
        maximum_packet_size=getattr(properties, "MaximumPacketSize", None),
        tls_version=secured.version() if isinstance(secured, ssl.SSLSocket) else None,
    )


def connect_properties(plan: ConnectPlan) -> Properties:
    """Return the properties of a CONNECT (MQTT 5, 3.1.2.11)."""
    made = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    made.SessionExpiryInterval = plan.session_expiry
    if plan.keeps_session:
        made.ReceiveMaximum = plan.receive_maximum
        made.MaximumPacketSize = plan.max_packet_bytes
    return made
