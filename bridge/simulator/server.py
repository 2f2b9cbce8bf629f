"""The HTTP side of the simulator: threads and sockets, which all end with `close`."""

from __future__ import annotations

import os
import selectors
import socket
import socketserver
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from bridge.simulator.answers import SimulatedAnswer, SimulatedRequest, refusal
from bridge.simulator.exchange import HungUpError

_BODY_LIMIT = 64 * 1024


Respond = Callable[[SimulatedRequest, socket.socket, threading.Event], bool]
"""Answers a request until the event is set; returns whether the connection ends. Raises
`OSError`.
"""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def do_GET(self) -> None:
        self._respond(b"")

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
            self.send_error(HTTPStatus.LENGTH_REQUIRED)
        elif int(length) > _BODY_LIMIT:
            self.send_error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        else:
            self._respond(self.rfile.read(int(length)))

    def _respond(self, body: bytes) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = SimulatedRequest(
            method=self.command, target=self.path, headers=headers, body=body
        )
        try:
            closing = self.server.respond(request, self.connection, self.server.stopping)
        except (HungUpError, OSError):
            closing = True
        self.close_connection = self.close_connection or closing

    def send_error(  # the signature is http.server's
        self,
        code: int,
        message: str | None = None,  # noqa: ARG002
        explain: str | None = None,  # noqa: ARG002
    ) -> None:
        """Answer a request that http.server itself refuses: in IMDS's form, not with a page."""
        # IMDS knows a method or does not allow it: there is no 501.
        status = HTTPStatus.METHOD_NOT_ALLOWED if code == HTTPStatus.NOT_IMPLEMENTED else code
        answer = refusal(status, HTTPStatus(status).phrase)
        body = b"" if self.command == "HEAD" else answer.body
        self.close_connection = True
        closing = SimulatedAnswer(status=status, body=answer.body, headers={"Connection": "close"})
        self.wfile.write(closing.head() + body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base's own name
        """Log nothing: there is a request a second."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # Windows would let two servers share one port.
    allow_reuse_address = os.name != "nt"
    request_queue_size = 64
    timeout = 0  # handle_request is called when there is one

    def __init__(
        self, address: tuple[str, int], respond: Respond, stopping: threading.Event
    ) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.respond = respond
        self.stopping = stopping
        self._lock = threading.Lock()
        self._open: dict[threading.Thread, socket.socket] = {}
        self._waker, self._woken = socket.socketpair()
        super().__init__(address, _Handler, bind_and_activate=False)

    def server_bind(self) -> None:
        # Not HTTPServer's server_bind: that resolves the host's name, which can take seconds.
        socketserver.TCPServer.server_bind(self)
        self.server_name = str(self.server_address[0])
        self.server_port = self.server_address[1]

    def serve(self) -> None:
        """Accept until `end`. Not serve_forever, which wakes up all the time to check for
        the end.
        """
        with selectors.DefaultSelector() as selector:
            selector.register(self.socket, selectors.EVENT_READ)
            selector.register(self._woken, selectors.EVENT_READ)
            while all(key.fileobj is not self._woken for key, _ in selector.select()):
                self.handle_request()

    def end(self) -> None:
        """Let `serve` return."""
        self._waker.send(b".")

    def server_close(self) -> None:
        super().server_close()
        self._waker.close()
        self._woken.close()

    def process_request(self, request: Any, client_address: Any) -> None:
        thread = threading.Thread(
            target=self.process_request_thread,
            args=(request, client_address),
            name="imds-connection",
            daemon=True,
        )
        with self._lock:
            self._open[thread] = request
        thread.start()

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._open.pop(threading.current_thread(), None)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that breaks its connection; print every other error."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)

    def cut(self) -> None:
        """End every open connection, and wait for its thread."""
        with self._lock:
            connections = dict(self._open)
        for connection in connections.values():
            # On Linux the one wakes a thread that reads from it, on Windows the other.
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            with suppress(OSError):
                socket.close(connection.detach())
        for thread in connections:
            thread.join()


class Listener:
    """A listening port, which can also refuse connections for a time."""

    def __init__(self, address: tuple[str, int], respond: Respond) -> None:
        self._respond = respond
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._server = self._bind(address)
        self._thread: threading.Thread | None = None
        self.port = self._server.server_port

    def accept(self) -> None:
        """Listen, or listen again. Does nothing if it listens already or is closed."""
        with self._lock:
            if self._thread is not None or self._stopping.is_set():
                return
            self._server.server_activate()
            self._thread = threading.Thread(
                target=self._server.serve, name="imds-listen", daemon=True
            )
            self._thread.start()

    def refuse(self) -> None:
        """Refuse connections and cut open ones; the port stays reserved."""
        with self._lock:
            if self._thread is None:
                return
            address = self._server.server_address
            self._end()
            # Bound but not listening: the system refuses connections, and keeps the port for us.
            self._server = self._bind((str(address[0]), int(address[1])))

    def close(self) -> None:
        """End every thread and release the port. May be called twice."""
        self._stopping.set()
        with self._lock:
            self._end()

    def _bind(self, address: tuple[str, int]) -> _Server:
        server = _Server(address, self._respond, self._stopping)
        try:
            server.server_bind()
        except OSError:
            server.server_close()
            raise
        return server

    def _end(self) -> None:
        if self._thread is not None:
            self._server.end()
            self._thread.join()
            self._thread = None
        self._server.server_close()
        self._server.cut()
