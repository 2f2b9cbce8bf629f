"""The address of a hub and how to authenticate. No error shows a part of the connection string."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

AMQPS_PORT: Final = 5671
WEBSOCKET_PORT: Final = 443
MAX_PORT: Final = 65535

_ENDPOINT: Final = re.compile(
    r"sb://(?P<host>\[[0-9a-f:.]{2,45}\]|[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?)(:(?P<port>\d{1,5}))?/?",
    re.IGNORECASE | re.ASCII,
)
# Azure: letters, digits, periods, hyphens and underscores, at most 256 characters.
_HUB: Final = re.compile(r"[a-z0-9]([a-z0-9._-]{0,254}[a-z0-9])?", re.IGNORECASE | re.ASCII)
_HOST: Final = re.compile(r"[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63})+", re.IGNORECASE | re.ASCII)
_KEYS: Final = (
    "Endpoint",
    "EntityPath",
    "SharedAccessKeyName",
    "SharedAccessKey",
    "SharedAccessSignature",
    "UseDevelopmentEmulator",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HubAddress:
    """A hub, and the shared key or signature for it (neither with a managed identity)."""

    host: str
    hub: str
    port: int | None = None
    """Only for the emulator: for any other hub the SDK always uses port 5671."""
    emulator: bool = False
    websocket: bool = False
    """Whether AMQP runs within a WebSocket, on port 443."""
    key_name: str | None = None
    key: str | None = field(default=None, repr=False)
    signature: str | None = field(default=None, repr=False)

    def __str__(self) -> str:
        """Return its name in errors: the hub and its host, no secret."""
        usual = WEBSOCKET_PORT if self.websocket else AMQPS_PORT
        return f"hub {self.hub} at {self.host}:{self.port or usual}"

    def connection_string(self) -> str:
        """Return the string for the SDK. A secret."""
        port = f":{self.port}" if self.port else ""
        parts = [f"Endpoint=sb://{self.host}{port}/", f"EntityPath={self.hub}"]
        if self.signature is not None:
            parts.append(f"SharedAccessSignature={self.signature}")
        else:
            parts += [f"SharedAccessKeyName={self.key_name}", f"SharedAccessKey={self.key}"]
        if self.emulator:
            parts.append("UseDevelopmentEmulator=true")
        return ";".join(parts)


def read_namespace(namespace: str, name: str | None) -> HubAddress:
    """Return the address for a managed identity. Raises `ValueError` if a part is missing
    or wrong.
    """
    if not _HOST.fullmatch(namespace):
        raise ValueError(
            "namespace is the full host name, such as my-namespace.servicebus.windows.net, "
            "without sb:// and without a port"
        )
    if name is None:
        raise ValueError("name, the name of the hub, is needed together with namespace")
    return HubAddress(host=namespace, hub=_hub(name, "name"))


def read_connection_string(text: str, name: str | None) -> HubAddress:
    """Read a connection string; `name` takes precedence over EntityPath. Raises `ValueError`."""
    parts = _parts(text)
    if "Endpoint" not in parts:
        raise ValueError("the connection string has no Endpoint=sb://<namespace>/")
    matched = _ENDPOINT.fullmatch(parts["Endpoint"])
    if matched is None:
        raise ValueError(
            "Endpoint must be sb://<host>/ with a plain host name: no user, path, blank or "
            "dot at the end"
        )
    emulator = _is_emulator(parts)
    host = matched["host"].lower()
    port = int(matched["port"]) if matched["port"] else None
    if port is not None and not 0 < port <= MAX_PORT:
        raise ValueError("the port in Endpoint is a number from 1 to 65535")
    if emulator:
        host = _loopback(host)
    elif port not in (None, AMQPS_PORT):
        raise ValueError(
            "the SDK always connects to port 5671, so a port in Endpoint is only for the "
            "emulator: take it away, or add UseDevelopmentEmulator=true for a hub on this machine"
        )
    entity = name if name is not None else parts.get("EntityPath")
    if entity is None:
        raise ValueError("the connection string has no EntityPath: set name to the hub's name")
    key_name, key, signature = _credential(parts)
    return HubAddress(
        host=host,
        hub=_hub(entity, "name" if name is not None else "EntityPath"),
        port=port if emulator else None,
        emulator=emulator,
        key_name=key_name,
        key=key,
        signature=signature,
    )


def _parts(text: str) -> dict[str, str]:
    canonical = {key.lower(): key for key in _KEYS}
    parts: dict[str, str] = {}
    for part in text.strip().rstrip(";").split(";"):
        key, equals, value = part.partition("=")
        known = canonical.get(key.lower())
        if not equals or not value or known is None:
            raise ValueError(
                f"the connection string must be made of key=value, with these keys: "
                f"{', '.join(_KEYS)}; copy it again from the portal"
            )
        if known in parts:
            raise ValueError(f"the connection string has {known} twice")
        if any(character.isspace() for character in value) and known != "SharedAccessSignature":
            raise ValueError(f"{known} in the connection string holds a blank")
        if not value.isprintable():
            raise ValueError(f"{known} in the connection string holds a control character")
        parts[known] = value
    return parts


def _is_emulator(parts: dict[str, str]) -> bool:
    value = parts.get("UseDevelopmentEmulator")
    if value not in (None, "true"):
        # Measured: the SDK compares with `true` and silently keeps TLS on for any other spelling.
        raise ValueError(
            "UseDevelopmentEmulator works only as exactly true, in small letters: "
            "write that, or leave it out"
        )
    return value == "true"


def _loopback(host: str) -> str:
    # The switch turns TLS off, and the SDK does not look at the host: anywhere else, the token
    # would travel in clear.
    if host == "localhost":
        return host
    try:
        address = ip_address(host.strip("[]"))
    except ValueError:
        address = None
    if isinstance(address, IPv4Address) and address.is_loopback and "[" not in host:
        return host
    if address == IPv6Address("::1"):
        return "localhost"  # measured: the SDK takes the last colon of ::1 for that of a port
    raise ValueError(
        "UseDevelopmentEmulator=true turns TLS off, so it is refused for any host but localhost, "
        "127.0.0.0/8 and [::1]: take it away to connect with TLS"
    )


def _credential(parts: dict[str, str]) -> tuple[str | None, str | None, str | None]:
    signature = parts.get("SharedAccessSignature")
    key = parts.get("SharedAccessKey")
    name = parts.get("SharedAccessKeyName")
    if signature is not None and (key is not None or name is not None):
        raise ValueError(
            "the connection string has both a SharedAccessKey and a SharedAccessSignature: keep one"
        )
    if signature is not None:
        if not re.search(r"(^|[& ])se=\d{1,12}(&|$)", signature, re.ASCII):
            raise ValueError("SharedAccessSignature has no se=<seconds>, the time of its expiry")
        return None, None, signature
    if key is None or name is None:
        raise ValueError(
            "the connection string needs SharedAccessKeyName and SharedAccessKey, or "
            "SharedAccessSignature"
        )
    return name, key, None


def _hub(name: str, setting: str) -> str:
    if not _HUB.fullmatch(name):
        raise ValueError(
            f"{setting} is the name of the hub: letters, digits, periods, hyphens, underscores"
        )
    return name
