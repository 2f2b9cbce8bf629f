"""HTTP requests of the console and its commands: `requests`, with a deadline and a limit of size.

Certificates are checked against the authorities of the system and of Mozilla, and those that
SSL_CERT_FILE and REQUESTS_CA_BUNDLE name. Redirects are not followed: they could send a secret to
another host.
"""

from __future__ import annotations

import io
from contextlib import closing
from typing import Any, Final

import requests
from requests.utils import get_environ_proxies
from urllib3.exceptions import HTTPError

from sinks.base import SinkError
from sinks.http.client import tls_context
from sinks.http.errors import problem_of
from sinks.shared.deadline import DeadlineAdapter
from sinks.shared.errors import ConfigurationError

_CONNECT_SECONDS: Final = 5.0
_MAX_BYTES_HERE: Final = 10_000


class BoundedAdapter(DeadlineAdapter):
    """Returns an answer only if all of it came within `seconds` and has at most `largest` bytes."""

    def __init__(self, *, seconds: float, largest: int, is_secured: bool) -> None:
        super().__init__(tls_context() if is_secured else None)
        self._seconds = seconds
        self._largest = largest

    def send(  # noqa: PLR0917  # the order of requests
        self,
        request: requests.PreparedRequest,
        stream: bool = False,  # noqa: ARG002, FBT001, FBT002
        timeout: Any = None,  # noqa: ARG002
        verify: bool | str = True,  # noqa: FBT001, FBT002
        cert: Any = None,
        proxies: Any = None,
    ) -> requests.Response:
        """Return the answer to a request. Raises `requests.RequestException`."""
        self.deadline.allow(self._seconds)
        response = super().send(
            request,
            stream=True,
            timeout=(min(_CONNECT_SECONDS, self._seconds), self._seconds),
            verify=verify,
            cert=cert,
            proxies=proxies,
        )
        try:
            with closing(response):
                body = response.raw.read(self._largest + 1, decode_content=True)
        except (HTTPError, OSError) as error:
            raise requests.ConnectionError(error, request=request) from error
        if len(body) > self._largest:
            raise requests.RequestException(f"the answer is larger than {self._largest} bytes")
        response.raw = io.BytesIO(body)
        return response


def limit_session(
    session: requests.Session, url: str, *, seconds: float, largest: int = 8 << 20
) -> None:
    """Set limits for a session's requests to `url` and addresses like it. `seconds` is for each
    whole exchange, `largest` in bytes. Raises `ConfigurationError` if a bundle of authorities
    cannot be read.
    """
    # The environment includes .netrc, whose password would replace a token.
    session.trust_env = False
    session.proxies = get_environ_proxies(url, no_proxy=None)
    is_secured = url.lower().startswith("https:")
    try:
        adapter = BoundedAdapter(seconds=seconds, largest=largest, is_secured=is_secured)
    except SinkError as error:
        raise ConfigurationError(str(error)) from None
    session.mount("https://", adapter)
    session.mount("http://", adapter)


def answers(url: str, *, seconds: float) -> requests.Response | None:
    """Return what a program on this machine answers at `url`; None if it gives no answer
    in time.
    """
    with requests.Session() as session:
        limit_session(session, url, seconds=seconds, largest=_MAX_BYTES_HERE)
        session.proxies = {}
        try:
            return session.get(url, allow_redirects=False)
        except requests.RequestException:
            return None


def reason_of(error: requests.RequestException) -> str:
    """Return what went wrong with a request, for people. The text has no address and no secret."""
    return str(problem_of(error))
