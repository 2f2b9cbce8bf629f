"""A webhook's far end that can withhold its answer: its sender cannot know whether it arrived."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

from support.patience import PATIENCE


class GatedReceiver:
    """Takes every POST and answers 204; while held, it takes them and does not answer."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._bodies: list[bytes] = []
        self._held = False
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.receiver = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(PATIENCE)

    @property
    def url(self) -> str:
        """Where it takes records."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/records"

    @property
    def bodies(self) -> list[bytes]:
        """What arrived whole, in order, answered or not."""
        with self._changed:
            return list(self._bodies)

    def hold(self) -> None:
        """Answer nobody from now on."""
        with self._changed:
            self._held = True

    def release(self) -> None:
        """Answer those that wait, and everybody from now on."""
        with self._changed:
            self._held = False
            self._changed.notify_all()

    def wait_for_more(self, count: int, *, timeout: float = PATIENCE) -> None:
        """Wait until more than `count` bodies have arrived. Raises `AssertionError`."""
        with self._changed:
            came = self._changed.wait_for(lambda: len(self._bodies) > count, timeout)
        assert came, f"nothing arrived after the first {count}"

    def take(self, body: bytes) -> None:
        """A body has arrived; returns when it may be answered."""
        with self._changed:
            self._bodies.append(body)
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._held, PATIENCE)


class _Server(ThreadingHTTPServer):
    receiver: GatedReceiver
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Whoever was to be answered is dead; that is what this is for."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        body = self.rfile.read(length)
        if len(body) == length:  # its sender may have died in the middle of it
            self.server.receiver.take(body)
            self.send_response(204)
            self.end_headers()
        else:
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base's name
        """Say nothing."""
