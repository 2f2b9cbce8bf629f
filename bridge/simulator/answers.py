"""The answers of a healthy IMDS, including its refusals: a request in, an answer out."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import formatdate
from http import HTTPStatus
from typing import Any, Final, Literal
from urllib.parse import parse_qs, urlsplit

from bridge.clock import Clock
from bridge.known_api_versions import INSTANCE_API_VERSIONS
from bridge.simulator.approvals import Post, Posts
from bridge.simulator.timeline import Timeline
from bridge.version import __version__

EVENTS_PATH: Final = "/metadata/scheduledevents"
INSTANCE_PATH: Final = "/metadata/instance"
COMPUTE_PATH: Final = "/metadata/instance/compute"
VERSIONS_PATH: Final = "/metadata/versions"

Target = Literal["events", "instance", "start", "versions"]
"""The endpoints: GET of the events, of the instance and of the api-versions, and POST of
StartRequests.
"""

_PATHS: Final = (EVENTS_PATH, INSTANCE_PATH, COMPUTE_PATH, VERSIONS_PATH)

# What IMDS writes, word for word where it is documented or was recorded: clients match on it.
_NO_HEADER: Final = "Bad request. Required metadata header not specified"
_FORWARDED: Final = "Bad request. X-Forwarded-For header is not allowed"
_BAD_VERSION: Final = (
    "Bad request. api-version is invalid or was not specified in the request."
    " For more information refer to aka.ms/azureimds"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedRequest:
    """A request as received; header names in lower case."""

    method: str
    target: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def path(self) -> str:
        """The path, in lower case and without a slash at its end."""
        return urlsplit(self.target).path.rstrip("/").lower()

    @property
    def api_version(self) -> str:
        """The api-version asked for, or the empty string."""
        return parse_qs(urlsplit(self.target).query).get("api-version", [""])[0]

    @property
    def endpoint(self) -> Target | None:
        """The endpoint of the request; None if IMDS has no such path."""
        if self.path == EVENTS_PATH:
            return {"GET": "events", "POST": "start"}.get(self.method)  # type: ignore[return-value]
        if self.path in (INSTANCE_PATH, COMPUTE_PATH) and self.method == "GET":
            return "instance"
        if self.path == VERSIONS_PATH and self.method == "GET":
            return "versions"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedAnswer:
    """An answer; `document` is the index of its document in the history."""

    status: int
    body: bytes = b""
    content_type: str = "application/json; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict)
    document: int | None = None

    def head(self) -> bytes:
        """Return the head of the answer; Content-Length is the body's unless `headers`
        has another.
        """
        headers = {
            "Content-Type": self.content_type,
            "Server": f"seb-simulator/{__version__}",
            "Date": formatdate(usegmt=True),
            **self.headers,
        }
        if not headers.keys() & {"Content-Length", "Transfer-Encoding"}:
            headers["Content-Length"] = str(len(self.body))
        lines = [f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return "\r\n".join([*lines, "", ""]).encode("ascii")


def refusal(status: int, error: str, **extra: Any) -> SimulatedAnswer:
    """Return an error in IMDS's form: a JSON object with `error`, and without `Events`."""
    return SimulatedAnswer(status=status, body=json.dumps({"error": error, **extra}).encode())


class SimulatedImds:
    """The healthy service. Safe to use from any thread."""

    def __init__(
        self,
        timeline: Timeline,
        approvals: Posts,
        api_versions: Sequence[str],
        *,
        rate_limit: int | None,
        clock: Clock,
    ) -> None:
        self._vm = timeline.vm
        self._timeline = timeline
        self._approvals = approvals
        self._versions = {"instance": INSTANCE_API_VERSIONS, "events": tuple(api_versions)}
        self._limiter = _Limiter(rate_limit, clock.monotonic)

    def answer(self, request: SimulatedRequest, post: Post | None = None) -> SimulatedAnswer:
        """Return the answer of IMDS. `post` is the request's entry among the approvals."""
        refused = self._refuse(request)
        if refused is not None:
            return refused
        if post is not None:
            status, reply = self._approvals.judge(post, version=request.api_version)
            return SimulatedAnswer(status=status, body=reply)
        if request.path == EVENTS_PATH:
            index, body = self._timeline.body(request.api_version)
            return SimulatedAnswer(status=200, body=body, document=index)
        if request.endpoint == "versions":
            offered = sorted({*self._versions["instance"], *self._versions["events"]})
            return SimulatedAnswer(status=200, body=json.dumps({"apiVersions": offered}).encode())
        instance = self._vm.compute() if request.path == COMPUTE_PATH else self._vm.instance()
        return SimulatedAnswer(status=200, body=json.dumps(instance).encode())

    def _refuse(self, request: SimulatedRequest) -> SimulatedAnswer | None:
        if not self._limiter.allows():
            return refusal(429, "Too many requests")
        if "x-forwarded-for" in request.headers:
            return refusal(400, _FORWARDED)
        if request.headers.get("metadata", "").strip().lower() != "true":
            return refusal(400, _NO_HEADER)
        if request.endpoint is None:
            known = request.path in _PATHS
            return refusal(405, "Method not allowed") if known else refusal(404, "Not found")
        versions = self._versions["instance" if request.endpoint == "instance" else "events"]
        if request.endpoint == "versions" or request.api_version in versions:
            return None  # the list of api-versions needs none
        newest = sorted(versions, reverse=True)[:3]
        return refusal(400, _BAD_VERSION, **{"newest-versions": newest})


class _Limiter:
    """At most so many requests in any one second; no limit for None."""

    def __init__(self, limit: int | None, monotonic: Callable[[], float]) -> None:
        self._limit = limit
        self._monotonic = monotonic
        self._recent: deque[float] = deque()
        self._lock = threading.Lock()

    def allows(self) -> bool:
        if self._limit is None:
            return True
        with self._lock:
            now = self._monotonic()
            while self._recent and now - self._recent[0] >= 1:
                self._recent.popleft()
            if len(self._recent) >= self._limit:
                return False
            self._recent.append(now)
            return True
