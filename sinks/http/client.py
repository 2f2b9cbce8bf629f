"""One request at a time, without redirects. No error shows the path of an address."""

from __future__ import annotations

import logging
import os
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import Final

import certifi
import requests
from requests.utils import get_environ_proxies, select_proxy
from urllib3.exceptions import HTTPError

from sinks.base import Problem, SinkError
from sinks.http.errors import problem_of
from sinks.shared.deadline import DeadlineAdapter

# urllib3 writes addresses into its debug lines, and one of its warnings.
logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)

_BODY_THAT_KEEPS_THE_CONNECTION: Final = 4096
_CA_VARIABLES: Final = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    """How long each part of a request may take, in seconds."""

    connect: float = 5.0
    """To connect once the host's name is resolved, for all its addresses together, and for the TLS
    handshake.
    """
    read: float = 10.0
    """Between two bytes of the answer."""
    total: float = 15.0
    """From the first packet to the last header: timeouts of single reads do not end an answer that
    arrives byte by byte.
    """
    body: float = 1.0
    """To read the body of a POST's answer, which only decides whether the connection is kept."""
    idle: float = 60.0
    """A connection without a request for longer is not used again: a firewall or load balancer in
    between may have forgotten it without a word (Azure's do after 4 minutes), and the request would
    wait for `read` before it fails.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The parts of an answer that are used."""

    status: int
    retry_after: str | None
    location: str | None
    body: bytes = b""
    """The whole body, if it was asked for."""


class HttpClient:
    """A kept connection to one address."""

    def __init__(
        self, url: str, limits: HttpLimits, *, shown: str, proxy: str | None = None
    ) -> None:
        """Keep the address, without connecting; `shown` is the address as errors may show it."""
        self._url = url
        self._shown = shown
        self._limits = limits
        # Once for all requests: to look takes as long as half a request on loopback. A client is
        # replaced after each failure, and so sees changes of the system's proxy settings.
        self._proxies = {"all": proxy} if proxy else get_environ_proxies(url, no_proxy=None)
        through = select_proxy(url, self._proxies) or ""
        secured = any(each.lower().startswith("https:") for each in (url, through))
        # No Session: it would read .netrc, keep cookies, and read a Location even if it
        # may not follow it; a bad one makes it raise (measured with requests 2.34.2).
        self._adapter = DeadlineAdapter(tls_context() if secured else None)
        self._deadline = self._adapter.deadline
        self._used_at = time.monotonic()

    def post(self, body: bytes, headers: Mapping[str, str]) -> Answer:
        """Send a POST, and return the answer's head. Raises `SinkError` if there is no answer."""
        request = requests.Request("POST", self._url, headers=dict(headers), data=body)
        with self._in_our_words():
            response = self._send(request)
        if self._deadline.cut_off:  # http.client takes headers that were cut off for whole ones
            response.close()
            raise self._error(self._deadline.cut_off)
        self._release(response)
        return _answer(response, b"")

    def get(self, params: Mapping[str, str], headers: Mapping[str, str], *, largest: int) -> Answer:
        """Send a GET, and return its answer of at most `largest` bytes. Raises `SinkError`."""
        request = requests.Request("GET", self._url, headers=dict(headers), params=dict(params))
        return self._whole(request, largest)

    def ask(self, body: bytes, headers: Mapping[str, str], *, largest: int) -> Answer:
        """Send a POST, and return the answer with its body. Raises `SinkError`."""
        request = requests.Request("POST", self._url, headers=dict(headers), data=body)
        return self._whole(request, largest)

    def _whole(self, request: requests.Request, largest: int) -> Answer:
        with self._in_our_words():
            response = self._send(request)
            with closing(response):
                body = response.raw.read(largest + 1, decode_content=False)
        if self._deadline.cut_off:
            raise self._error(self._deadline.cut_off)
        if len(body) > largest:
            raise self._error(f"its answer is larger than {largest} bytes")
        return _answer(response, body)

    @contextmanager
    def _in_our_words(self) -> Iterator[None]:
        """Turn any failure within the block into a `SinkError` with this project's own text."""
        try:
            yield
        except (requests.RequestException, HTTPError, OSError, ValueError) as error:
            self._adapter.close()
            raise self._error(self._deadline.reason or problem_of(error)) from None

    def _error(self, problem: str | Problem) -> SinkError:
        problem = problem if isinstance(problem, Problem) else Problem(problem)
        return SinkError(problem.at(self._shown))

    def _send(self, request: requests.Request) -> requests.Response:
        if time.monotonic() - self._used_at > self._limits.idle:
            self._adapter.close()
        self._deadline.allow(self._limits.total)
        answer = self._adapter.send(
            request.prepare(),
            stream=True,
            timeout=(self._limits.connect, self._limits.read),
            proxies=self._proxies,
        )
        self._used_at = time.monotonic()
        return answer

    def _release(self, response: requests.Response) -> None:
        """Keep the connection if the rest of the body is small and has arrived; otherwise close
        it.
        """
        self._deadline.allow(self._limits.body)
        with suppress(HTTPError, OSError, ValueError):
            response.raw.read(_BODY_THAT_KEEPS_THE_CONNECTION, decode_content=False)
        response.close()

    def abort(self) -> None:
        """Cut the connection permanently, from another thread. Never raises."""
        self._deadline.cut("the delivery was cut off")

    def close(self) -> None:
        """Close the kept connection."""
        self._adapter.close()


def _answer(response: requests.Response, body: bytes) -> Answer:
    return Answer(
        status=response.status_code,
        retry_after=response.headers.get("Retry-After"),
        location=response.headers.get("Location"),
        body=body,
    )


def proxy_of(url: str) -> str | None:
    """Return the proxy for an address that the environment (on Windows, the system's settings)
    names.
    """
    return select_proxy(url, get_environ_proxies(url, no_proxy=None))


def tls_context() -> ssl.SSLContext:
    """Return a context that trusts the system's authorities, Mozilla's, and the file that the usual
    variables name. Raises `SinkError`.
    """
    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    for name in _CA_VARIABLES:
        if path := os.environ.get(name):
            try:
                _load(context, path)
            except (OSError, ssl.SSLError) as error:
                reason = error.strerror or type(error).__name__
                raise SinkError(f"{name} names {path}, which cannot be read: {reason}") from None
    return context


def _load(context: ssl.SSLContext, path: str) -> None:
    if os.path.isdir(path):  # noqa: PTH112  # a setting of others, used as they wrote it
        context.load_verify_locations(capath=path)
    else:
        context.load_verify_locations(cafile=path)
