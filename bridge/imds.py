"""The client of Azure's metadata service: one request, one answer or one named error.

It never follows a proxy or a redirect, never waits beyond its deadline, and never concludes
anything from an answer: an error body looks like a document without events.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPConnectionPool
from urllib3.exceptions import HTTPError

EVENTS_PATH: Final = "/metadata/scheduledevents"
INSTANCE_PATH: Final = "/metadata/instance/compute"
INSTANCE_API_VERSION: Final = "2021-02-01"
MAX_BODY_BYTES: Final = 8 << 20
MAX_RETRY_AFTER: Final = 60.0
# Azure's documentation of Scheduled Events, newest first.
API_VERSIONS: Final = (
    "2020-07-01",
    "2019-08-01",
    "2019-04-01",
    "2019-01-01",
    "2017-11-01",
    "2017-08-01",
    "2017-03-01",
)
MAX_NAMED_VERSIONS: Final = 3
_CHUNK: Final = 65536
_CONNECT_SECONDS: Final = 5.0
_BAD_REQUEST: Final = 400
_OK: Final = 200


class ImdsError(Exception):
    """IMDS gave no document; nothing can be concluded, and the next poll asks again.

    `reason`: one word for logs and metrics. `retry_after`: seconds that IMDS asked for, or None.
    """

    def __init__(self, message: str, *, reason: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What IMDS answered, and how long that took."""

    body: bytes
    latency_ms: float


class Imds:
    """A client with one kept connection; for one thread at a time."""

    def __init__(
        self,
        url: str,
        *,
        api_version: str,
        timeout: float,
        first_timeout: float,
        discover: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self.url = url
        self.api_version = api_version
        self._timeout = timeout
        self._first_timeout = first_timeout
        self._answered = False
        self._discover = discover
        self._session = _session()

    def events(self) -> Answer:
        """The Scheduled Events document as bytes. Raises `ImdsError`.

        Where IMDS refuses the api-version, the older ones and then those that its refusal names
        are tried, and the first that works is kept.
        """
        refused: list[str] = []
        versions = [self.api_version, *_older(self.api_version)]
        for version in versions:
            status, body, latency, headers = self._get(
                EVENTS_PATH, version, self._timeout if self._answered else self._first_timeout
            )
            if status == _BAD_REQUEST:
                refused.append(version)
                if version == versions[-1]:
                    versions += [each for each in _named(body) if each not in versions]
                continue
            _require_ok(status, headers.get("Retry-After"))
            self._answered = True
            self.api_version = version
            return Answer(body=body, latency_ms=latency)
        raise ImdsError(
            f"IMDS refuses every api-version that was tried ({', '.join(refused)}); check "
            "SEB_IMDS__API_VERSION and that nothing between strips the Metadata header",
            reason="http_400",
        )

    def instance(self) -> dict[str, Any]:
        """The instance document of this VM. Raises `ImdsError`."""
        status, body, _, headers = self._get(INSTANCE_PATH, INSTANCE_API_VERSION, self._timeout)
        _require_ok(status, headers.get("Retry-After"))
        try:
            loaded = json.loads(body)
        except (ValueError, RecursionError):
            loaded = None
        if not isinstance(loaded, dict):
            raise ImdsError("the instance document is not a JSON object", reason="malformed")
        return loaded

    def close(self) -> None:
        """Let go of the connection."""
        self._session.close()

    def _get(
        self, path: str, api_version: str, timeout: float
    ) -> tuple[int, bytes, float, requests.structures.CaseInsensitiveDict[str]]:
        """One GET within `timeout` seconds in all: connect, headers and body."""
        started = time.monotonic()
        _asking.deadline = started + timeout
        try:
            with self._session.get(
                f"{self.url}{path}",
                params={"api-version": api_version},
                timeout=(min(timeout, _CONNECT_SECONDS), timeout),
                allow_redirects=False,
                stream=True,
            ) as response:
                body = _read(response)
                latency = (time.monotonic() - started) * 1000
                return response.status_code, body, latency, response.headers
        except (requests.RequestException, HTTPError, OSError) as error:
            self._look_elsewhere()
            raise _explained(error, self.url, timeout) from error

    def _look_elsewhere(self) -> None:
        """Until the first answer, try the endpoint that DHCP names: outside a VNet it differs."""
        if self._answered:
            return
        others = [url for url in self._discover() if url != self.url]
        if others:
            self.url = others[0]


class _Asking(threading.local):
    """By when the request that this thread is at must be over, in monotonic seconds."""

    deadline: float = 0.0


_asking = _Asking()


class _DeadlineSocket(socket.socket):
    """A socket whose every read ends by a deadline: requests' own timeout is per read, and a
    body that drips held a call of one second for ten.
    """

    def recv_into(self, *args: Any) -> int:
        left = _asking.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the deadline has passed")
        self.settimeout(left)
        return super().recv_into(*args)


class _DeadlineConnection(HTTPConnection):
    """A connection on such a socket."""

    def _new_conn(self) -> socket.socket:
        plain = super()._new_conn()
        return _DeadlineSocket(plain.family, plain.type, plain.proto, fileno=plain.detach())


class _Pool(HTTPConnectionPool):
    ConnectionCls = _DeadlineConnection


def _session() -> requests.Session:
    session = requests.Session()
    # `proxies={}` is not enough: the environment's proxies and .netrc would still be read.
    session.trust_env = False
    session.headers.clear()
    session.headers.update({"Metadata": "true", "Accept": "application/json"})
    adapter = HTTPAdapter(pool_connections=1, pool_maxsize=1)
    adapter.poolmanager.pool_classes_by_scheme = {
        **adapter.poolmanager.pool_classes_by_scheme,
        "http": _Pool,
    }
    session.mount("http://", adapter)
    return session


def _older(api_version: str) -> list[str]:
    return [version for version in API_VERSIONS if version < api_version]


def _named(refusal: bytes) -> list[str]:
    """The versions that the body of a 400 names."""
    try:
        named = json.loads(refusal)["newest-versions"]
        return [version for version in named if isinstance(version, str)][:MAX_NAMED_VERSIONS]
    except (ValueError, KeyError, TypeError, RecursionError):
        return []


def _read(response: requests.Response) -> bytes:
    """The body, as it comes in, up to the limit."""
    body = bytearray()
    for chunk in response.iter_content(_CHUNK):
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise ImdsError(
                f"IMDS sent more than {MAX_BODY_BYTES >> 20} MiB; this is no document",
                reason="too_large",
            )
    return bytes(body)


def _require_ok(status: int, retry_after: str | None) -> None:
    if status == _OK:
        return
    raise ImdsError(
        f"IMDS answered HTTP {status}", reason=f"http_{status}", retry_after=_seconds(retry_after)
    )


def _seconds(retry_after: str | None) -> float | None:
    with suppress(TypeError, ValueError):
        seconds = float(retry_after or "")
        if seconds >= 0:
            return min(seconds, MAX_RETRY_AFTER)
    return None


def _explained(error: Exception, url: str, timeout: float) -> ImdsError:
    text = f"{type(error).__name__} {error}"
    if "Timeout" in text or "timed out" in text or "deadline" in text:
        return ImdsError(f"IMDS at {url} did not answer within {timeout:g} s", reason="timeout")
    if "refused" in text or "10061" in text:
        return ImdsError(f"nobody listens at {url}", reason="refused")
    return ImdsError(
        f"the connection to IMDS at {url} broke ({type(error).__name__})", reason="connection"
    )
