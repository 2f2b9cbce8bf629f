"""A real HTTP(S) server in a process of its own, told by the tests how to behave.

Answers are given in the order in which they were told, one per request; when none is left, the
server says 204. It listens on loopback only. It ends with its parent: its standard input closes.
"""

import base64
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

from support.sinks.throwaway_ca import Pair

Mode = Literal[
    "normal",  # an answer as told
    "silence",  # the request is read, and nothing is ever said
    "deaf",  # the connection is taken, and nothing is ever read
    "reset",  # the request is read, and the connection is reset
    "close",  # the request is read, and the connection is closed without a word
    "drip-headers",  # a header line that never ends, a byte at a time
    "cut-headers",  # the connection is closed within the headers, after a whole line
    "cut-line",  # the same, within a line
    "drip-body",  # a body of the told length, a byte at a time
    "drip-close",  # a body that only the end of the connection ends, a byte at a time
    "interim",  # 1xx answers without end
    "endless",  # a body that never ends, as fast as it is read
    "garbage",  # something that is not HTTP
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request as it arrived, byte for byte."""

    head: bytes
    body: bytes
    connection: int

    @property
    def method(self) -> str:
        return self.head.split(b" ", 1)[0].decode()

    @property
    def target(self) -> str:
        return self.head.split(b" ", 2)[1].decode()

    @property
    def headers(self) -> dict[str, str]:
        """Header names in lower case."""
        lines = self.head.decode("latin-1").split("\r\n")[1:]
        pairs = (line.partition(":") for line in lines if line)
        return {name.strip().lower(): value.strip() for name, _, value in pairs}


@dataclass
class HttpServer:
    """The parent's end: starts the process, talks to it over its standard input and output."""

    tls: Pair | None = None
    """The certificate to serve with; without one, plain HTTP."""
    _process: subprocess.Popen[str] = field(init=False, repr=False)
    port: int = field(init=False, default=0)

    def __enter__(self) -> Self:
        paths = [str(self.tls.cert), str(self.tls.key)] if self.tls else []
        self._process = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("http_server_child.py"), *paths],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.port = self._ask(do="start")
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    @property
    def origin(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    def answer(
        self,
        *,
        status: int = 204,
        headers: dict[str, str] | None = None,
        body: bytes = b"",
        mode: Mode = "normal",
        delay: float = 0.0,
        every: float = 0.02,
        times: int = 1,
        interim: Sequence[int] = (),
    ) -> None:
        """Queue an answer. `delay` is before it, `every` between two bytes of a drip (seconds);
        `interim` are the statuses of the 1xx answers that come first.
        """
        fields = {
            "status": status,
            "headers": headers or {},
            "body": base64.b64encode(body).decode(),
            "mode": mode,
            "delay": delay,
            "every": every,
            "interim": list(interim),
        }
        self._ask(do="answer", answers=[fields] * times)

    def requests(self) -> list[Request]:
        """Every request that arrived whole, in order."""
        return [
            Request(head=base64.b64decode(head), body=base64.b64decode(body), connection=connection)
            for head, body, connection in self._ask(do="requests")
        ]

    def connections(self) -> int:
        """How many connections were taken."""
        count: int = self._ask(do="connections")
        return count

    def open_connections(self) -> int:
        """How many connections are open now."""
        count: int = self._ask(do="open")
        return count

    def stop(self) -> None:
        """Refuse connections, and cut those that are open."""
        self._ask(do="stop")

    def start(self) -> None:
        """Listen on the same port again; requests and answers are kept."""
        self._ask(do="start")

    def _ask(self, **question: Any) -> Any:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())
