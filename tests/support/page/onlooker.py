"""Looks at a running bridge over HTTP, as a person, a probe and Prometheus do."""

import http.client
import json
from collections.abc import Callable
from typing import Any

from support.eventually import eventually
from support.patience import PATIENCE
from support.ports import free_port


def samples(text: bytes) -> dict[str, float]:
    """Every sample of metrics by its name and labels, as the text has them."""
    lines = text.decode().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


class Onlooker:
    """Asks one server."""

    def __init__(self, port: int | None = None) -> None:
        self.port = port or free_port()

    @property
    def env(self) -> dict[str, str]:
        """What makes a bridge listen here."""
        return {"SEB_HTTP__LISTEN": f"127.0.0.1:{self.port}"}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str) -> tuple[int, bytes]:
        """Status and body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def code(self, path: str) -> int:
        """Status alone; 0 where nobody listens."""
        try:
            return self.get(path)[0]
        except ConnectionError:
            return 0

    def status(self) -> dict[str, Any]:
        """The status API's answer."""
        answer: dict[str, Any] = json.loads(self.get("/api/v1/status")[1])
        return answer

    def samples(self) -> dict[str, float]:
        """Every sample of the metrics by its name and labels."""
        return samples(self.get("/metrics")[1])

    def wait_for(self, condition: Callable[[], bool], what: str, seconds: float = PATIENCE) -> None:
        """Look again and again until something is so. Raises `AssertionError`."""
        eventually(condition, what=what, timeout=seconds)
