"""A paho client whose TCP connection may go through an HTTP proxy, may carry WebSockets, and reads
no packet that is too large.
"""

from __future__ import annotations

import base64
import socket
import time
from math import inf
from typing import Any, Final

from paho.mqtt.client import Client

from sinks.shared.proxy import Proxy
from sinks.shared.sockets import connect

_MAX_HEAD_BYTES: Final = 8192
_CONNECTED: Final = 200


class ProxyError(ConnectionError):
    """The proxy did not connect; the text has its answer, and no password."""


class TunnelClient(Client):
    """A paho client that makes every connection through `proxy`, if one is given."""

    proxy: Proxy | None = None
    max_packet_bytes: float = inf
    """A larger packet of the broker ends the connection, before it is read."""
    oversized: int | None = None
    """The size of such a packet, in bytes; None if there was none."""
    _latest: socket.socket | None = None

    def _create_socket(self) -> Any:
        try:
            return super()._create_socket()
        except BaseException:
            # Paho leaves what it made so far to the garbage collector.
            if self._latest is not None:
                self._latest.close()
            raise
        finally:
            self._latest = None

    def _ssl_wrap_socket(self, tcp_sock: socket.socket) -> Any:
        self._latest = made = super()._ssl_wrap_socket(tcp_sock)
        return made

    def _sock_recv(self, bufsize: int) -> bytes:
        # Paho asks for all that is left of a packet, and keeps it until the packet is whole.
        if bufsize > self.max_packet_bytes:
            self.oversized = bufsize
            raise ConnectionAbortedError("the packet is too large")
        return super()._sock_recv(bufsize)

    def _create_socket_connection(self) -> socket.socket:
        self._latest = made = self._connected()
        return made

    def _connected(self) -> socket.socket:
        # The base would ask the environment for a proxy, if it had PySocks.
        if self.proxy is None:
            return connect(self._host, self._port, timeout=self.connect_timeout)
        return connect_through(self.proxy, self._host, self._port, timeout=self.connect_timeout)


def plain(connection: Any) -> Any:
    """Return the socket of a connection without what is wrapped around it, as paho does for
    WebSockets.
    """
    while (inner := getattr(connection, "_socket", None)) is not None:
        connection = inner
    return connection


def connect_through(proxy: Proxy, host: str, port: int, *, timeout: float) -> socket.socket:
    """Return a connection through the proxy's CONNECT. Raises `ProxyError`."""
    try:
        connection = connect(proxy.host, proxy.port, timeout=timeout)
    except OSError as error:
        raise ProxyError(f"{proxy}: {error.strerror or type(error).__name__}") from None
    try:
        _open_tunnel(
            connection, proxy, f"[{host}]:{port}" if ":" in host else f"{host}:{port}", timeout
        )
    except BaseException:
        connection.close()
        raise
    return connection


def _open_tunnel(connection: socket.socket, proxy: Proxy, target: str, timeout: float) -> None:
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
    if proxy.username is not None:
        user = f"{proxy.username}:{proxy.password or ''}".encode()
        lines.append(f"Proxy-Authorization: Basic {base64.b64encode(user).decode()}")
    connection.sendall("\r\n".join([*lines, "", ""]).encode())
    until = time.monotonic() + timeout
    head = b""
    # A byte at a time: what follows the head belongs to the broker.
    while not head.endswith(b"\r\n\r\n"):
        byte = connection.recv(1)
        if not byte or len(head) > _MAX_HEAD_BYTES or time.monotonic() > until:
            raise ProxyError(f"{proxy}: its answer broke off")
        head += byte
    status = head.split(b" ", 2)[1:2]
    if not status or not status[0].isdigit():
        raise ProxyError(f"{proxy}: its answer is not HTTP")
    if int(status[0]) != _CONNECTED:
        raise ProxyError(f"{proxy}: it answered {int(status[0])}")
