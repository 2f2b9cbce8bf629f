"""HOST:PORT in settings and options: parsed and written."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Final

_LAST_PORT: Final = 65535


def parsed(text: str) -> tuple[str, int]:
    """Return host, without brackets, and port; localhost is its IPv4 address. Raises
    `ValueError`.
    """
    name, _, port = text.rpartition(":")
    host = name.removeprefix("[").removesuffix("]")
    if not (host and port.isascii() and port.isdecimal() and int(port) <= _LAST_PORT):
        raise ValueError("this is not HOST:PORT")
    return ("127.0.0.1" if host == "localhost" else host), int(port)


def written(host: str, port: int) -> str:
    """Return the address in the form of a setting."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def reachable(host: str) -> str:
    """Return the address at which a client reaches this server; loopback if it listens on all of
    them.
    """
    address = ip_address(host)
    if address.is_unspecified:
        return "127.0.0.1" if address.version == 4 else "::1"  # noqa: PLR2004
    return host
