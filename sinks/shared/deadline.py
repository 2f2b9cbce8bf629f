"""HTTP connections that end at a deadline. The timeout of urllib3 is per read: a body that arrived
byte by byte made a call with a limit of one second take ten (requests 2.34.2).
"""

from __future__ import annotations

import io
import socket
import ssl
import time
import weakref
from collections.abc import Callable
from http.client import SWITCHING_PROTOCOLS, HTTPResponse, RemoteDisconnected
from math import inf
from typing import Any, Final

from requests.adapters import HTTPAdapter
from urllib3.exceptions import ConnectTimeoutError, NameResolutionError, NewConnectionError

from sinks.shared.sockets import connect, cut

_FIRST_FINAL_STATUS: Final = 200


class Deadline:
    """The time at which the current exchange must be over. For one thread; `cut` may be called from
    any.
    """

    def __init__(self) -> None:
        self.cut_off = ""
        """Why the connection was cut permanently; empty if it was not."""
        self._at = inf
        self._seconds = inf
        self._socket: weakref.ref[socket.socket] | None = None
        self.on_connected: Callable[[], object] | None = None
        """Called with each new connection before anything is sent over it; it may raise."""

    def allow(self, seconds: float) -> None:
        """Set the deadline to so many seconds from now."""
        self._seconds = seconds
        self._at = time.monotonic() + seconds

    def left(self) -> float:
        """Return the seconds until the deadline; 0.0 if it has passed."""
        return max(0.0, self._at - time.monotonic())

    @property
    def reason(self) -> str:
        """Return a sentence for people if the deadline ended the exchange; otherwise an
        empty text.
        """
        if self.cut_off or self.left():
            return self.cut_off
        return f"no answer within {self._seconds:g} s"

    def bound(self, timeout: float | None) -> float:
        """Return how many seconds a wait may take. Raises `TimeoutError` or
        `ConnectionAbortedError`.
        """
        if self.cut_off:
            raise ConnectionAbortedError(self.cut_off)
        left = self.left()
        if not left:
            raise TimeoutError("the deadline has passed")
        return left if timeout is None else min(timeout, left)

    def watch(self, connection: socket.socket) -> None:
        """Remember the socket in use, so that `cut` can close it. Raises what `bound` raises."""
        self._socket = weakref.ref(connection)
        self.bound(None)
        if self.on_connected is not None:
            self.on_connected()

    def cut(self, reason: str) -> None:
        """End the exchange, and every later one. Never raises."""
        self.cut_off = reason
        connection = self._socket() if self._socket is not None else None
        if connection is not None:
            cut(connection)


class DeadlineAdapter(HTTPAdapter):
    """An adapter with one connection that obeys `deadline`; `tls` is used for this adapter only."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.deadline = Deadline()
        self._tls = tls
        if tls is not None:
            tls.sslsocket_class = _tls_socket(self.deadline)
        # The methods below are the ones that requests documents for subclasses.
        super().__init__(pool_connections=1, pool_maxsize=1)

    def close(self) -> None:
        """Close the kept connection now. Without this it could stay open, in the traceback of an
        error.
        """
        for manager in (self.poolmanager, *self.proxy_manager.values()):
            for key in manager.pools.keys():  # noqa: SIM118  # it cannot be iterated
                manager.pools[key].close()
        super().close()

    def proxy_manager_for(self, proxy: str, **named: Any) -> Any:
        """Return a manager whose proxies with https also get sockets that obey the deadline."""
        return super().proxy_manager_for(proxy, proxy_ssl_context=self._tls, **named)

    def build_connection_pool_key_attributes(
        self, request: Any, verify: Any, cert: Any = None
    ) -> Any:
        """Return the pool's settings, with our TLS context."""
        host, pool = super().build_connection_pool_key_attributes(request, verify, cert)
        if self._tls is not None:
            pool["ssl_context"] = self._tls
        return host, pool

    def get_connection_with_tls_context(
        self, request: Any, verify: Any, proxies: Any = None, cert: Any = None
    ) -> Any:
        """Return the pool, whose connections obey the deadline."""
        pool: Any = super().get_connection_with_tls_context(request, verify, proxies, cert)
        if not hasattr(pool.ConnectionCls, "deadline"):
            pool.ConnectionCls = _connection(pool.ConnectionCls, self.deadline)
        return pool


class _Reader(io.BufferedReader):
    """Reads an answer; one that ends within its head is an error here, although http.client accepts
    it.
    """

    lines: int | None = None
    """How many lines of the head have been read; None after the head."""

    def readline(self, size: int | None = -1, /) -> bytes:
        line = super().readline(size)
        if self.lines is not None:
            if (self.lines or line) and not line.endswith(b"\n") and len(line) != size:
                raise RemoteDisconnected("the connection ended within the head of the answer")
            self.lines += 1
        return line


class _FinalResponse(HTTPResponse):
    """An answer that skips all 1xx answers before it (RFC 9110, 15.2); Python skips only 100."""

    fp: _Reader

    def __init__(self, sock: socket.socket, *args: Any, **named: Any) -> None:
        super().__init__(sock, *args, **named)
        self.fp.close()
        self.fp = _Reader(sock.makefile("rb", buffering=0))

    def begin(self) -> None:
        self.fp.lines = 0
        super().begin()
        while self.status < _FIRST_FINAL_STATUS and self.status != SWITCHING_PROTOCOLS:
            self.headers = self.msg = None  # type: ignore[assignment]  # as before the first
            self.length = None
            self.fp.lines = 0
            super().begin()
        self.fp.lines = None


def _connection(base: Any, deadline: Deadline) -> Any:
    """Return the connection class with a socket that obeys the deadline."""

    class Connection(base):  # type: ignore[misc]
        response_class = _FinalResponse

        def _new_conn(self) -> socket.socket:
            plain = self._connect()
            timeout = plain.gettimeout()
            timely = _PlainSocket(plain.family, plain.type, plain.proto, fileno=plain.detach())
            timely.deadline = deadline
            # Python takes a new object for a blocking one, while its descriptor is not.
            timely.settimeout(timeout)
            try:
                deadline.watch(timely)
            except BaseException:
                timely.close()
                raise
            return timely

        def _connect(self) -> socket.socket:
            """Connect to the first address that answers; urllib3 would wait for each dead address
            in turn.
            """
            timeout = deadline.bound(self.timeout)
            try:
                return connect(
                    self._dns_host, self.port, timeout=timeout, options=self.socket_options or ()
                )
            except socket.gaierror as error:
                raise NameResolutionError(self.host, self, error) from error
            except TimeoutError as error:
                raise ConnectTimeoutError(self, "no connection in time") from error
            except OSError as error:
                raise NewConnectionError(self, "no connection") from error

    Connection.deadline = deadline
    return Connection


class _PlainSocket(socket.socket):
    deadline: Deadline
    _timeout: float | None = None

    def settimeout(self, value: float | None) -> None:
        self._timeout = value
        super().settimeout(value)

    def recv_into(self, *args: Any) -> int:
        super().settimeout(self.deadline.bound(self._timeout))
        return super().recv_into(*args)


def _tls_socket(deadline: Deadline) -> type[ssl.SSLSocket]:
    """Return the class of TLS sockets that obey the deadline: ssl makes these sockets itself, from
    a class.
    """

    class TlsSocket(ssl.SSLSocket):
        _timeout: float | None = None

        def settimeout(self, value: float | None) -> None:
            self._timeout = value
            super().settimeout(value)

        def do_handshake(self, block: bool = False) -> None:  # noqa: FBT001, FBT002  # ssl's own
            deadline.watch(self)
            super().settimeout(deadline.bound(self._timeout))
            super().do_handshake(block)

        def read(self, len: int = 1024, buffer: Any = None) -> Any:  # noqa: A002  # ssl's own
            super().settimeout(deadline.bound(self._timeout))
            return super().read(len, buffer)

    return TlsSocket
