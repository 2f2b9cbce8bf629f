"""One exchange with Azure's metadata service: a request, and its whole answer within its time.

It never follows a proxy or a redirect, never waits beyond its deadline, and never reads a body
without a limit. What an answer means is the client's part.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import requests
from urllib3.exceptions import HTTPError

from bridge.imds.errors import ImdsError, explain
from sinks.deadline import DeadlineAdapter

MAX_BODY_BYTES: Final = 8 << 20
# No Accept-Encoding: the answers are small, and what is not packed cannot be a bomb.
_HEADERS: Final = {"Metadata": "true", "Accept": "application/json"}
_CHUNK: Final = 65536
_CONNECT_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer of IMDS, and how long it took in milliseconds."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    latency_ms: float


class Exchange:
    """Exchanges with one kept connection; for one thread at a time."""

    def __init__(self, url: str) -> None:
        """`url` says whether TLS may be needed."""
        # The adapter, not a session: no environment's proxies, no .netrc, no cookies, and no body
        # of a redirect read without a limit.
        secured = url.lower().startswith("https:")
        self._adapter = DeadlineAdapter(ssl.create_default_context() if secured else None)
        self._deadline = self._adapter.deadline
        self._kept = False
        self._prepared: dict[str, requests.PreparedRequest] = {}

    def get(self, base: str, target: str, *, timeout: float) -> Reply:
        """One GET of base URL and target, within `timeout` seconds in all: connect, headers, body.

        Raises `ImdsError` if there is no answer.
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
                # A connection that the server closed while it was idle says nothing of IMDS.
                with suppress(requests.ConnectionError):
                    return self._send(request)
                self._deadline.bound(None)
            return self._send(request)
        except (requests.RequestException, HTTPError, OSError) as error:
            raise explain(error, base, timeout) from error

    def post(self, base: str, target: str, *, body: str, timeout: float) -> Reply:
        """One POST of JSON, likewise. Raises `ImdsError`."""
        headers = {**_HEADERS, "Content-Type": "application/json", "Connection": "close"}
        request = requests.Request("POST", f"{base}{target}", headers=headers, data=body).prepare()
        self._deadline.allow(timeout)
        try:
            return self._send(request)
        except (requests.RequestException, HTTPError, OSError) as error:
            raise explain(error, base, timeout) from error

    def close(self) -> None:
        """Let go of the connection."""
        self._adapter.close()

    def _send(self, request: requests.PreparedRequest) -> Reply:
        """One exchange within what is left of the deadline."""
        started, seconds = time.monotonic(), self._deadline.left()
        timeout = (min(seconds, _CONNECT_SECONDS), seconds)
        with self._adapter.send(request, stream=True, timeout=timeout) as response:
            body = _read(response)
        self._kept = True
        return Reply(
            status=response.status_code,
            headers=response.headers,
            body=body,
            latency_ms=(time.monotonic() - started) * 1000,
        )


def _read(response: requests.Response) -> bytes:
    """The body, as it comes in, up to the limit."""
    body = bytearray()
    for chunk in response.iter_content(_CHUNK):
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise ImdsError(
                f"IMDS sent more than {MAX_BODY_BYTES >> 20} MiB, which is not a document",
                reason="too_large",
            )
    return bytes(body)
