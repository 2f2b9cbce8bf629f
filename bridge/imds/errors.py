"""The error of a request to IMDS: one word for logs, one sentence for people.

It never asks IMDS, and concludes nothing about events.
"""

from __future__ import annotations

from urllib3.exceptions import ConnectTimeoutError, NewConnectionError
from urllib3.exceptions import TimeoutError as PoolTimeoutError

from sinks.errors import causes


class ImdsError(Exception):
    """IMDS gave no document; nothing can be concluded, and the next poll asks again.

    `reason`: one word for logs and metrics. `retry_after`: seconds that IMDS asked for, or None.
    """

    def __init__(self, message: str, *, reason: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.retry_after = retry_after

    @property
    def unreachable(self) -> bool:
        """Whether not even a connection could be made."""
        return self.reason in ("refused", "unreachable")


def explain(error: Exception, url: str, timeout: float) -> ImdsError:
    """The error of a request that had `timeout` seconds, whatever its cause is wrapped in."""
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
    why = next(filter(None, texts), type(error).__name__)
    if _any(found, NewConnectionError):
        return ImdsError(f"IMDS at {url} cannot be reached: {why}", reason="unreachable")
    return ImdsError(f"the connection to IMDS at {url} broke: {why}", reason="connection")


def _any(found: list[BaseException], *kinds: type[BaseException]) -> bool:
    return any(isinstance(cause, kinds) for cause in found)
