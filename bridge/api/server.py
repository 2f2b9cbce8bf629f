"""The HTTP server's thread. It never blocks the bridge: it waits for its address."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from typing import Any, Final

from waitress import create_server, wasyncore
from waitress.channel import HTTPChannel
from waitress.task import WSGITask

from bridge.config.address import written
from bridge.store.history import MAX_BYTES

_LOG: Final = logging.getLogger(__name__)

THREADS: Final = 8
"""One half is for clients that follow the records, the other for all others."""
RETRY_SECONDS: Final = 10.0
"""Seconds between two tries to bind an address that is in use."""
CONNECTIONS: Final = 200
"""How many may be open at once. A further client replaces one that has not sent a request yet, or
waits until one is closed.
"""
ASK_SECONDS: Final = 10.0
"""How long a connection may take until its request is complete."""
READ_SECONDS: Final = 30.0
"""How long a client may leave an answer unread."""
_TICK_SECONDS: Final = 1.0
_STOP_SECONDS: Final = 2.0


class Server:
    """Serves a WSGI application on an address until it is closed."""

    def __init__(
        self, application: Callable[..., Any], host: str, port: int, *, retry: float = RETRY_SECONDS
    ) -> None:
        """`retry`: seconds between two tries to have the address."""
        self._application = application
        self._address = (host, port)
        self._retry = retry
        self._stop = threading.Event()
        self._server: Any = None
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)
        self._thread.start()

    def is_alive(self) -> bool:
        """Check whether the server serves, or waits for its address."""
        return self._thread.is_alive()

    def close(self) -> None:
        """Stop serving, and free the address."""
        self._stop.set()
        if self._server is not None:
            self._server.pull_trigger()
        self._thread.join(_STOP_SECONDS)

    def _run(self) -> None:
        listener = self._listener()
        if listener is None:
            return
        with closing(listener):
            self._serve(listener)

    def _listener(self) -> socket.socket | None:
        """Return a socket on the address, as soon as it is free; None if the server was closed
        first.
        """
        reported = None
        while not self._stop.is_set():
            try:
                listener = bound(*self._address)
            except OSError as error:
                if str(error) != reported:
                    reported = str(error)
                    extra = {"action": "http_trouble", "address": written(*self._address)}
                    _LOG.warning("%s; set SEB_HTTP__LISTEN to a free address", error, extra=extra)
                self._stop.wait(self._retry)
            else:
                return listener
        return None

    def _serve(self, listener: socket.socket) -> None:
        address = written(*listener.getsockname()[:2])
        channels: dict[int, Any] = {}
        self._server = create_server(
            self._application,
            map=channels,
            sockets=[listener],
            threads=THREADS,
            connection_limit=CONNECTIONS,
            channel_request_lookahead=1,  # so that a client that disconnects is noticed
            max_request_header_size=16 << 10,
            max_request_body_size=1 << 10,
            outbuf_high_watermark=2 * MAX_BYTES,
            outbuf_overflow=16 * MAX_BYTES,  # in memory: there may be no other place to write to
            clear_untrusted_proxy_headers=True,
            ident=None,
        )
        self._server.channel_class = _Channel
        _LOG.info(
            "health, metrics and page", extra={"action": "http_listening", "address": address}
        )
        try:
            while not self._stop.is_set():
                wasyncore.loop(timeout=_TICK_SECONDS, map=channels, count=1)
                close_slow(list(self._server.active_channels.values()), time.time())
                if len(channels) >= CONNECTIONS:
                    make_room(list(self._server.active_channels.values()))
        finally:
            self._server.task_dispatcher.shutdown(timeout=_TICK_SECONDS)
            wasyncore.close_all(channels, ignore_all=True)


class _Task(WSGITask):  # type: ignore[misc]  # waitress has no types
    """Ends the connection with its answer, so that unread answers do not keep threads."""

    def execute(self) -> None:
        self.set_close_on_finish()
        super().execute()


class _Channel(HTTPChannel):  # type: ignore[misc]  # as above
    task_class = _Task


def close_slow(channels: Iterable[Any], now: float) -> None:
    """Close connections that take too long, by the wall clock. Waitress' own channel_timeout is
    postponed by each byte, and does not close a stream that is not read.
    """
    for each in channels:
        unread = each.total_outbufs_len and now - each.last_activity > READ_SECONDS
        if unread or (not _has_asked(each) and now - each.creation_time > ASK_SECONDS):
            each.handle_close()


def make_room(channels: Iterable[Any]) -> None:
    """Close the oldest of these connections that has not completed a request: a probe does so
    within milliseconds, and must not wait for clients that send nothing.
    """
    oldest = next((each for each in channels if not _has_asked(each)), None)
    if oldest is not None:
        oldest.handle_close()


def _has_asked(channel: Any) -> bool:
    return bool(channel.requests or channel.total_outbufs_len)


def bound(host: str, port: int) -> socket.socket:
    """Return a new socket that is bound to the address. Raises `OSError`, with the address in
    it.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        # On Windows SO_REUSEADDR would let any other process take the address over.
        option = getattr(socket, "SO_EXCLUSIVEADDRUSE", socket.SO_REUSEADDR)
        listener.setsockopt(socket.SOL_SOCKET, option, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        reason = error.strerror or str(error)
        raise OSError(error.errno, f"{written(host, port)}: {reason}") from error
    return listener
