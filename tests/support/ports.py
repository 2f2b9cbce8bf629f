"""Ports of loopback for servers that a test starts later, or starts again on the same port.

A port that the system gives for the asking is one of those that it also gives to outgoing
connections: until the server listens, any connection of any test may take it, and one to the
port itself may be answered by itself. These lie below that range, and each worker has its own.
"""

import os
import re
import socket
from collections.abc import Iterator
from contextlib import closing

_FIRST, _PER_WORKER, _WORKERS = 11_000, 1_000, 16
"""11000 to 26999: Linux connects from 32768 upwards, Windows from 49152; browsers refuse 10080."""


def _ports() -> Iterator[int]:
    worker = re.sub(r"\D", "", os.environ.get("PYTEST_XDIST_WORKER", "")) or "0"
    first = _FIRST + int(worker) % _WORKERS * _PER_WORKER
    number = os.getpid()  # two runs at a time begin at different places
    while True:
        yield first + number % _PER_WORKER
        number += 1


_next = _ports()


def free_port() -> int:
    """One that this process has not given for long. Raises `RuntimeError` if all are in use."""
    for port in (next(_next) for _ in range(_PER_WORKER)):
        with closing(socket.socket()) as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError("every port for tests is in use")
