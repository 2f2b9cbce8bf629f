"""Addresses: whether one can be used, and how much of it may be shown. It opens no connection."""

from __future__ import annotations

import ipaddress
from urllib.parse import SplitResult, urlsplit


def checked_address(text: str, *, instead: str) -> SplitResult:
    """Return the parts of an http or https address. Raises `ValueError`, which shows no
    part of it.
    """
    try:
        parts = urlsplit(text)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # a port that is not a number, or half a pair of brackets
        good = False
    if not good or not text.isprintable() or " " in text:
        raise ValueError("this is not an address such as https://hooks.example.com/path")
    if parts.username is not None or parts.password is not None:
        raise ValueError(f"user and password do not belong in the address; {instead}")
    if not _is_a_name(parts.hostname or ""):
        raise ValueError("the host of this address is not a valid name")
    return parts


def origin(parts: SplitResult) -> str:
    """Return scheme, host and port of an address, which cannot be secret."""
    host = parts.hostname or ""
    name = f"[{host}]" if ":" in host else host
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{name}{port}"


def is_loopback(host: str) -> bool:
    """Check whether the host is this machine, by its name or address alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost" or host.lower().endswith(".localhost")


def _is_a_name(host: str) -> bool:
    """Check whether this host could be a name or an address: requests would refuse others only when
    it connects.
    """
    try:
        return bool(host.encode("idna")) and "*" not in host
    except UnicodeError:  # a label that is empty or too long, or signs that no name can have
        return False
