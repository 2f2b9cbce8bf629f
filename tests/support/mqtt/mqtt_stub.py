"""A broker that misbehaves on purpose: what Mosquitto never does, on a free loopback port.

It speaks as much MQTT as one publishing client needs. A script says how it answers: the bytes of
the CONNACK, and to each PUBLISH a reason code, silence, or the end of the connection.
"""

import socket
import struct
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Self

CONNECT, CONNACK, PUBLISH, PUBACK, DISCONNECT = 0x10, 0x20, 0x30, 0x40, 0xE0
SUBSCRIBE, SUBACK = 0x80, 0x90
SILENCE, HANG_UP = -1, -2
DISCONNECT_WITH = 0x1000

# What to do with the nth PUBLISH (from 0) and its payload: a reason code for the PUBACK, SILENCE,
# HANG_UP, or DISCONNECT_WITH plus a reason code.
Script = Callable[[int, bytes], int]


def packet(kind: int, body: bytes) -> bytes:
    """A control packet of at most 127 bytes."""
    return bytes([kind, len(body)]) + body


def connack(code: int = 0, properties: bytes = b"") -> bytes:
    """A CONNACK of MQTT 5."""
    return packet(CONNACK, bytes([0, code, len(properties)]) + properties)


class MqttStub:
    """Serves one connection after the other until the end of the `with` block."""

    host = "127.0.0.1"

    def __init__(
        self,
        *,
        greeting: bytes | None = None,
        answer: Script = lambda *_: 0,
        together: int = 1,
        granted: int = 1,
    ) -> None:
        """`greeting`: sent on CONNECT (empty: nothing). `together`: answer so many at once.
        `granted`: the reason code of every SUBACK, or SILENCE.
        """
        self._granted = granted
        self._greeting = connack() if greeting is None else greeting
        self._answer = answer
        self.together = together
        self._listener = socket.create_server((self.host, 0))
        self._connection: socket.socket | None = None
        self._connections: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self.port: int = self._listener.getsockname()[1]
        self.most_in_flight = 0
        self.published = 0
        self._hung_up = False

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._thread.join(5)

    def send(self, content: bytes) -> None:
        """Send something unasked, on the connection that is there."""
        if self._connection is None:
            raise RuntimeError("nobody is connected")
        self._connection.sendall(content)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            # Small answers one after the other would wait for each other's acknowledgement.
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._connection, self._hung_up = connection, False
            self._connections.append(connection)
            threading.Thread(target=self._serve_one, args=(connection,), daemon=True).start()

    def _serve_one(self, connection: socket.socket) -> None:
        with connection, suppress(OSError, EOFError):
            self._talk(connection)

    def _talk(self, connection: socket.socket) -> None:
        waiting: list[tuple[int, bytes]] = []
        stream = connection.makefile("rb")
        with stream:
            while True:
                kind, body = _read(stream.read)
                if kind & 0xF0 == CONNECT and self._greeting:
                    connection.sendall(self._greeting)
                if kind & 0xF0 == SUBSCRIBE and self._granted != SILENCE:
                    connection.sendall(packet(SUBACK, body[:2] + bytes([0, self._granted])))
                if kind & 0xF0 == PUBLISH and not self._hung_up:
                    waiting.append(_publish(body))
                    self.most_in_flight = max(self.most_in_flight, len(waiting))
                    # The first message of a connection is the sink's own status.
                    if len(waiting) >= self.together or self.published == 0:
                        self._settle(connection, waiting)
                        waiting = []

    def _settle(self, connection: socket.socket, messages: Sequence[tuple[int, bytes]]) -> None:
        for mid, payload in messages:
            code = self._answer(self.published, payload)
            self.published += 1
            if code >= DISCONNECT_WITH:
                connection.sendall(packet(DISCONNECT, bytes([code - DISCONNECT_WITH, 0])))
                code = HANG_UP
            if code == HANG_UP:
                # In order: a reset would also take away what we have sent.
                connection.shutdown(socket.SHUT_WR)
                self._hung_up = True
                return
            if code != SILENCE:
                connection.sendall(packet(PUBACK, struct.pack("!HBB", mid, code, 0)))


def _publish(body: bytes) -> tuple[int, bytes]:
    """The packet id and payload of a PUBLISH at QoS 1, its properties below 128 bytes."""
    start = 2 + struct.unpack_from("!H", body)[0]
    mid: int = struct.unpack_from("!H", body, start)[0]
    return mid, body[start + 3 + body[start + 2] :]


def _read(read: Callable[[int], bytes]) -> tuple[int, bytes]:
    head = read(1)
    if not head:
        raise EOFError
    length, shift = 0, 0
    while True:
        byte = read(1)[0]
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return head[0], read(length)
