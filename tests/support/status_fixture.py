"""A bridge as the status page sees it, for states that are hard to bring about: a real HTTP server
that serves the real page under the real policy, with the answers that a test gives it.

    with StatusServer() as server:
        server.status = status(events=[event(affectsThisVm=True)])
        page.goto(server.url)
        server.push(record("started"))

It listens on loopback only; its clock stands still until a test moves it.
"""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from bridge.web import page_policy
from sinks.record import rfc3339

STREAM = "0d4e8a52-6f0b-4b57-9d1c-2a8f6f0f4d11"


NOW = datetime(2026, 3, 2, 2, 14, 28, tzinfo=UTC)
"""The time on the bridge's clock."""
VM = {
    "vmId": "6b0f6c1e-51a7-4d7e-9a54-8c2f1d3e4b5a",
    "name": "web_3",
    "resourceId": None,
    "subscriptionId": "0d9c8b7a-1111-4222-8333-444455556666",
    "resourceGroup": "shop",
    "location": "northeurope",
    "zone": "2",
    "scaleSet": "web",
    "faultDomain": "1",
    "updateDomain": "4",
    "osType": "Linux",
    "vmSize": "Standard_D4s_v5",
    "tags": {"owner": "shop-team"},
}
EVENT_ID = "5D2C9A60-4F1B-4E0B-9A44-0C9E6B7A1F01"
_UNMEASURED = {"pauseSeconds": None, "restarted": None, "downtimeSeconds": None}


def moment(seconds: float) -> str:
    """So many seconds from the bridge's now, as RFC 3339; negative ones are past."""
    return rfc3339(NOW + timedelta(seconds=seconds))


def status(**changed: Any) -> dict[str, Any]:
    """What a bridge says that looks, delivers, and sees nothing coming; some of it changed."""
    return {
        "now": moment(0),
        "version": "0.1.0",
        "instanceId": "c7c3a0f2-6a0e-4c6a-9b1e-3d2f8a5b7c61",
        "startedAt": moment(-93_784),
        "site": "dublin-1",
        "healthy": True,
        "ready": True,
        "notReady": None,
        "looking": True,
        "vm": VM,
        "node": None,
        "imds": imds(),
        "store": {
            "writable": True,
            "trouble": None,
            "stream": STREAM,
            "lastSequence": 1_912,
            "sizeBytes": 1_572_864,
        },
        "events": [],
        "sinks": [sink(), sink(name="ops", kind="webhook", delivered=22, lagSeconds=0.21)],
        **changed,
    }


def imds(**changed: Any) -> dict[str, Any]:
    """An IMDS that answers."""
    return {
        "lastAttemptAt": moment(-0.4),
        "lastSuccessAt": moment(-0.4),
        "trouble": None,
        "incarnation": 279,
        "apiVersion": "2020-07-01",
        "pollIntervalSeconds": 1.0,
        **changed,
    }


def blind(**changed: Any) -> dict[str, Any]:
    """What a bridge says to which IMDS has given no answer for a while."""
    message = "IMDS did not answer within 5 s at 127.0.0.1:8169"
    silent = imds(lastSuccessAt=moment(-42), trouble={"reason": "timeout", "message": message})
    return status(looking=False, ready=False, notReady=message, imds=silent, **changed)


def event(**changed: Any) -> dict[str, Any]:
    """A Freeze that is to pause this VM in a quarter of an hour."""
    return {
        "eventId": EVENT_ID,
        "eventType": "Freeze",
        "resourceType": "VirtualMachine",
        "resources": ["web_3"],
        "eventStatus": "Scheduled",
        "notBefore": moment(872),
        "description": "Host server is undergoing maintenance.",
        "eventSource": "Platform",
        "durationInSeconds": 9,
        "affectsThisVm": True,
        "impact": "pause",
        "revision": 1,
        "fingerprint": "sha256:" + "7d" * 32,
        "firstSeenAt": moment(-28),
        "noticeSeconds": 900.0,
        "measured": _UNMEASURED,
        **changed,
    }


def sink(**changed: Any) -> dict[str, Any]:
    """A broker that has taken everything."""
    return {
        "name": "mqtt",
        "kind": "mqtt",
        "state": "ok",
        "reason": None,
        "backlog": 0,
        "oldestPendingAt": None,
        "dead": 0,
        "delivered": 1_890,
        "lastDeliveredAt": moment(-28),
        "lagSeconds": 0.004,
        "nextTrySeconds": None,
        **changed,
    }


def record(kind: str, sequence: int, *, ago: float = 28, **data: Any) -> dict[str, Any]:
    """A record so many seconds old; `kind` is its type without the frame, as `event.started`.

    One of an event is about `event()`; `data` is laid over what such a record says.
    """
    body: dict[str, Any] = {"vm": VM, "node": None}
    if kind.startswith("event."):
        body |= {
            "transition": kind.removeprefix("event."),
            "event": event(),
            "affectsThisVm": True,
            "impact": "pause",
            "revision": 1,
            "observation": {"noticeSeconds": 900.0, **_UNMEASURED},
        }
    return {
        "specversion": "1.0",
        "id": f"{sequence:08d}-0000-5000-8000-000000000000",
        "type": f"seb.{kind}.v1",
        "time": moment(-ago),
        "sequence": f"{sequence:020d}",
        "stream": STREAM,
        "data": body | data,
    }


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
        self.streams = 0
        """How many live streams were ever opened."""
        self.asked: list[str] = []
        self._ended = threading.Event()
        self._listeners: set[queue.SimpleQueue[dict[str, Any] | None]] = set()
        self._lock = threading.Lock()
        self._page = resources.files("bridge").joinpath("static", "index.html").read_bytes()
        outer = self

        class Handler(_Handler):
            server_of = outer

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
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

    @property
    def page(self) -> bytes:
        """What is served at the root."""
        return self._page

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
            self.streams += 1
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
