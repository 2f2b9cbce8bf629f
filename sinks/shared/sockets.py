"""Making and cutting connections. It sends nothing to the other side."""

from __future__ import annotations

import os
import selectors
import socket
import sys
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

NEXT_ADDRESS_SECONDS: Final = 0.25
"""The seconds after which the next address is tried too. RFC 8305, section 5, recommends
a quarter.
"""
_Option = tuple[int, int, Any]


def connect(
    host: str, port: int, *, timeout: float, options: Iterable[_Option] = ()
) -> socket.socket:
    """Return a connection to the first address of a host that answers, within `timeout` seconds
    after its name is resolved: to resolve it takes 5 s and more while the first of several name
    servers is dead. Raises as `connect_to_any`.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    connection = connect_to_any(found, timeout=timeout, options=options)
    connection.settimeout(timeout)
    return connection


def connect_to_any(
    found: Iterable[tuple[Any, ...]], *, timeout: float, options: Iterable[_Option] = ()
) -> socket.socket:
    """Return a connection to one of the addresses that `getaddrinfo` found: the first that answers.

    The next address is tried while earlier ones are still pending, so that a dead address costs a
    quarter of a second. Raises `OSError`; `TimeoutError` if no address answered in time.
    """
    until = time.monotonic() + timeout
    addresses = deque(found)
    attempts = _Attempts(options)
    try:
        while addresses or attempts.pending:
            next_at = until
            if addresses:
                attempts.begin(addresses.popleft())
                next_at = time.monotonic() + NEXT_ADDRESS_SECONDS if addresses else until
            connection = attempts.first(until=min(next_at, until))
            if connection is not None:
                return connection
            if time.monotonic() >= until:
                raise TimeoutError("no address of the host answered in time")
        raise attempts.error or OSError("the host has no address")
    finally:
        attempts.close()


class _Attempts:
    """Connections that are being made; `close` closes those that were not chosen."""

    def __init__(self, options: Iterable[_Option]) -> None:
        self.error: OSError | None = None
        """Why the latest failed attempt failed."""
        self.pending: set[socket.socket] = set()
        self._options = tuple(options)
        self._selector = selectors.DefaultSelector()

    def begin(self, address: tuple[Any, ...]) -> None:
        """Start to connect to an address, as `getaddrinfo` gives it."""
        family, kind, protocol, _, where = address
        try:
            connection = socket.socket(family, kind, protocol)
        except OSError as error:  # the machine does not speak this family
            self.error = error
            return
        self.pending.add(connection)
        self._selector.register(connection, selectors.EVENT_WRITE)
        try:
            for option in self._options:
                connection.setsockopt(*option)
            connection.settimeout(0)
            connection.connect(where)
        except BlockingIOError:
            pass  # it is under way
        except OSError as error:
            self._note_failed(connection, error)

    def first(self, *, until: float) -> socket.socket | None:
        """Return the first that is connected; None at the monotonic time `until`, or once all have
        failed.
        """
        while self.pending:
            ready = self._selector.select(max(0.0, until - time.monotonic()))
            for key, _ in ready:
                connection: Any = key.fileobj
                code = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if not code:
                    self._selector.unregister(connection)
                    self.pending.remove(connection)
                    found: socket.socket = connection
                    return found
                self._note_failed(connection, OSError(code, os.strerror(code)))
            if not ready and time.monotonic() >= until:
                return None
        return None

    def close(self) -> None:
        """Give up all that are still pending."""
        for connection in self.pending:
            connection.close()
        self._selector.close()

    def _note_failed(self, connection: socket.socket, error: OSError) -> None:
        self.error = error
        self._selector.unregister(connection)
        self.pending.remove(connection)
        connection.close()


def cut(connection: socket.socket) -> None:
    """End all reading and writing at once, from any thread. It never raises and never waits."""
    # The base class's method: SSLSocket's own would take the TLS state from under its reader.
    with suppress(OSError, ValueError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)
    if sys.platform == "win32":
        # There, a shutdown does not wake a reader that is blocked already (seen with Wine 8);
        # closing does. Elsewhere only the reader may close, or it could read from whatever gets
        # the same descriptor next.
        with suppress(OSError, ValueError):
            socket.close(connection.detach())
