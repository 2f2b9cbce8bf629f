"""Where a simulator may listen."""

from __future__ import annotations

import ipaddress
from typing import Final

_METADATA_ADDRESS: Final = ipaddress.ip_address("169.254.169.254")


def checked_address(host: str, *, beyond_loopback: bool) -> str:
    """The IP address to listen on; `beyond_loopback` only where a person asked for this one.

    Raises `ValueError` that says what is allowed; it never allows the real metadata address.
    """
    if host == "localhost":
        return "127.0.0.1"
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        raise ValueError(f"{host!r} is not an IP address; use 127.0.0.1") from None
    mapped = getattr(address, "ipv4_mapped", None) or address
    if mapped == _METADATA_ADDRESS:
        raise ValueError("169.254.169.254 belongs to the real metadata service; use 127.0.0.1")
    if not (mapped.is_loopback or beyond_loopback):
        raise ValueError(f"{host} is not a loopback address; use 127.0.0.1")
    return host
