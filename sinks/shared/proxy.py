"""The HTTP proxy on the way to a destination. It never shows a password."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from pydantic import SecretStr


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """The address of a proxy, and the login for it."""

    host: str
    port: int
    username: str | None = None
    password: str | None = field(default=None, repr=False)

    def __str__(self) -> str:
        """Return the proxy's name in errors, without its password."""
        return f"{self.host}:{self.port}"


def read_proxy(text: str) -> Proxy:
    """Return a proxy from its address. Raises `ValueError`, which quotes nothing: it may
    be secret.
    """
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        host = parts.hostname
        port = parts.port
    except ValueError:
        host = None
        port = None
        parts = urlsplit("")
    if parts.scheme != "http" or not host or port is None or parts.path not in ("", "/"):
        raise ValueError("give the address of a proxy as http://HOST:PORT")
    return Proxy(
        host=host,
        port=port,
        username=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password) if parts.password else None,
    )


def proxy_for(host: str, port: int, given: SecretStr | None) -> Proxy | None:
    """Return the proxy for a TLS connection: the given one, or the system's. Raises
    `ValueError`.
    """
    if given is not None:
        return read_proxy(given.get_secret_value())
    found = getproxies().get("https")
    return read_proxy(found) if found and not proxy_bypass(f"{host}:{port}") else None
