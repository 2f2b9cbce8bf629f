"""One request and its answer on a connection, as the simulator and its faults use them."""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Callable

from bridge.simulator.answers import SimulatedAnswer
from bridge.simulator.approvals import Post

_POLL = 0.05
"""Seconds between two checks that the client is still connected."""


class HungUpError(Exception):
    """The client has gone, or the simulator stops: no more bytes can be sent."""


class SimulatedExchange:
    """The healthy answer to one request, and its connection, which a fault may spoil."""

    def __init__(
        self,
        connection: socket.socket,
        stopping: threading.Event,
        *,
        answer: Callable[[], SimulatedAnswer],
        on_served: Callable[[int], None],
        post: Post | None,
    ) -> None:
        self.answer = answer
        """Return the answer of the healthy service, and have its effects."""
        self.closing = False
        """Whether the connection ends with this request."""
        self._connection = connection
        self._stopping = stopping
        self._on_served = on_served
        self._post = post

    def pause(self, seconds: float) -> None:
        """Wait for so many seconds."""
        left = seconds
        while not self._stopping.wait(min(left, _POLL)) and self._client_is_there():
            left -= _POLL
            if left <= 0:
                return
        raise HungUpError

    def write(self, data: bytes) -> None:
        """Send bytes in one call, so that Nagle's algorithm has nothing to wait for."""
        self._connection.sendall(data)

    def mark(self, answer: SimulatedAnswer) -> None:
        """Note that the answer reaches the client: its last byte is about to be sent."""
        if answer.document is not None:
            self._on_served(answer.document)
        if self._post is not None:
            self._post.status = answer.status

    def send(self, answer: SimulatedAnswer) -> None:
        """Send an answer as a whole, in one packet if it fits."""
        self.mark(answer)
        self.write(answer.head() + answer.body)

    def hang_up(self) -> None:
        """Close the connection after this request."""
        self.closing = True

    def reset(self) -> None:
        """Break the connection now: the client sees a reset, not an end."""
        self.closing = True
        layout = "hh" if os.name == "nt" else "ii"
        self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack(layout, 1, 0))
        # Only the last close of the descriptor resets, and the handler's files hold it too.
        socket.close(self._connection.detach())

    def _client_is_there(self) -> bool:
        self._connection.settimeout(0)
        try:
            return self._connection.recv(1, socket.MSG_PEEK) != b""
        except BlockingIOError:
            return True
        finally:
            self._connection.settimeout(None)
