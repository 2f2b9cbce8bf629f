"""Errors of azure-eventhub, explained. The SDK's own text is never shown: it can hold a token."""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeVar

from sinks.errors import SinkError, causes, certificate_remedy

# Azure: after server-busy a client should wait 4 seconds before it tries again.
BUSY_SECONDS: Final = 4.0

T = TypeVar("T")

TroubleKind = Literal[
    "auth",
    "busy",
    "disabled",
    "identity",
    "large",
    "lost",
    "malformed",
    "missing",
    "network",
    "proxy",
    "timeout",
    "upgrade",
    "unknown",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class HubTrouble:
    """A diagnosis: `kind` decides what is done, the texts are for people."""

    kind: TroubleKind
    what: str
    remedy: str
    link_lost: bool = True
    """Whether the link cannot be used again."""

    def text(self, where: object) -> str:
        """Return one line for people: where, what, and what to do."""
        return f"{where}: {self.what}; {self.remedy}"

    def error(self, where: object, *, delivered: int = 0) -> SinkError:
        """Return the error for the dispatcher."""
        return SinkError(
            f"{where}: {self.what}",
            remedy=self.remedy,
            retry_after=BUSY_SECONDS if self.kind == "busy" else None,
            delivered=delivered,
        )


_WORDS: Final[dict[TroubleKind, tuple[str, str]]] = {
    "auth": (
        "access was refused",
        "check that the key or identity is valid and may send to this hub, and the clock here",
    ),
    "missing": (
        "the hub does not exist",
        "check name, or EntityPath, against the namespace in the portal",
    ),
    "busy": (
        "the namespace is throttling, or a quota is used up",
        "it is tried again; if this lasts, add throughput units",
    ),
    "disabled": ("the hub is disabled", "set its status to Active in the portal"),
    "large": (
        "the record is larger than the hub takes",
        "a hub of the Basic tier takes 256 KB, of Standard and Premium 1 MB",
    ),
    "malformed": ("the hub refused the record itself", "report it with the condition's name"),
    "lost": ("the link was closed", "it is opened again at the next try"),
    "timeout": (
        "no answer in time",
        "it is tried again; if this lasts, look at the network and at the namespace's health",
    ),
    "identity": (
        "there is no token for this machine's identity",
        "give the VM a managed identity with the role Azure Event Hubs Data Sender",
    ),
    "proxy": (
        "the proxy did not connect",
        "check PROXY or HTTPS_PROXY, its user, and that it lets CONNECT through to port 443",
    ),
    "upgrade": (
        "the answer is not a WebSocket",
        "check namespace; a proxy or firewall on the way may not let WebSockets through",
    ),
    "network": ("its name cannot be resolved", "check namespace and DNS"),
    "unknown": ("the hub answered with an error", "it is tried again"),
}
_CONDITIONS: Final[dict[str, TroubleKind]] = {
    "amqp:unauthorized-access": "auth",
    "amqp:not-found": "missing",
    "amqp:resource-deleted": "missing",
    "com.microsoft:server-busy": "busy",
    "amqp:resource-limit-exceeded": "busy",
    "com.microsoft:entity-disabled": "disabled",
    "amqp:link:message-size-exceeded": "large",
    "com.microsoft:message-size-exceeded": "large",
    "com.microsoft:argument-error": "malformed",
    "com.microsoft:argument-out-of-range": "malformed",
    "amqp:decode-error": "malformed",
    "amqp:invalid-field": "malformed",
    "com.microsoft:timeout": "timeout",
    "amqp:link:detach-forced": "lost",
    "amqp:link:stolen": "lost",
    "amqp:connection:forced": "lost",
    "amqp:socket-error": "lost",
    # What the SDK calls a transfer whose link went away before the answer came.
    "amqp:unknown-error": "lost",
}
_STATUSES: Final[dict[int, TroubleKind]] = {
    401: "auth",
    403: "auth",
    404: "missing",
    429: "busy",
    503: "busy",
}
_CLASSES: Final[dict[str, TroubleKind]] = {
    "ClientAuthenticationError": "identity",
    "CredentialUnavailableError": "identity",
    # A VM that was paused for longer than its token lived: a new connection puts a new one.
    "TokenExpired": "lost",
    "WebSocketAddressException": "network",
    "WebSocketBadStatusException": "upgrade",
    "WebSocketConnectionClosedException": "lost",
    "WebSocketProtocolException": "lost",
    "WebSocketProxyException": "proxy",
}
_CERTIFICATE: Final = (
    "check the address; if a proxy opens TLS on the way, add its CA to the system's store"
)
_FIREWALL: Final = (
    "check the address, and that a firewall lets this machine out to TCP port 5671 (AMQP over "
    "TLS), or 443 with TRANSPORT=websocket"
)


def diagnose(error: BaseException, *, link_condition: str | None = None) -> HubTrouble:
    """Return the trouble behind an exception of the SDK; the condition of a detach may be only in
    `link_condition`.
    """
    chain = list(causes(error))
    conditions = [symbol(getattr(cause, "condition", None)) for cause in chain]
    condition = link_condition or _first(conditions)
    # Over WebSockets the SDK wraps what TLS says into an error that says nothing.
    networks = [found for cause in chain if (found := _network(cause)) is not None]
    network = _first(each for each in networks if each.kind != "lost") or _first(networks)
    status = _first(_status(cause) for cause in chain)
    timed_out = any(isinstance(cause, TimeoutError) for cause in chain)
    expected = condition == "amqp:socket-error" or (condition is None and not timed_out)
    if network is not None and expected:
        return network
    known: TroubleKind | None = _first(_CLASSES.get(type(cause).__name__) for cause in chain)
    if known is not None:
        return _trouble(known, None)
    if timed_out:
        return _trouble("timeout", None)
    if status is not None:
        return _trouble(_STATUSES.get(status, "unknown"), f"status {status}")
    names = f"{type(error).__name__}, {type(chain[-1]).__name__}"
    trouble = _trouble(_CONDITIONS.get(condition or "", "unknown"), condition or names)
    # A rejected transfer leaves the link as good as it was; a detach does not.
    rejected = type(error).__name__ == "EventDataSendError" and link_condition is None
    return replace(trouble, link_lost=not rejected or trouble.kind == "lost")


def symbol(condition: object) -> str | None:
    """Return a condition as text if it looks like one; otherwise None, because the other side may
    write anything.
    """
    value = getattr(condition, "value", condition)
    text = value.decode("ascii", "replace") if isinstance(value, bytes) else value
    return text if isinstance(text, str) and re.fullmatch(r"[a-zA-Z0-9:._-]{1,80}", text) else None


def _trouble(kind: TroubleKind, detail: str | None) -> HubTrouble:
    what, remedy = _WORDS[kind]
    return HubTrouble(kind=kind, what=f"{what} ({detail})" if detail else what, remedy=remedy)


def _first(found: Iterable[T | None]) -> T | None:
    return next((one for one in found if one is not None), None)


def _status(error: BaseException) -> int | None:
    # The token service answers with a status of HTTP; 0 and amqp:client-error stand for none.
    status = getattr(error, "status_code", None)
    return status if type(status) is int and status >= 400 else None  # noqa: PLR2004


def _network(error: BaseException) -> HubTrouble | None:
    named = f"the connection broke ({type(error).__name__})"
    causes: tuple[tuple[type[BaseException], TroubleKind, str, str], ...] = (
        (socket.gaierror, "network", "its name cannot be resolved", "check namespace and DNS"),
        (ssl.SSLCertVerificationError, "network", "its certificate is not trusted", _CERTIFICATE),
        (ssl.SSLError, "network", "TLS failed", f"the peer may not be Event Hubs: {_FIREWALL}"),
        (ConnectionRefusedError, "network", "the connection was refused", _FIREWALL),
        (TimeoutError, "network", "no connection in time", _FIREWALL),
        (OSError, "lost", named, _FIREWALL),
    )
    if getattr(error, "condition", None) is not None:
        return None
    for kind_of_error, kind, what, remedy in causes:
        if isinstance(error, kind_of_error):
            if isinstance(error, ssl.SSLCertVerificationError):
                return HubTrouble(kind=kind, what=what, remedy=certificate_remedy(error, remedy))
            return HubTrouble(kind=kind, what=what, remedy=remedy)
    return None
