"""MQTT's reason codes and the network's errors in words, with what to do."""

from __future__ import annotations

import socket
import ssl
from typing import Final

from paho.mqtt.client import WebsocketConnectionError

from sinks.base import Problem
from sinks.errors import certificate_remedy
from sinks.kinds.mqtt.tunnel import ProxyError

NOBODY_SUBSCRIBED: Final = 0x10
PROTOCOL_ERROR: Final = 0x82
KEEP_ALIVE_TIMEOUT: Final = 0x8D
NOT_AUTHORIZED: Final = 0x87
TOPIC_NAME_INVALID: Final = 0x90
PACKET_TOO_LARGE: Final = 0x95
PAYLOAD_FORMAT_INVALID: Final = 0x99

UNREADABLE: Final = 0x100
"""Not one of MQTT's codes: the answer to a message was no valid MQTT 5 packet."""

FIRST_FAILURE: Final = 0x80
"""MQTT 5, 2.4: this code and higher ones are failures."""

ABOUT_THE_MESSAGE: Final = frozenset({TOPIC_NAME_INVALID, PACKET_TOO_LARGE, PAYLOAD_FORMAT_INVALID})
"""Refusals that the same message always gets, whatever the broker's access rules are."""

# MQTT 5, 2.4, those that a publisher can meet.
_WORDS: Final = {
    0x81: Problem("malformed packet"),
    0x82: Problem("protocol error"),
    0x83: Problem("refused for a reason of the broker's own", "its log should say which"),
    0x84: Problem(
        "the broker does not speak this protocol version", "set PROTOCOL to 3.1.1, or to 5"
    ),
    0x85: Problem("the broker does not accept the client id", "allow it there"),
    0x86: Problem("bad user name or password", "check USERNAME and PASSWORD or PASSWORD_FILE"),
    0x87: Problem(
        "not authorized", "check USERNAME and PASSWORD or PASSWORD_FILE, and the broker's ACL"
    ),
    0x88: Problem("the broker is unavailable"),
    0x89: Problem("the broker is busy"),
    0x8A: Problem("this client is banned", "lift the ban at the broker"),
    0x8B: Problem("the broker is shutting down"),
    0x8C: Problem(
        "the broker asks for another method of authentication",
        "only user and password, or a client certificate, are supported",
    ),
    0x8D: Problem("keep alive timeout: the network was silent for too long"),
    0x8E: Problem(
        "another client has connected with the same client id",
        "is a second bridge running for this VM, or a copy of it with the same vmId?",
    ),
    0x90: Problem("the broker does not accept the topic name"),
    0x93: Problem("more messages were in flight than the broker allows"),
    0x95: Problem(
        "the message is larger than the broker takes", "raise the broker's maximum packet size"
    ),
    0x96: Problem("too many messages for the broker's rate limit"),
    0x97: Problem("the broker's quota is used up", "raise it there"),
    0x98: Problem("the broker closed the connection on an administrator's action"),
    0x99: Problem("the broker found the payload not to be of its declared format"),
    0x9A: Problem(
        "the broker does not keep retained messages", "allow them for the status and state topics"
    ),
    0x9B: Problem("the broker does not offer QoS 1", "allow it there"),
    0x9C: Problem("the broker sends its clients to another server", "change HOST"),
    0x9D: Problem("the broker has moved", "change HOST"),
    0x9F: Problem("too many connections in a short time for the broker's limit"),
    0xA0: Problem("the broker limits the time of a connection"),
}


# Mosquitto puts 0x95 into a PUBACK, where MQTT 5 (table 3-4) has no such code. (Seen with 2.0.11.)
_UNREADABLE: Final = Problem(
    "the broker's answer is not MQTT 5, as Mosquitto's to a message that is larger than its "
    "message_size_limit",
    "raise that, or set max_packet_size instead",
)

_NETWORK: Final = (
    (
        (socket.gaierror, UnicodeError),
        Problem("the name cannot be resolved", "check HOST and the name server"),
    ),
    (
        (ConnectionRefusedError,),
        Problem("connection refused", "check HOST and PORT, and that the broker runs"),
    ),
    ((TimeoutError,), Problem("no answer", "check HOST and PORT, and the firewalls in between")),
)


def reason(code: int) -> Problem:
    """Return a reason code in words, followed by its number as in the specification:
    `what (0x87)`.
    """
    if code == UNREADABLE:
        return _UNREADABLE
    known = _WORDS.get(code, Problem("refused"))
    return Problem(f"{known.what} (0x{code:02X})", known.remedy)


def ending(code: int, *, from_broker: bool, accepted: bool) -> Problem:
    """Return why a connection has ended; `from_broker`: by its DISCONNECT; `accepted`: after
    CONNACK.
    """
    if from_broker:
        return reason(code).at("the broker closed the connection")
    if not accepted:
        return Problem(
            "the connection was closed before the broker accepted it",
            "check PORT and PROTOCOL, whether the broker wants TLS, and TLS__CERT if it asks "
            "for a certificate",
        )
    if code in (PROTOCOL_ERROR, KEEP_ALIVE_TIMEOUT):
        return reason(code)
    # Mosquitto 2.0 gives no reason if it shuts down or another client takes the session over.
    return Problem(
        "the connection was lost",
        "check the broker and the network, and that no second bridge runs for this VM",
    )


def network(error: Exception) -> Problem:
    """Return why a connection could not be made, and what to do about it."""
    if isinstance(error, ProxyError):
        return Problem(
            f"the proxy did not connect ({error})",
            "check PROXY or HTTPS_PROXY, its user, and that it lets CONNECT through to this port",
        )
    if isinstance(error, WebsocketConnectionError):
        return Problem(
            "the answer is not a WebSocket", "check PORT and PATH, and the proxies on the way"
        )
    return _tls_problem(error) or _system_problem(error)


def _tls_problem(error: Exception) -> Problem | None:
    if isinstance(error, ssl.SSLCertVerificationError):
        return Problem(
            f"the broker's certificate is not trusted ({error.verify_message})",
            certificate_remedy(error, "check HOST, and set TLS__CA to the CA that signed it"),
        )
    if isinstance(error, ssl.SSLError):
        detail = error.reason or type(error).__name__
        return Problem(
            f"the TLS handshake failed ({detail})", "check PORT, and whether the broker uses TLS"
        )
    return None


def _system_problem(error: Exception) -> Problem:
    for kinds, words in _NETWORK:
        if isinstance(error, kinds):
            return words
    if isinstance(error, OSError):
        return Problem(
            error.strerror or type(error).__name__,
            "check HOST and PORT, the network, and whether the broker uses TLS",
        )
    return Problem(f"{type(error).__name__} over what the broker sent, a bug", "please report it")
