"""The far end of a delivery, as a program: it notes when each message came, and nothing more.

Run as `python -m tests.benchmarks.receiver mqtt PORT`, `… http` or `… hub`; its first line is the
port. A line `COUNT TEXT` on its standard input asks when COUNT further messages that hold TEXT had
come; the answer is two monotonic times, of the first and of the last. It ends with its input.

It does as little per message as it can, so that the senders are what is measured.
"""

import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from io import BufferedReader
from typing import Final

from support.amqp import links as amqp_links
from support.amqp.message import HubMessage
from support.amqp.server import EventHubServer

PATIENCE: Final = 120.0
_LOOK_SECONDS: Final = 0.003
_DATA: Final = b"\x00\x53\x75\xb0"
"""AMQP: a described value, the data section, a binary with a length of four bytes."""


class Arrivals:
    """What has come, and when."""

    def __init__(self) -> None:
        self._all: list[tuple[float, bytes]] = []
        self._passed = 0

    def note(self, message: bytes) -> None:
        """A message has just come."""
        self._all.append((time.monotonic(), message))

    def find(self, count: int, text: bytes) -> str:
        """When the first and the last of so many further messages that hold the text had come."""
        found: list[float] = []
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            for moment, message in self._all[self._passed :]:
                self._passed += 1
                if text in message:
                    found.append(moment)
                    if len(found) == count:
                        return f"{found[0]} {found[-1]}"
            # Looked for, not waited for: to be woken by each message would cost the network threads
            # more than the message does.
            time.sleep(_LOOK_SECONDS)
        return f"only {len(found)} of {count} came"


def mqtt(arrivals: Arrivals, port: int) -> int:
    """Subscribe to everything at a broker: MQTT 3.1.1, QoS 0, by hand."""
    connection = socket.create_connection(("127.0.0.1", port))
    connection.sendall(b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x00\x00\x00")
    connection.sendall(b"\x82\x06\x00\x01\x00\x01#\x00")
    stream = BufferedReader(socket.SocketIO(connection, "r"), 1 << 16)

    def read() -> None:
        while head := stream.read(1):
            packet = stream.read(_length(stream.read))
            if head[0] >> 4 == 3:
                arrivals.note(packet)

    assert stream.read(4)[:2] == b"\x20\x02"
    threading.Thread(target=read, daemon=True).start()
    return port


def _length(read: Callable[[int], bytes]) -> int:
    total = shift = 0
    while True:
        (digit,) = read(1)
        total |= (digit & 127) << shift
        if digit < 128:
            return total
        shift += 7


def http(arrivals: Arrivals) -> int:
    """Take every POST with 204."""
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        while True:
            peer, _ = listener.accept()
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=_posts, args=(arrivals, peer), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return _port(listener)


def _port(listener: socket.socket) -> int:
    port: int = listener.getsockname()[1]
    return port


def _posts(arrivals: Arrivals, peer: socket.socket) -> None:
    with suppress(ConnectionError):  # a sender that is ended may reset its connection
        _read_posts(arrivals, peer)


def _read_posts(arrivals: Arrivals, peer: socket.socket) -> None:
    data = b""
    while part := peer.recv(1 << 16):
        data += part
        head, found, body = data.partition(b"\r\n\r\n")
        if not found:
            continue
        lines = head.lower().split(b"\r\n")
        length = next(int(line[15:]) for line in lines if line.startswith(b"content-length:"))
        if len(body) >= length:
            arrivals.note(body)
            peer.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
            data = b""


class _Hub(EventHubServer):
    """The stand-in, without the work of keeping what it takes."""

    def __init__(self, arrivals: Arrivals) -> None:
        super().__init__()
        self._noted = arrivals

    def append(self, hub: str, messages: list[HubMessage]) -> None:
        del hub
        for message in messages:
            self._noted.note(message.body)


def _undecoded(payload: bytes, message_format: int) -> list[HubMessage]:
    """The events of a transfer, whole and not read: reading them costs more than sending them."""
    del message_format
    found, start = [], payload.find(_DATA)
    while start >= 0:
        begin = start + len(_DATA) + 4
        end = begin + int.from_bytes(payload[begin - 4 : begin], "big")
        found.append(HubMessage(body=payload[begin:end]))
        start = payload.find(_DATA, end)
    return found or [HubMessage(body=payload)]


def hub(arrivals: Arrivals) -> int:
    """Be the stand-in for Event Hubs."""
    amqp_links.unpack = _undecoded  # type: ignore[attr-defined]  # it imports it for itself
    server = _Hub(arrivals)
    server.start()
    return server.port


def main() -> None:
    """Receive, and answer questions until standard input ends."""
    arrivals = Arrivals()
    kinds = {"http": http, "hub": hub}
    kind, *port = sys.argv[1:]
    print(mqtt(arrivals, int(port[0])) if kind == "mqtt" else kinds[kind](arrivals), flush=True)
    for line in sys.stdin:
        count, _, text = line.rstrip("\n").partition(" ")
        print(arrivals.find(int(count), text.encode()), flush=True)


if __name__ == "__main__":
    main()
