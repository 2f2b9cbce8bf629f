"""The client of IMDS: each request has one answer or one named error. It interprets no answer."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from bridge.clock import Clock, SystemClock
from bridge.config.settings import DEFAULT_IMDS_URL, Settings
from bridge.imds.api_versions import INSTANCE_VERSIONS_TRIED, ApiVersions
from bridge.imds.discovery import endpoints
from bridge.imds.events_timeout import EventsTimeout
from bridge.imds.exchange import Exchange, ImdsError, Reply
from bridge.known_api_versions import EVENTS_API_VERSIONS
from wire.strictjson import JsonError, load_json

__all__ = ["Imds", "ImdsAnswer", "ImdsError", "client"]

EVENTS_PATH: Final = "/metadata/scheduledevents"
INSTANCE_PATH: Final = "/metadata/instance/compute"
VERSIONS_PATH: Final = "/metadata/versions"
MAX_RETRY_AFTER: Final = 10.0
"""The longest Retry-After that is obeyed, in seconds: Preempt gives 30 seconds of notice in all."""
_BAD_REQUEST: Final = 400
_OK: Final = 200
_NAMED: Final = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImdsAnswer:
    """An answer of IMDS, and how long it took."""

    body: bytes
    latency_ms: float


class Imds:
    """A client with one persistent connection, for one thread."""

    def __init__(
        self,
        url: str,
        *,
        api_version: str,
        timeout: float,
        first_timeout: float,
        discover: Callable[[], Sequence[str]] = tuple,
        clock: Clock | None = None,
        answered_at: datetime | None = None,
    ) -> None:
        """`timeout`: seconds for a request; `first_timeout`: for one that may turn the service on;
        `answered_at`: when an earlier run had its last document; `discover` names other base URLs.
        """
        self.url = url
        self._given = url
        self._timeout = timeout
        self._events_timeout = EventsTimeout(
            clock or SystemClock(), usual=timeout, first=first_timeout, answered_at=answered_at
        )
        self._discover = discover
        self._answered = False
        """Whether this client has had a document."""
        self._events = ApiVersions(api_version, reversed(EVENTS_API_VERSIONS))
        self._instance = ApiVersions(INSTANCE_VERSIONS_TRIED[0], INSTANCE_VERSIONS_TRIED)
        self._exchange = Exchange(url)

    @property
    def api_version(self) -> str:
        """The api-version of requests for events: the given one, or the one that works."""
        return self._events.current

    def events(self) -> ImdsAnswer:
        """Return the document as bytes, in the first api-version that IMDS accepts. Raises
        `ImdsError`.
        """
        answer = self._ask(EVENTS_PATH, self._events, self._events_timeout.seconds)
        # Azure: only a document says that the service is on. An empty 200 is common before: an
        # answer without a list of events is not a document.
        if b"Events" in answer.body:
            self._answered = True
            self._events_timeout.note_document()
        return answer

    def instance(self) -> dict[str, Any]:
        """Return the instance document of this VM. Raises `ImdsError`."""
        answer = self._ask(INSTANCE_PATH, self._instance, self._timeout)
        try:
            loaded = load_json(answer.body)
        except JsonError as error:
            raise ImdsError(f"the instance document: {error}", reason="malformed") from None
        if not isinstance(loaded, dict):
            raise ImdsError("the instance document is not a JSON object", reason="malformed")
        return loaded

    def versions(self) -> list[str]:
        """Return the api-versions that IMDS offers for any path, the oldest first. Raises
        `ImdsError`.
        """
        reply = self._exchange.get(self.url, VERSIONS_PATH, timeout=self._timeout)
        if reply.status != _OK:
            raise _refusal(reply, self.url)
        return sorted(_versions(reply.body, "apiVersions"))

    def start(self, event_id: str, *, may_send: Callable[[], bool]) -> None:
        """Approve an event, on a connection of its own, so any thread may call it. `may_send` is
        asked last, once there is a connection. Raises `ImdsError`, or `WithheldError` if it says
        no.
        """
        body = json.dumps({"StartRequests": [{"EventId": event_id}]})
        exchange = Exchange(self.url)
        try:
            target = f"{EVENTS_PATH}?api-version={self.api_version}"
            reply = exchange.post(
                self.url, target, body=body, timeout=self._timeout, may_send=may_send
            )
        finally:
            exchange.close()
        if reply.status != _OK:
            raise _refusal(reply, self.url)

    def close(self) -> None:
        """Close the connection."""
        self._exchange.close()

    def _ask(self, path: str, versions: ApiVersions, timeout: float) -> ImdsAnswer:
        waiting = deque(versions.candidates())
        refused = list[str]()
        while waiting:
            version = waiting.popleft()
            reply = self._get(path, version, timeout)
            if reply.status != _BAD_REQUEST:
                self._require_ok(reply)
                versions.note_accepted(version)
                return ImdsAnswer(body=reply.body, latency_ms=reply.latency_ms)
            refused.append(version)
            if not waiting:
                named = _versions(reply.body, "newest-versions")
                named = [each for each in named if each not in refused]
                waiting.extend(named[: versions.room(refused)])
        versions.note_refused()
        raise ImdsError(
            f"IMDS refuses every api-version that was tried ({', '.join(refused)}); check "
            "SEB_IMDS__API_VERSION and that nothing between strips the Metadata header",
            reason="http_400",
            # Azure: more than five requests a second are refused to every poller of the VM.
            retry_after=MAX_RETRY_AFTER if len(refused) > 1 else None,
        )

    def _get(self, path: str, api_version: str, timeout: float) -> Reply:
        target = f"{path}?api-version={api_version}"
        try:
            return self._exchange.get(self.url, target, timeout=timeout)
        except ImdsError as error:
            self._try_next_url(unreachable=error.unreachable)
            raise

    def _require_ok(self, reply: Reply) -> None:
        if reply.status == _OK:
            return
        url = self.url
        self._try_next_url(unreachable=False)
        raise _refusal(reply, url)

    def _try_next_url(self, *, unreachable: bool) -> None:
        """Change to the next URL until the first document: the given one and those from DHCP take
        turns.
        """
        if self._answered or not (unreachable or self.url != self._given):
            return
        ring = list(dict.fromkeys([self._given, *self._discover()]))
        index = ring.index(self.url) if self.url in ring else -1
        self.url = ring[(index + 1) % len(ring)]


def client(
    settings: Settings,
    timeout: float | None = None,
    *,
    clock: Clock | None = None,
    answered_at: datetime | None = None,
) -> Imds:
    """Return the client of these settings; `answered_at` is when an earlier run had its last
    document. Only the default URL looks for other endpoints.
    """
    imds = settings.imds
    return Imds(
        imds.url,
        api_version=imds.api_version,
        timeout=timeout or imds.timeout,
        first_timeout=timeout or imds.first_timeout,
        discover=endpoints if imds.url == DEFAULT_IMDS_URL else tuple,
        clock=clock,
        answered_at=answered_at,
    )


def _refusal(reply: Reply, url: str) -> ImdsError:
    return ImdsError(
        f"IMDS at {url} answered HTTP {reply.status}",
        reason=f"http_{reply.status}",
        retry_after=_seconds(reply.headers.get("Retry-After")),
    )


def _versions(body: bytes, name: str) -> list[str]:
    """Return the api-versions in that list of a body, without entries that cannot be versions."""
    try:
        named = load_json(body)[name]
        return [each for each in named if isinstance(each, str) and _NAMED.fullmatch(each)]
    except (JsonError, KeyError, TypeError):
        return []


def _seconds(retry_after: str | None) -> float | None:
    with suppress(TypeError, ValueError):
        seconds = float(retry_after or "")
        if seconds >= 0:
            return min(seconds, MAX_RETRY_AFTER)
    return None
