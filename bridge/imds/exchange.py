"""One request to IMDS and its whole answer, within its limits of time and size, without proxy or
redirect.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import requests
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError
from urllib3.exceptions import TimeoutError as PoolTimeoutError

from sinks.errors import causes
from sinks.shared.deadline import DeadlineAdapter

MAX_BODY_BYTES: Final = 8 << 20
# No Accept-Encoding: the answers are small, and what is not packed cannot be a bomb.
_HEADERS: Final = {"Metadata": "true", "Accept": "application/json"}
_CHUNK: Final = 65536
_CONNECT_SECONDS: Final = 5.0


class ImdsError(Exception):
    """IMDS gave no document. `reason`: one word; `retry_after`: the seconds it asked for."""

    def __init__(self, message: str, *, reason: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.retry_after = retry_after

    @property
    def unreachable(self) -> bool:
        """Whether not even a connection could be made."""
        return self.reason in ("refused", "unreachable")


class WithheldError(Exception):
    """A request was not sent, because it was no longer allowed once there was a connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer of IMDS, and how long it took in milliseconds."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    latency_ms: float


class _PlainAdapter(DeadlineAdapter):
    def build_response(self, req: requests.PreparedRequest, resp: Any) -> Any:  # noqa: ARG002
        """Return the answer as received: a Response of requests, with cookies and all, would delay
        each change.
        """
        return resp


class Exchange:
    """Exchanges on one persistent connection; used by one thread at a time."""

    def __init__(self, url: str) -> None:
        """`url` shows whether TLS may be needed."""
        # The adapter, not a session: no environment's proxies, no .netrc, no cookies, and no body
        # of a redirect read without a limit.
        secured = url.lower().startswith("https:")
        self._adapter = _PlainAdapter(ssl.create_default_context() if secured else None)
        self._deadline = self._adapter.deadline
        self._kept = False
        self._prepared: dict[str, requests.PreparedRequest] = {}

    def get(self, base: str, target: str, *, timeout: float) -> Reply:
        """Send a GET and return its answer within `timeout` seconds in all. Raises `ImdsError`
        without an answer.
        """
        url = f"{base}{target}"
        request = self._prepared.get(url)
        if request is None:
            request = requests.Request("GET", url, headers=_HEADERS).prepare()
            self._prepared = {**self._prepared, url: request}
        self._deadline.allow(timeout)
        try:
            if self._kept:
                self._kept = False
                # That the server closed an idle connection says nothing about IMDS.
                with suppress(requests.ConnectionError):
                    return self._send(request)
                self._deadline.bound(None)
            return self._send(request)
        except (requests.RequestException, HTTPError, OSError) as error:
            raise explain(error, base, timeout) from error

    def post(
        self, base: str, target: str, *, body: str, timeout: float, may_send: Callable[[], bool]
    ) -> Reply:
        """Send a POST of JSON in the same way. `may_send` is asked once there is a connection,
        which may have taken long. Raises `ImdsError`, or `WithheldError` if it says no.
        """

        def ask() -> None:
            if not may_send():
                raise WithheldError

        self._deadline.on_connected = ask
        headers = {**_HEADERS, "Content-Type": "application/json", "Connection": "close"}
        request = requests.Request("POST", f"{base}{target}", headers=headers, data=body).prepare()
        self._deadline.allow(timeout)
        try:
            return self._send(request)
        except (requests.RequestException, HTTPError, OSError) as error:
            raise explain(error, base, timeout) from error

    def close(self) -> None:
        """Close the connection."""
        self._adapter.close()

    def _send(self, request: requests.PreparedRequest) -> Reply:
        started = time.monotonic()
        seconds = self._deadline.left()
        timeout = (min(seconds, _CONNECT_SECONDS), seconds)
        answer: Any = self._adapter.send(request, stream=True, timeout=timeout)
        with answer:
            body = _read(answer)
        self._kept = True
        return Reply(
            status=answer.status,
            headers=answer.headers,
            body=body,
            latency_ms=(time.monotonic() - started) * 1000,
        )


def _read(answer: Any) -> bytes:
    body = bytearray()
    for chunk in answer.stream(_CHUNK, decode_content=True):
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise ImdsError(
                f"IMDS sent more than {MAX_BODY_BYTES >> 20} MiB, which is not a document",
                reason="too_large",
            )
    return bytes(body)


def explain(error: Exception, url: str, timeout: float) -> ImdsError:
    """Return the error of a request that had `timeout` seconds, from the cause inside any
    wrapping.
    """
    found = list(causes(error))
    if _any(found, ConnectionRefusedError):
        return ImdsError(f"connection refused by {url}", reason="refused")
    if _any(found, TimeoutError, PoolTimeoutError) and not _any(found, NewConnectionError):
        connecting = _any(found, ConnectTimeoutError)
        return ImdsError(
            f"IMDS at {url} did not answer within {timeout:g} s",
            reason="unreachable" if connecting else "timeout",
        )
    texts = (cause.strerror for cause in found if isinstance(cause, OSError))
    reason = next(filter(None, texts), type(error).__name__)
    if _any(found, NewConnectionError):
        return ImdsError(f"IMDS at {url} cannot be reached: {reason}", reason="unreachable")
    return ImdsError(f"the connection to IMDS at {url} broke: {reason}", reason="connection")


def _any(found: list[BaseException], *kinds: type[BaseException]) -> bool:
    return any(isinstance(cause, kinds) for cause in found)
