"""A real server of the real page under the real policy, with the answers that a test gives it."""

import json
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from bridge.api.web import page_policy


class StatusServer:
    """Serves the page, `status` and `records`; `down`, `stuck` and `streaming` spoil it."""

    def __init__(self) -> None:
        self.status: dict[str, Any] = {}
        self.records: list[dict[str, Any]] = []
        self.down = False
        """Answer 503 to everything but the page."""
        self.stuck = False
        """Take requests for the status, and never answer them."""
        self.streaming = True
        """Offer live records; without, the stream answers 503."""
        self.asked: list[str] = []
        self._ended = threading.Event()
        self._listeners: set[queue.SimpleQueue[dict[str, Any] | None]] = set()
        self._lock = threading.Lock()
        self.page = resources.files("bridge.api").joinpath("static", "index.html").read_bytes()
        handler = type("Handler", (_Handler,), {"server_of": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.hang_up()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        """The page's address."""
        return f"http://127.0.0.1:{self._server.server_port}/"

    def push(self, record: dict[str, Any]) -> None:
        """Commit a record: whoever listens gets it at once."""
        with self._lock:
            self.records = [*self.records, record]
            for listener in self._listeners:
                listener.put(record)

    def hang_up(self) -> None:
        """End every live stream."""
        with self._lock:
            for listener in self._listeners:
                listener.put(None)

    def wait_for_the_end(self) -> None:
        """Until this server is closed."""
        self._ended.wait()

    @contextmanager
    def listening(self, after: int) -> Iterator[queue.SimpleQueue[dict[str, Any] | None]]:
        """The records past a sequence and all that come, None at the end."""
        mine: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        with self._lock:
            for record in self.after(after):
                mine.put(record)
            self._listeners.add(mine)
        try:
            yield mine
        finally:
            with self._lock:
                self._listeners.discard(mine)

    def after(self, sequence: int) -> list[dict[str, Any]]:
        """The records past a sequence, oldest first."""
        return [each for each in self.records if int(each["sequence"]) > sequence]


class _Handler(BaseHTTPRequestHandler):
    server_of: StatusServer

    def handle(self) -> None:
        """Serve until either side has had enough."""
        with suppress(ConnectionError):  # a page that is closed, or tired of waiting
            super().handle()

    def do_GET(self) -> None:
        url, outer = urlsplit(self.path), self.server_of
        outer.asked.append(self.path)
        query = {name: values[-1] for name, values in parse_qs(url.query).items()}
        live = "text/event-stream" in self.headers.get("Accept", "")
        if url.path == "/":
            self._answer(outer.page, "text/html; charset=utf-8")
        elif outer.down or (live and not outer.streaming):
            self.send_error(503)
        elif url.path == "/api/v1/status" and outer.stuck:
            outer.wait_for_the_end()
        elif url.path == "/api/v1/status":
            self._answer_json(outer.status)
        elif url.path == "/api/v1/events" and live:
            self._stream(int(self.headers.get("Last-Event-ID", "/0").rpartition("/")[2]), query)
        elif url.path == "/api/v1/events":
            found = outer.after(int(query.get("after", 0)))
            last = int(outer.records[-1]["sequence"]) if outer.records else 0
            stream = outer.status["store"]["stream"]
            self._answer_json({"stream": stream, "lastSequence": last, "records": found})
        else:
            self.send_error(404)

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _answer_json(self, value: object) -> None:
        self._answer(json.dumps(value).encode(), "application/json")

    def _answer(self, body: bytes, content_type: str) -> None:
        self.send_response(200)
        self._send_headers(content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, last: int, query: dict[str, str]) -> None:
        self.send_response(200)
        self._send_headers("text/event-stream")
        self.end_headers()
        self.wfile.write(b": hello\n\n")
        with self.server_of.listening(last or int(query.get("after", 0))) as records:
            for record in iter(records.get, None):
                mark = f"id: {record['stream']}/{record['sequence']}\nevent: record\n"
                self.wfile.write(f"{mark}data: {json.dumps(record)}\n\n".encode())

    def _send_headers(self, content_type: str) -> None:
        self.send_header("Content-Type", content_type)
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Security-Policy", page_policy(self.server_of.page))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
