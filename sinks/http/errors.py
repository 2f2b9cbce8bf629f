"""Errors of requests, explained. It never passes on a library's text, which contains the
address.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import ssl
from typing import Final

import requests
from urllib3.exceptions import NameResolutionError, NewConnectionError, ProxyError

from sinks.errors import Problem, causes, certificate_remedy

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


def problem_of(error: BaseException) -> Problem:
    """Return why a request failed and what to do, for any exception of requests, urllib3 or
    sockets.
    """
    chain = list(causes(error))
    if any(isinstance(each, (requests.exceptions.ProxyError, ProxyError)) for each in chain):
        refusals = (_TUNNEL.search(str(each)) for each in chain)
        status = next((found[1] for found in refusals if found), None)
        reason = Problem(f"it answered {status}") if status else _inner(chain)
        return reason.at("the proxy that HTTPS_PROXY, HTTP_PROXY or PROXY names did not connect")
    return _inner(chain)


def _inner(chain: list[BaseException]) -> Problem:
    for each in chain:
        if isinstance(each, ssl.SSLError):
            return _tls_problem(each)
    for classes, problem in _BY_CLASS:
        if any(isinstance(each, classes) for each in chain):
            return problem
    connecting = any(isinstance(each, NewConnectionError) for each in chain)
    for each in chain:
        if isinstance(each, OSError) and each.errno:
            return _system_problem(each.errno, connecting=connecting)
    if any(isinstance(each, requests.ConnectionError) for each in chain):
        return Problem("the connection ended before an answer came")
    return Problem(f"the request failed ({type(chain[0]).__name__})")


def _system_problem(code: int, *, connecting: bool) -> Problem:
    if code == errno.ECONNREFUSED:
        return Problem("the connection was refused", "see that the receiver runs")
    if code in (errno.ECONNRESET, errno.EPIPE, errno.ECONNABORTED):
        return Problem("the connection was reset")
    reason = os.strerror(code).lower()
    return Problem(reason).at("cannot connect" if connecting else "the connection broke")


def _tls_problem(error: ssl.SSLError) -> Problem:
    if isinstance(error, ssl.SSLCertVerificationError):
        return Problem(
            f"its certificate is not trusted: {error.verify_message}",
            certificate_remedy(error, "renew it, or name its authority in SSL_CERT_FILE"),
        )
    reason = (error.reason or type(error).__name__).replace("_", " ").lower()
    return Problem(f"TLS failed: {reason}", "see that the port speaks TLS")
