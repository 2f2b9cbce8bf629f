"""The client of a running bridge's HTTP server, for commands on this machine; read-only."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, Final

from bridge.config.address import parsed, reachable
from sinks.shared.errors import ConfigurationError, TryLaterError, UnreachableError
from sinks.shared.text import escaped

SECONDS: Final = 10.0
"""How long an answer may take."""
MAX_BYTES: Final = 16 << 20
"""Far more than a bridge ever answers: another program may listen at the address."""
SILENCE_SECONDS: Final = 40.0
"""How long a stream may be silent: the bridge sends a sign of life every fifteen seconds."""


class Viewer:
    """Reads from the bridge that listens at `SEB_HTTP__LISTEN`."""

    def __init__(self, listen: str) -> None:
        """Raises `ConfigurationError` if the server is turned off."""
        if not listen:
            raise ConfigurationError(
                "SEB_HTTP__LISTEN is empty, so the bridge has no HTTP server; "
                "`seb outbox list` works without it"
            )
        host, self._port = parsed(listen)
        self._host = reachable(host)
        self._named = listen

    def get(self, path: str) -> tuple[int, bytes]:
        """Send a GET, and return status and body of the answer. Raises `UnreachableError` if
        nothing answers.
        """
        connection = http.client.HTTPConnection(self._host, self._port, timeout=SECONDS)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read(MAX_BYTES)
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error
        finally:
            connection.close()

    def json(self, path: str) -> dict[str, Any]:
        """Send a GET, and return the JSON object in the answer. Raises what `get` raises, and
        `TryLaterError`.
        """
        status, body = self.get(path)
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict) or not ({"stream", "store", "error"} & answer.keys()):
            raise UnreachableError(
                f"what answers at {self._named} is not a bridge; correct SEB_HTTP__LISTEN"
            )
        if status != HTTPStatus.OK:
            later = status == HTTPStatus.SERVICE_UNAVAILABLE
            reason = f"the bridge at {self._named}: {escaped(str(answer.get('error')))}"
            raise TryLaterError(reason) if later else UnreachableError(reason)
        return answer

    def follow(self, last_event_id: str | None) -> Iterator[tuple[str, bytes]]:
        """Yield the records as they are committed, with their ids. Raises what `json` raises."""
        connection = http.client.HTTPConnection(self._host, self._port, timeout=SILENCE_SECONDS)
        headers = {"Accept": "text/event-stream"}
        if last_event_id is not None:
            headers["Last-Event-ID"] = last_event_id
        try:
            connection.request("GET", "/api/v1/events", headers=headers)
            answer = connection.getresponse()
            if answer.status != HTTPStatus.OK:
                raise TryLaterError(
                    f"the bridge at {self._named}: {_error(answer.read(MAX_BYTES))}"
                )
            yield from _events(answer)
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error
        finally:
            connection.close()

    def _unreachable(self, error: Exception) -> UnreachableError:
        reason = escaped(getattr(error, "strerror", None) or str(error) or type(error).__name__)
        return UnreachableError(
            f"no bridge answers at {self._named} ({reason})",
            remedy="see that it runs with this SEB_HTTP__LISTEN",
        )


def _events(lines: Iterator[bytes]) -> Iterator[tuple[str, bytes]]:
    """Yield the events of a stream: id and data; everything else is skipped."""
    name = ""
    for line in lines:
        if line.startswith(b"id: "):
            name = line[4:].strip().decode()
        elif line.startswith(b"data: "):
            yield name, line[6:].rstrip(b"\r\n")


def _error(body: bytes) -> str:
    try:
        return escaped(str(json.loads(body)["error"]))
    except (ValueError, LookupError, TypeError, RecursionError):
        return "it gave no reason"
