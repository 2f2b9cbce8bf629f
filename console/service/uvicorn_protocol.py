"""The server's side of a connection, with limits for requests, slow readers and the number of
clients.

uvicorn limits the number of requests and idle connections (`limit_concurrency`,
`timeout_keep_alive`), and nothing else. This class adds the rest to uvicorn's own. Without it, one
client on the network could keep connections, files and memory in use as long as it likes. uvicorn
0.54:

- waits for ever for the rest of a request's head or body, and for a client that does not read;
- accepts every connection, a head of any size, and any number of requests behind one that is not
  answered yet;
- does not tell a request that is being answered that its client is gone, if another one waits
  behind it.

An ASGI middleware cannot help: it is called only after the head. Nothing here reads the content of
a request.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

_MAX_FILES: Final = 65_536
_SPARE_FILES: Final = 128
"""How many of the files that the process may open are kept for the database, the sources and the
log.
"""
_FULL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 30\r\nContent-Length: 0\r\n"
    b"Connection: close\r\n\r\n"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """The limits for one client, and for the number of clients."""

    head_seconds: float = 10.0
    """The longest time until the head of a request is complete, from the connection, or from the
    first byte of a later request.
    """
    body_seconds: float = 30.0
    """From the end of the head to the end of the body."""
    reading_seconds: float = 30.0
    """How long a client may leave an answer unread."""
    connections: int = 16_000
    head_bytes: int = 64 * 1024
    """The size of a request's head; somewhat more if it arrives at once."""
    waiting: int = 8
    """How many requests of one connection may wait behind one that is not answered yet."""

    @property
    def polls(self) -> int:
        """How many VMs may wait for commands at once; the other connections are for records and
        people.
        """
        return max(1, min(10_000, self.connections * 5 // 6))


def limits(files: int | None = None) -> ConnectionLimits:
    """Return the limits of this process: no more connections than it may open files."""
    files = _raise_open_files() if files is None else files
    return ConnectionLimits(
        connections=max(1, min(ConnectionLimits().connections, files - _SPARE_FILES))
    )


class LimitedConnection(HttpToolsProtocol):
    """uvicorn's connection, with limits."""

    def __init__(self, *args: Any, limits: ConnectionLimits, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._limits = limits
        self._deadline: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._head: int | None = 0
        """The bytes of the head so far; None if none is expected."""
        self._answering: RequestResponseCycle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a client, or refuse it if there are too many."""
        super().connection_made(transport)
        # asyncio does this too, but not for a listener whose protocol number is 0. With Nagle's
        # algorithm the body of an answer waits 40 ms until the client's TCP has acknowledged the
        # head.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if len(self.connections) > self._limits.connections:
            transport.write(_FULL)
            transport.close()
        else:
            self._wait(self._limits.head_seconds)

    def data_received(self, data: bytes) -> None:
        """Receive bytes of a request, and end the connection if its head is too large."""
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self._head is not None:
            self._head += len(data)
            if self._head > self._limits.head_bytes:
                self.transport.abort()

    def on_message_begin(self) -> None:
        """Begin to receive a request, and set a deadline for its head."""
        super().on_message_begin()
        self._head = 0
        self._wait(self._limits.head_seconds)

    def on_headers_complete(self) -> None:
        """Begin to receive the body, and set a deadline for it; too many waiting requests end the
        connection.
        """
        self._head = None
        self._wait(self._limits.body_seconds)
        if len(self.pipeline) < self._limits.waiting:
            super().on_headers_complete()
        else:
            self.transport.abort()

    def on_message_complete(self) -> None:
        """Note that the request is complete; its answer may take any time."""
        self._wait(None)
        super().on_message_complete()

    def pause_writing(self) -> None:
        """Set a deadline for a client that does not read."""
        super().pause_writing()
        self._stalled = self.loop.call_later(self._limits.reading_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """Cancel the deadline for a client that did not read: it reads again."""
        super().resume_writing()
        self._read_on()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the deadlines, and tell the request that is being answered."""
        self._wait(None)
        self._read_on()
        super().connection_lost(exc)
        if self._answering is not None:  # uvicorn tells only the newest request
            self._answering.disconnected = True
            self._answering.message_event.set()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def _wait(self, seconds: float | None) -> None:
        """Set the deadline, in seconds from now; None: no deadline."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = (
            None if seconds is None else self.loop.call_later(seconds, self.transport.abort)
        )

    def _read_on(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None


def protocol(limits: ConnectionLimits) -> Any:
    """Return the class with which uvicorn makes connections."""
    return partial(LimitedConnection, limits=limits)


def _raise_open_files() -> int:
    """Raise the limit of open files as far as the system allows; return it. Never raises an error:
    a lower limit means fewer connections.
    """
    files = _MAX_FILES
    if sys.platform != "win32":
        import resource  # noqa: PLC0415  # Windows has none

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = _MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_FILES)
        if soft not in (resource.RLIM_INFINITY, wanted):
            with suppress(ValueError, OSError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        files = files if soft == resource.RLIM_INFINITY else soft
    return files
