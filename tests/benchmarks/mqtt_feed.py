"""Publishes the messages of a file at QoS 1, by hand, so that the publisher costs little.

Run as `python -m tests.benchmarks.mqtt_feed PORT FILE RATE`; a line of the file is a topic, a
space and a payload, and RATE is messages a second, or 0 for as fast as the broker takes them.
Where a payload has the time `WHEN_SENT`, it gets the time at which it is sent.
"""

import os
import socket
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from wire.moment import rfc3339

WHEN_SENT: Final = datetime(2000, 1, 1, tzinfo=UTC)
_IN_FLIGHT: Final = 100
_PUBACK: Final = 4
"""Bytes of an acknowledgement."""
_CONNECT: Final = b"\x10\x10\x00\x04MQTT\x04\x02\x00\x3c\x00\x04"
"""MQTT 3.1.1 with a clean session; the client's name of four letters follows."""


def packet(number: int, line: bytes) -> bytes:
    """The PUBLISH of a line."""
    topic, _, payload = line.partition(b" ")
    rest = len(topic).to_bytes(2, "big") + topic + (number % 65_000 + 1).to_bytes(2, "big")
    rest += payload
    length, left = b"", len(rest)
    while left or not length:
        left, digit = divmod(left, 128)
        length += bytes([digit | (128 if left else 0)])
    return b"\x32" + length + rest


def publish(port: int, lines: Sequence[bytes], rate: float) -> None:
    """Return once the broker has acknowledged every one."""
    packets = [packet(number, line) for number, line in enumerate(lines)]
    when_sent = rfc3339(WHEN_SENT).encode()
    connection = socket.create_connection(("127.0.0.1", port), timeout=60)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(_CONNECT + os.urandom(2).hex().encode())
    connection.recv(4)
    sent = acknowledged = 0
    begun = time.monotonic()
    while acknowledged < len(packets) * _PUBACK:
        due = len(packets)
        if rate:
            due = min(due, 1 + int((time.monotonic() - begun) * rate))
        until = min(due, acknowledged // _PUBACK + _IN_FLIGHT)
        if sent < until:
            now = rfc3339(datetime.now(UTC)).encode()
            connection.sendall(b"".join(packets[sent:until]).replace(when_sent, now))
            sent = until
        if acknowledged < sent * _PUBACK:
            acknowledged += len(connection.recv(65_536))
        elif sent < len(packets):
            time.sleep(max(0.0, sent / rate - (time.monotonic() - begun)))
    connection.close()


if __name__ == "__main__":
    publish(int(sys.argv[1]), Path(sys.argv[2]).read_bytes().splitlines(), float(sys.argv[3]))
