"""A client of the simulator that can be rude: plain http.client and plain sockets."""

import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

from bridge.known_api_versions import EVENTS_API_VERSIONS

EVENTS = f"/metadata/scheduledevents?api-version={EVENTS_API_VERSIONS[-1]}"
COMPUTE = "/metadata/instance/compute?api-version=2021-02-01"
METADATA = {"Metadata": "true"}


@dataclass(frozen=True)
class SimulatorReply:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


def connect(url: str, *, timeout: float = 5.0) -> HTTPConnection:
    """A connection to the simulator, closed by the caller."""
    parts = urlsplit(url)
    return HTTPConnection(parts.hostname or "", parts.port, timeout=timeout)


def ask(
    url: str,
    target: str = EVENTS,
    *,
    method: str = "GET",
    headers: Mapping[str, str] = METADATA,
    body: bytes | None = None,
    timeout: float = 5.0,
) -> SimulatorReply:
    """The answer to one request on a connection of its own."""
    connection = connect(url, timeout=timeout)
    try:
        connection.request(method, target, body=body, headers=dict(headers))
        response = connection.getresponse()
        return SimulatorReply(response.status, dict(response.getheaders()), response.read())
    finally:
        connection.close()


def approve(url: str, *event_ids: str) -> SimulatorReply:
    """The answer to a POST of StartRequests."""
    body = json.dumps({"StartRequests": [{"EventId": event_id} for event_id in event_ids]})
    return ask(url, method="POST", body=body.encode())


def send_request(url: str, *, timeout: float = 5.0) -> socket.socket:
    """A socket on which the request for the events has been sent."""
    parts = urlsplit(url)
    raw = socket.create_connection((parts.hostname or "", parts.port or 0), timeout=timeout)
    raw.sendall(f"GET {EVENTS} HTTP/1.1\r\nHost: imds\r\nMetadata: true\r\n\r\n".encode())
    return raw
