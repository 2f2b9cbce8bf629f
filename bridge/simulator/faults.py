"""The faults of IMDS that the simulator can play, and their names on the command line. A pause in
one ends early if the client or the simulator ends.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from http import HTTPStatus
from typing import ClassVar, Final

from bridge.simulator.answers import SimulatedAnswer, Target, refusal
from bridge.simulator.exchange import SimulatedExchange

_BLOCK = b" " * 65536
_MEBIBYTE = 1024 * 1024


class Fault(ABC):
    """A fault that a request gets instead of its answer."""

    @abstractmethod
    def apply(self, exchange: SimulatedExchange) -> None:
        """Misbehave on the exchange, as the class says."""


@dataclass(frozen=True, slots=True)
class Slow(Fault):
    """The right answer, delayed by so many seconds."""

    seconds: float = 10.0

    def apply(self, exchange: SimulatedExchange) -> None:
        exchange.pause(self.seconds)
        exchange.send(exchange.answer())


@dataclass(frozen=True, slots=True)
class StatusFault(Fault):
    """An error status with IMDS's JSON error; `retry_after` is whole seconds."""

    status: int
    retry_after: int | None = None

    def apply(self, exchange: SimulatedExchange) -> None:
        error = refusal(self.status, HTTPStatus(self.status).phrase)
        headers = {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}
        exchange.send(SimulatedAnswer(status=self.status, body=error.body, headers=headers))


@dataclass(frozen=True, slots=True)
class EmptyBody(Fault):
    """200 with nothing in it, as IMDS often answers."""

    def apply(self, exchange: SimulatedExchange) -> None:
        exchange.send(SimulatedAnswer(status=200))


@dataclass(frozen=True, slots=True)
class Html(Fault):
    """200 with a page, as a captive portal or a proxy answers."""

    def apply(self, exchange: SimulatedExchange) -> None:
        page = b"<!DOCTYPE html><html><body><h1>Please sign in</h1></body></html>"
        exchange.send(SimulatedAnswer(status=200, body=page, content_type="text/html"))


@dataclass(frozen=True, slots=True)
class NoEvents(Fault):
    """200 with a JSON object that has no Events."""

    def apply(self, exchange: SimulatedExchange) -> None:
        exchange.send(SimulatedAnswer(status=200, body=b'{"error":"Internal error"}'))


@dataclass(frozen=True, slots=True)
class Truncated(Fault):
    """Half the right body: Content-Length promises the rest, then the connection ends."""

    def apply(self, exchange: SimulatedExchange) -> None:
        answer = exchange.answer()
        exchange.write(answer.head() + _half(answer.body))
        exchange.hang_up()


@dataclass(frozen=True, slots=True)
class CutJson(Fault):
    """Half the right body, with its own Content-Length."""

    def apply(self, exchange: SimulatedExchange) -> None:
        answer = exchange.answer()
        exchange.send(SimulatedAnswer(status=answer.status, body=_half(answer.body)))


@dataclass(frozen=True, slots=True)
class DripBody(Fault):
    """The right answer with its body in small parts, `interval` seconds apart."""

    interval: float = 0.5
    size: int = 1

    def apply(self, exchange: SimulatedExchange) -> None:
        answer = exchange.answer()
        exchange.write(answer.head())
        for start in range(0, len(answer.body), self.size):
            exchange.pause(self.interval)
            if start + self.size >= len(answer.body):
                exchange.mark(answer)
            exchange.write(answer.body[start : start + self.size])


@dataclass(frozen=True, slots=True)
class DripHeaders(Fault):
    """The right answer with its headers byte by byte, `interval` seconds apart."""

    interval: float = 0.5

    def apply(self, exchange: SimulatedExchange) -> None:
        answer = exchange.answer()
        for byte in answer.head():
            exchange.write(bytes([byte]))
            exchange.pause(self.interval)
        exchange.mark(answer)
        exchange.write(answer.body)


@dataclass(frozen=True, slots=True)
class Huge(Fault):
    """A well-formed empty document, filled with spaces to so many MiB."""

    mebibytes: int = 10

    def apply(self, exchange: SimulatedExchange) -> None:
        opening = b'{"DocumentIncarnation":1,"Events":['
        closing = b"]}"
        size = self.mebibytes * _MEBIBYTE
        length = str(len(opening) + size + len(closing))
        exchange.write(
            SimulatedAnswer(status=200, headers={"Content-Length": length}).head() + opening
        )
        for _ in range(size // len(_BLOCK)):
            exchange.write(_BLOCK)
        exchange.write(closing)


@dataclass(frozen=True, slots=True)
class Endless(Fault):
    """A chunked body without an end; after `seconds` the connection is closed."""

    LIMIT: ClassVar[int] = 4096 * _MEBIBYTE

    seconds: float = 60.0

    def apply(self, exchange: SimulatedExchange) -> None:
        head = SimulatedAnswer(status=200, headers={"Transfer-Encoding": "chunked"}).head()
        exchange.write(head + _chunk(b'{"DocumentIncarnation":1,"Events":['))
        end = time.monotonic() + self.seconds
        sent = 0
        while time.monotonic() < end and sent < self.LIMIT:
            exchange.pause(0)
            exchange.write(_chunk(_BLOCK))
            sent += len(_BLOCK)
        exchange.hang_up()


@dataclass(frozen=True, slots=True)
class ResetFault(Fault):
    """The connection is reset; `after_effect`: after the request has had its effect."""

    after_effect: bool = False

    def apply(self, exchange: SimulatedExchange) -> None:
        if self.after_effect:
            exchange.answer()
        exchange.reset()


@dataclass(frozen=True, slots=True)
class Silence(Fault):
    """No byte for so many seconds, then the connection ends."""

    seconds: float = 60.0

    def apply(self, exchange: SimulatedExchange) -> None:
        exchange.pause(self.seconds)
        exchange.hang_up()


@dataclass(frozen=True, slots=True)
class RefusedFault(Fault):
    """The whole port refuses for so many seconds (None: until `heal`) and cuts open connections."""

    seconds: float | None = 5.0

    def apply(self, exchange: SimulatedExchange) -> None:
        exchange.reset()


def _half(body: bytes) -> bytes:
    return body[: len(body) // 2]


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


class FaultQueue:
    """The faults to come, by endpoint, in their order."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queues: dict[Target, deque[tuple[Fault, int | None]]] = {}

    def add(self, fault: Fault, *, times: int | None, at: Target) -> None:
        """Queue a fault for so many requests; None: until `clear`."""
        if times is not None and times < 1:
            raise ValueError("times is at least 1, or None for until heal()")
        with self._lock:
            self._queues.setdefault(at, deque()).append((fault, times))

    def pop(self, at: Target | None) -> Fault | None:
        """Return the fault for the next request, if there is one."""
        with self._lock:
            queue = self._queues.get(at) if at is not None else None
            if not queue:
                return None
            fault, times = queue[0]
            if times is not None:
                queue.popleft()
                if times > 1:
                    queue.appendleft((fault, times - 1))
            return fault

    def clear(self) -> None:
        """Forget all faults."""
        with self._lock:
            self._queues.clear()


_FAULTS: Final[dict[str, Callable[..., Fault]]] = {
    "401": lambda: StatusFault(401),
    "404": lambda: StatusFault(404),
    "410": lambda: StatusFault(410),
    "429": lambda seconds=2: StatusFault(429, retry_after=int(seconds)),
    "500": lambda: StatusFault(500),
    "503": lambda: StatusFault(503),
    "cut": CutJson,
    "drip": DripBody,
    "drip-headers": DripHeaders,
    "empty": EmptyBody,
    "endless": Endless,
    "html": Html,
    "huge": lambda mebibytes=10: Huge(int(mebibytes)),
    "no-events": NoEvents,
    "refused": RefusedFault,
    "reset": ResetFault,
    "silence": Silence,
    "slow": Slow,
    "truncated": Truncated,
}
_ARGUMENT: Final = {"429", "drip", "drip-headers", "endless", "huge", "refused", "silence", "slow"}
FAULT_NAMES: Final = tuple(sorted(_FAULTS))


def parse_fault(text: str) -> Fault:
    """Return the fault of `NAME` or `NAME=ARGUMENT` (seconds, or MiB for `huge`). Raises
    `ValueError`.
    """
    name, equals, argument = text.partition("=")
    if name not in _FAULTS:
        near = get_close_matches(name, FAULT_NAMES, n=3) or FAULT_NAMES
        raise ValueError(f"there is no fault {name!r}; try {', '.join(near)}")
    if not equals:
        return _FAULTS[name]()
    if name not in _ARGUMENT:
        raise ValueError(f"the fault {name!r} takes no argument")
    try:
        number = float(argument)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 3600:  # noqa: PLR2004  # an hour
        raise ValueError(f"{argument!r} is not a number between 0 and 3600, as in {name}=5")
    return _FAULTS[name](number)
