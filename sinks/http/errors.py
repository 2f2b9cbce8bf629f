"""What went wrong with a request, in our own words: the libraries' own words show the address."""

from __future__ import annotations

import errno
import os
import re
import socket
import ssl
from collections.abc import Iterator
from typing import Final

import requests
from urllib3.exceptions import NameResolutionError, NewConnectionError, ProxyError

from sinks.base import Problem

_BY_CLASS: Final[tuple[tuple[tuple[type[BaseException], ...], Problem], ...]] = (
    (
        (socket.gaierror, NameResolutionError),
        Problem("its host name cannot be resolved", "see that the name is right and DNS works"),
    ),
    (
        (requests.ConnectTimeout,),
        Problem("no connection in time", "see that no firewall is in between"),
    ),
    ((requests.Timeout, TimeoutError), Problem("no answer in time")),
)
_TUNNEL: Final = re.compile(r"Tunnel connection failed: (\d{3})")


def words(error: BaseException) -> Problem:
    """Why a request failed, and what to do, for any exception of requests, urllib3 or sockets."""
    causes = list(_causes(error))
    if any(isinstance(cause, (requests.exceptions.ProxyError, ProxyError)) for cause in causes):
        refusals = (_TUNNEL.search(str(cause)) for cause in causes)
        status = next((found[1] for found in refusals if found), None)
        why = Problem(f"it answered {status}") if status else _inner(causes)
        return why.at("the proxy that HTTPS_PROXY or HTTP_PROXY names did not connect")
    return _inner(causes)


def _inner(causes: list[BaseException]) -> Problem:
    for cause in causes:
        if isinstance(cause, ssl.SSLError):
            return tls_words(cause)
    for classes, problem in _BY_CLASS:
        if any(isinstance(cause, classes) for cause in causes):
            return problem
    connecting = any(isinstance(cause, NewConnectionError) for cause in causes)
    for cause in causes:
        if isinstance(cause, OSError) and cause.errno:
            return _system_words(cause.errno, connecting=connecting)
    if any(isinstance(cause, requests.ConnectionError) for cause in causes):
        return Problem("the connection ended before an answer came")
    return Problem(f"the request failed ({type(causes[0]).__name__})")


def _system_words(code: int, *, connecting: bool) -> Problem:
    if code == errno.ECONNREFUSED:
        return Problem("the connection was refused", "see that the receiver runs")
    if code in (errno.ECONNRESET, errno.EPIPE, errno.ECONNABORTED):
        return Problem("the connection was reset")
    reason = os.strerror(code).lower()
    return Problem(reason).at("cannot connect" if connecting else "the connection broke")


def tls_words(error: ssl.SSLError) -> Problem:
    """Why a TLS handshake failed, and what to do."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return Problem(
            f"its certificate is not trusted: {error.verify_message}",
            "renew it, or name its authority in SSL_CERT_FILE",
        )
    reason = (error.reason or type(error).__name__).replace("_", " ").lower()
    return Problem(f"TLS failed: {reason}", "see that the port speaks TLS")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The exception and those inside it: in `reason`, in the arguments, or before it."""
    seen: set[int] = set()
    waiting: list[object] = [error]
    while waiting:
        found = waiting.pop(0)
        if not isinstance(found, BaseException) or id(found) in seen:
            continue
        seen.add(id(found))
        yield found
        waiting += [getattr(found, "reason", None), *found.args, found.__cause__, found.__context__]
