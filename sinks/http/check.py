"""The lines of `seb check` about an address, one per step. It never sends a request."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.parse import SplitResult, urlsplit

from sinks.base import Check, SinkError
from sinks.http.address import is_loopback, origin
from sinks.http.client import HttpLimits, proxy_of, tls_context
from sinks.http.errors import problem_of
from sinks.shared.sockets import connect

_SOON: Final = timedelta(days=14)
_PORTS: Final = {"http": 80, "https": 443}


def check_address(url: str, limits: HttpLimits, *, proxy: str | None = None) -> Iterator[Check]:
    """Yield the lines for transport, name, connection and certificate, up to the first step that
    fails.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme == "http" and not is_loopback(host):
        yield Check.warn(
            f"{origin(parts)} is not encrypted: records can be read on the network",
            "use an https address",
        )
    try:
        if through := proxy or proxy_of(url):
            yield _through(through, limits)
            return
        yield from _connect(parts, host, parts.port or _PORTS[parts.scheme], limits)
    except (OSError, ValueError, SinkError) as error:
        problem = error.problem if isinstance(error, SinkError) else problem_of(error)
        yield Check.fail(
            f"{origin(parts)}: {problem.what}",
            problem.remedy or "see that the receiver runs and can be reached from here",
        )


def _through(proxy: str, limits: HttpLimits) -> Check:
    """Check whether the proxy accepts connections. The destination behind it cannot be checked
    without a request.
    """
    parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    address = parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 80)
    try:
        connect(*address, timeout=limits.connect).close()
    except OSError as error:
        return Check.fail(
            f"proxy {origin(parts)}: {problem_of(error).what}",
            "see PROXY, HTTPS_PROXY and HTTP_PROXY, or name the host in NO_PROXY",
        )
    return Check.ok(f"proxy {origin(parts)} accepts connections")


def _connect(parts: SplitResult, host: str, port: int, limits: HttpLimits) -> Iterator[Check]:
    addresses = {info[4][0] for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
    if addresses != {host}:
        shown = ", ".join(sorted(map(str, addresses)))
        yield Check.ok(f"{host} is {shown}")
    with connect(host, port, timeout=limits.connect) as plain:
        yield Check.ok(f"{origin(parts)} accepts connections")
        if parts.scheme == "https":
            with tls_context().wrap_socket(plain, server_hostname=host) as secured:
                yield _certificate(secured)


def _certificate(secured: ssl.SSLSocket) -> Check:
    end = str((secured.getpeercert() or {})["notAfter"])
    left = datetime.fromtimestamp(ssl.cert_time_to_seconds(end), UTC) - datetime.now(UTC)
    text = f"{secured.version()}, certificate good for {left.days} more days"
    if left < _SOON:
        return Check.warn(text, "renew the receiver's certificate")
    return Check.ok(text)
