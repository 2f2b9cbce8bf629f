"""MQTT's reason codes and the network's errors, in words that end in what to do.

It never sees a password, so that none can be in what it says.
"""

from __future__ import annotations

import socket
import ssl
from typing import Final

NOBODY_SUBSCRIBED: Final = 0x10
PROTOCOL_ERROR: Final = 0x82
KEEP_ALIVE_TIMEOUT: Final = 0x8D
NOT_AUTHORIZED: Final = 0x87
TOPIC_NAME_INVALID: Final = 0x90
PACKET_TOO_LARGE: Final = 0x95
PAYLOAD_FORMAT_INVALID: Final = 0x99

UNREADABLE: Final = 0x100
"""Not MQTT's: the answer to a message was no MQTT 5 packet."""

FIRST_FAILURE: Final = 0x80
"""MQTT 5, 2.4: codes from here on are failures."""

ABOUT_THE_MESSAGE: Final = frozenset({TOPIC_NAME_INVALID, PACKET_TOO_LARGE, PAYLOAD_FORMAT_INVALID})
"""Refusals that the same message will meet again, whoever changes what at the broker's rules."""

# MQTT 5, 2.4, those that a publisher can meet; the words are the remedy where there is one.
_WORDS: Final = {
    0x81: "malformed packet",
    0x82: "protocol error",
    0x83: "refused for a reason of the broker's own; its log should say which",
    0x84: "the broker does not speak this protocol version; set PROTOCOL to 3.1.1, or to 5",
    0x85: "the broker does not accept the client id; allow it there",
    0x86: "bad user name or password; check USERNAME and PASSWORD or PASSWORD_FILE",
    0x87: "not authorized; check USERNAME and PASSWORD or PASSWORD_FILE, and the broker's ACL",
    0x88: "the broker is unavailable",
    0x89: "the broker is busy",
    0x8A: "this client is banned; lift the ban at the broker",
    0x8B: "the broker is shutting down",
    0x8C: "the broker asks for another method of authentication; only user and password, "
    "or a client certificate, are supported",
    0x8D: "keep alive timeout: the network was silent for too long",
    0x8E: "another client has connected with the same client id; is a second bridge running "
    "for this VM, or a copy of it with the same vmId?",
    0x90: "the broker does not accept the topic name",
    0x93: "more messages were in flight than the broker allows",
    0x95: "the message is larger than the broker takes; raise the broker's maximum packet size",
    0x96: "too many messages for the broker's rate limit",
    0x97: "the broker's quota is used up; raise it there",
    0x98: "the broker closed the connection on an administrator's action",
    0x99: "the broker found the payload not to be of its declared format",
    0x9A: "the broker does not keep retained messages; allow them for the status and state topics",
    0x9B: "the broker does not offer QoS 1; allow it there",
    0x9C: "the broker sends its clients to another server; change HOST",
    0x9D: "the broker has moved; change HOST",
    0x9F: "too many connections in a short time for the broker's limit",
    0xA0: "the broker limits the time of a connection",
}


# Mosquitto puts 0x95 into a PUBACK, where MQTT 5 (table 3-4) has no such code. (Seen with 2.0.11.)
_UNREADABLE: Final = (
    "the broker's answer is no MQTT 5, as Mosquitto's to a message that is larger than its "
    "message_size_limit; raise that, or set max_packet_size instead"
)

_NETWORK: Final = (
    (
        (socket.gaierror, UnicodeError),
        "the name cannot be resolved; check HOST and the name server",
    ),
    (
        (ConnectionRefusedError,),
        "nothing listens there; check HOST and PORT, and that the broker runs",
    ),
    (
        (TimeoutError,),
        "no answer; check HOST and PORT, and the firewalls in between",
    ),
)


def reason(code: int) -> str:
    """A reason code in words, `what (0x87); what to do`, its number as the specification has it."""
    if code == UNREADABLE:
        return _UNREADABLE
    what, mark, remedy = _WORDS.get(code, "refused").partition("; ")
    return f"{what} (0x{code:02X}){mark}{remedy}"


def ending(code: int, *, from_broker: bool, accepted: bool) -> str:
    """Why a connection has ended. `from_broker`: the code came in its DISCONNECT, and is not the
    library's own; `accepted`: the broker had sent its CONNACK.
    """
    if from_broker:
        return f"the broker closed the connection: {reason(code)}"
    if not accepted:
        return (
            "the connection was closed before the broker accepted it; check PORT and PROTOCOL, "
            "whether the broker wants TLS, and TLS__CERT where it asks for a certificate"
        )
    if code in (PROTOCOL_ERROR, KEEP_ALIVE_TIMEOUT):
        return reason(code)
    # Mosquitto 2.0 gives no reason where it shuts down or another client takes the session over.
    return (
        "the connection was lost; see how the broker and the network are doing, "
        "and that no second bridge runs for this VM"
    )


def network(error: Exception) -> str:
    """Why a connection could not be made, and what to do about it."""
    for kinds, words in _NETWORK:
        if isinstance(error, kinds):
            return words
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"the broker's certificate is not trusted ({error.verify_message}); "
            "check HOST, and set TLS__CA to the CA that signed it"
        )
    if isinstance(error, ssl.SSLError):
        why = error.reason or type(error).__name__
        return f"the TLS handshake failed ({why}); check PORT, and whether the broker uses TLS"
    if isinstance(error, OSError):
        return (
            f"{error.strerror or type(error).__name__}; check HOST and PORT, the network, and "
            "whether the broker uses TLS"
        )
    return f"{type(error).__name__} over what the broker sent, a bug; please report it"
