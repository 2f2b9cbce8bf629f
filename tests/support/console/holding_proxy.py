"""A TCP proxy before a far end on loopback that can hold a chosen message back: it has been sent,
and has not arrived.

Usage::

    with HoldingProxy(broker.port, split=mqtt_packets) as line:
        line.hold(command_of(event_id))
        ...
        line.wait()
        console.kill()
        line.drop()
"""

from __future__ import annotations

import base64
import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

from support.patience import PATIENCE

Splitter = Callable[[bytearray], Iterator[bytes]]
"""Takes whole messages from the start of what has come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passing:
    """A message on its way."""

    connection: int
    answer: bool
    """Whether it comes from the far end."""
    data: bytes


Wanted = Callable[[Passing], bool]


class HoldingProxy:
    """One port, one far end; holds one message at a time, and what is behind it."""

    def __init__(self, target: int, *, split: Splitter, watch: Callable[[Passing], None]) -> None:
        self._target = target
        self._split = split
        self._watch = watch
        self._changed = threading.Condition()
        self._wanted: Wanted | None = None
        self._held = False
        self._keep = True
        self._connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.drop()

    def hold(self, wanted: Wanted) -> None:
        """Hold the next message that is wanted."""
        with self._changed:
            self._wanted, self._held, self._keep = wanted, False, True

    @property
    def holds(self) -> bool:
        """Whether it holds something."""
        with self._changed:
            return self._held

    def wait(self, timeout: float = PATIENCE) -> None:
        """Wait until it is held. Raises `AssertionError`."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._held, timeout), "nothing was held"

    def release(self) -> None:
        """Hand on what is held."""
        self._end(keep=True)

    def drop(self) -> None:
        """Lose what is held, and cut its connection."""
        self._end(keep=False)

    def _end(self, *, keep: bool) -> None:
        with self._changed:
            self._wanted, self._held, self._keep = None, False, keep
            self._changed.notify_all()

    def _passes(self, passing: Passing) -> bool:
        """Whether a message may go on, once it may; it is watched as it comes."""
        self._watch(passing)
        with self._changed:
            if self._wanted is None or not self._wanted(passing):
                return True
            self._wanted, self._held = None, True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._held)
            return self._keep

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        try:
            far = socket.create_connection(("127.0.0.1", self._target), timeout=5)
        except OSError:  # the far end is down
            near.close()
            return
        far.settimeout(None)
        with self._changed:
            self._connections += 1
            number = self._connections
        with near, far:
            for each in (near, far):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            back = threading.Thread(target=self._pump, args=(far, near, number, True), daemon=True)
            back.start()
            self._pump(near, far, number, False)  # as the thread's
            back.join()

    def _pump(
        self, giving: socket.socket, taking: socket.socket, number: int, answer: bool
    ) -> None:  # a thread's argument
        """One direction, to its end, which ends the other too."""
        come = bytearray()
        with suppress(OSError):
            while piece := giving.recv(65536):
                come += piece
                for data in self._split(come):
                    if not self._passes(Passing(connection=number, answer=answer, data=data)):
                        raise ConnectionAbortedError
                    taking.sendall(data)
        for each in (giving, taking):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


def pieces(come: bytearray) -> Iterator[bytes]:
    """What has come, as it came."""
    yield bytes(come)
    come.clear()


def mqtt_packets(come: bytearray) -> Iterator[bytes]:
    """Whole packets of MQTT."""
    while (end := _packet_end(come)) is not None:
        yield bytes(come[:end])
        del come[:end]


def _packet_end(data: bytes | bytearray) -> int | None:
    found = _number(data, 1)
    if found is None or found[0] + found[1] > len(data):
        return None
    return found[0] + found[1]


def _number(data: bytes | bytearray, at: int) -> tuple[int, int] | None:
    """A variable byte integer (MQTT 5, 1.5.5), and where it ends."""
    value = 0
    for place, byte in enumerate(data[at : at + 4]):
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:  # the bit that says that more follow
            return value, at + place + 1
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Publish:
    """A PUBLISH of MQTT 5 at QoS 1."""

    topic: str
    number: int
    payload: bytes

    @property
    def claims(self) -> dict[str, Any]:
        """What a command says; its signature is not looked at."""
        part = self.payload.split(b".")[1]
        claims: dict[str, Any] = json.loads(
            base64.urlsafe_b64decode(part + b"=" * (-len(part) % 4))
        )
        return claims

    @property
    def receipt(self) -> dict[str, Any]:
        """The data of a receipt."""
        data: dict[str, Any] = json.loads(self.payload)["data"]
        return data


def publish(packet: bytes) -> Publish | None:
    """The PUBLISH that a packet is."""
    if packet[0] >> 4 != 3 or not packet[0] & 0b110:  # PUBLISH, and not QoS 0
        return None
    found = _number(packet, 1)
    assert found is not None
    at = found[1]
    size = int.from_bytes(packet[at : at + 2])
    topic, at = packet[at + 2 : at + 2 + size].decode(), at + 2 + size
    number = int.from_bytes(packet[at : at + 2])
    properties = _number(packet, at + 2)
    assert properties is not None
    return Publish(topic=topic, number=number, payload=packet[sum(properties) :])


def claims_of(token: bytes) -> dict[str, Any]:
    """What a command says; its signature is not looked at."""
    part = token.split(b".")[1]
    claims: dict[str, Any] = json.loads(base64.urlsafe_b64decode(part + b"=" * (-len(part) % 4)))
    return claims


def tokens_in(passing: Passing) -> list[bytes]:
    """The commands in an answer of the HTTPS channel."""
    return re.findall(rb'"(eyJ[\w.-]+)"', passing.data) if passing.answer else []


def command_of(event_id: str) -> Wanted:
    """The command for an event, on either side of the broker."""

    def wanted(passing: Passing) -> bool:
        found = publish(passing.data)
        if found is None or not found.topic.endswith("/command"):
            return False
        return bool(found.claims["evt"] == event_id)

    return wanted


def receipt_of(event_id: str, state: str) -> Wanted:
    """One receipt about an event, on either side of the broker."""

    def wanted(passing: Passing) -> bool:
        found = publish(passing.data)
        if found is None or not found.topic.endswith("/receipt"):
            return False
        return (found.receipt["evt"], found.receipt["state"]) == (event_id, state)

    return wanted


def acknowledged(sent: Wanted) -> Wanted:
    """The PUBACK of the first message that is wanted."""
    place: list[tuple[int, bool, int]] = []

    def wanted(passing: Passing) -> bool:
        if not place:
            found = publish(passing.data)
            if found is not None and sent(passing):
                place.append((passing.connection, not passing.answer, found.number))
            return False
        number = int.from_bytes(passing.data[2:4])
        is_puback = passing.data[0] >> 4 == 4  # PUBACK
        return is_puback and (passing.connection, passing.answer, number) == place[0]

    return wanted


def committing(*words: bytes, told: bool) -> Wanted:
    """PostgreSQL's COMMIT of the transaction in which all these words were sent at once; or that it
    was done.
    """
    connections: set[int] = set()
    asked: set[int] = set()

    def wanted(passing: Passing) -> bool:
        number, data = passing.connection, passing.data
        if not passing.answer and all(word in data for word in words):
            connections.add(number)
        if not passing.answer and number in connections and b"COMMIT" in data:
            asked.add(number)
            return not told
        return told and passing.answer and number in asked and b"COMMIT" in data

    return wanted


def saying(words: bytes) -> Wanted:
    """What is sent with these words in it."""
    return lambda passing: not passing.answer and words in passing.data
