"""The answers of the HTTP server, by path. It is read-only."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from http import HTTPStatus
from importlib.resources import files
from ipaddress import ip_address
from typing import Any, Final, Protocol
from urllib.parse import parse_qs

from bridge.api.event_stream import Streams, TooManyError, resumed
from bridge.api.status import Status
from bridge.store.database import StoreError
from bridge.store.history import MAX_RECORDS, History

Environ = dict[str, Any]
StartResponse = Callable[[str, list[tuple[str, str]]], object]

TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"
EVENT_STREAM: Final = "text/event-stream"
METRICS: Final = "text/plain; version=0.0.4; charset=utf-8"
DEFAULT_LIMIT: Final = 100
_NOTHING_ELSE: Final = "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_SECURITY: Final = (
    ("Cache-Control", "no-store"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
)
_INLINE: Final = re.compile(rb"<(script|style)>(.*?)</\1>", re.DOTALL)


class Meter(Protocol):
    """The source of the metrics as text."""

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""


class BadRequestError(Exception):
    """The request is not valid; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebAnswer:
    """An answer before it is sent."""

    status: HTTPStatus = HTTPStatus.OK
    kind: str = JSON
    body: Iterable[bytes]
    headers: tuple[tuple[str, str], ...] = ()


class Web:
    """The WSGI application."""

    def __init__(
        self, status: Status, metrics: Meter, *, host: str, names: Collection[str] = ()
    ) -> None:
        """`host`: the address that the server listens on; `names`: further names of it."""
        self._status = status
        self._host = host
        self._names = frozenset(name.lower().rstrip(".") for name in names)
        self._streams = Streams()
        self._page = files("bridge.api").joinpath("static", "index.html").read_bytes()
        self._page_policy = page_policy(self._page)
        self._routes: dict[str, Callable[[Environ], WebAnswer]] = {
            "/": lambda _: self._index(),
            "/healthz": lambda _: _plain(
                None if status.is_alive() else "the poll loop hangs: restart the bridge"
            ),
            "/readyz": lambda _: _plain(status.not_ready()),
            "/metrics": lambda _: WebAnswer(kind=METRICS, body=(metrics.text(),)),
            "/api/v1/status": lambda _: WebAnswer(body=(json.dumps(status.snapshot()).encode(),)),
            "/api/v1/events": self._events,
        }

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Answer a request, as WSGI requires."""
        answer = self._answer(environ)
        headers = dict(_SECURITY)
        headers["Content-Security-Policy"] = f"default-src 'none'; {_NOTHING_ELSE}"
        headers |= {"Content-Type": answer.kind, **dict(answer.headers)}
        if isinstance(answer.body, tuple):
            headers["Content-Length"] = str(sum(map(len, answer.body)))
        start_response(f"{answer.status.value} {answer.status.phrase}", list(headers.items()))
        return () if environ["REQUEST_METHOD"] == "HEAD" else answer.body

    def _answer(self, environ: Environ) -> WebAnswer:
        if not is_ours(environ.get("HTTP_HOST", ""), self._host, self._names):
            # Another site can point its own name to this address (DNS rebinding), and read.
            return _error(
                HTTPStatus.MISDIRECTED_REQUEST,
                "use this server's address or localhost, or add the name to SEB_HTTP__HOSTS",
            )
        route = self._routes.get(environ["PATH_INFO"])
        if route is None:
            return _error(HTTPStatus.NOT_FOUND, f"there is: {', '.join(self._routes)}")
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            message = "read-only server: use GET or HEAD"
            allow = ("Allow", "GET, HEAD")
            return _error(HTTPStatus.METHOD_NOT_ALLOWED, message, allow)
        try:
            return route(environ)
        except BadRequestError as error:
            return _error(HTTPStatus.BAD_REQUEST, str(error))
        except (StoreError, TooManyError) as error:
            return _error(HTTPStatus.SERVICE_UNAVAILABLE, str(error), ("Retry-After", "5"))

    def _index(self) -> WebAnswer:
        policy = ("Content-Security-Policy", self._page_policy)
        return WebAnswer(kind="text/html; charset=utf-8", body=(self._page,), headers=(policy,))

    def _events(self, environ: Environ) -> WebAnswer:
        query = parse_qs(environ.get("QUERY_STRING", ""), keep_blank_values=True)
        limit = _number(query, "limit", least=1) or DEFAULT_LIMIT
        after = _number(query, "after", least=0)
        history = self._status.history
        wants_stream = EVENT_STREAM in environ.get("HTTP_ACCEPT", "")
        if wants_stream and environ["REQUEST_METHOD"] == "GET":
            if history is None:
                raise TooManyError("starting: waiting for the VM identity from IMDS; try again")
            last = resumed(history, environ.get("HTTP_LAST_EVENT_ID"), after)
            gone = environ.get("waitress.client_disconnected", lambda: False)
            return WebAnswer(kind=EVENT_STREAM, body=self._streams.open(history, last, gone))
        return WebAnswer(body=(_records(history, limit, after),))


def is_ours(host: str, listen: str, names: Collection[str] = ()) -> bool:
    """Check whether a Host header names this server: its address, localhost, or one of
    the names.
    """
    name = host.rsplit(":", 1)[0] if re.search(r":\d*$", host) else host
    name = name.lower().rstrip(".").removeprefix("[").removesuffix("]")
    if name == "localhost" or name in names:
        return True
    try:
        given = ip_address(name)
        own = ip_address(listen)
    except ValueError:
        return False
    return own.is_unspecified or given == own or (given.is_loopback and own.is_loopback)


def page_policy(page: bytes) -> str:
    """Return the page's content security policy: its own script and style by hash, and
    this server.
    """
    hashes: dict[str, list[str]] = {"script": [], "style": []}
    for kind, text in _INLINE.findall(page):
        digest = base64.b64encode(hashlib.sha256(text).digest()).decode()
        hashes[kind.decode()].append(f"'sha256-{digest}'")
    script = " ".join(hashes["script"])
    style = " ".join(hashes["style"])
    return (
        f"default-src 'none'; script-src {script}; style-src {style}; connect-src 'self'; "
        f"img-src data:; {_NOTHING_ELSE}"
    )


def _records(history: History | None, limit: int, after: int | None) -> bytes:
    if history is None:
        return b'{"stream": null, "oldestSequence": 0, "lastSequence": 0, "records": []}'
    found = history.last(limit) if after is None else history.after(after, limit)
    head = {
        "stream": history.stream,
        "oldestSequence": history.oldest_sequence(),
        "lastSequence": history.last_sequence,
    }
    bodies = b", ".join(record.body for record in found)
    return json.dumps(head).encode()[:-1] + b', "records": [' + bodies + b"]}"


def _number(query: dict[str, list[str]], name: str, *, least: int) -> int | None:
    if name not in query:
        return None
    text = query[name][-1]
    if text.isascii() and text.isdecimal() and len(text) <= 20 and int(text) >= least:  # noqa: PLR2004
        return min(int(text), MAX_RECORDS) if name == "limit" else min(int(text), (1 << 63) - 1)
    raise BadRequestError(f"{name} is a whole number from {least} on")


def _plain(trouble: str | None) -> WebAnswer:
    status = HTTPStatus.OK if trouble is None else HTTPStatus.SERVICE_UNAVAILABLE
    return WebAnswer(status=status, kind=TEXT, body=(f"{trouble or 'ok'}\n".encode(),))


def _error(status: HTTPStatus, message: str, *headers: tuple[str, str]) -> WebAnswer:
    return WebAnswer(
        status=status, body=(json.dumps({"error": message}).encode(),), headers=headers
    )
