"""The connection of one request, as answers and faults use it; it knows nothing of HTTP."""

from __future__ import annotations

import os
import socket
import struct
import threading

_POLL = 0.05
"""Seconds between two looks at whether the client is still there."""


class HungUpError(Exception):
    """The client has gone, or the simulator stops: nothing more can be said."""


class Link:
    """The connection of one request, as answers and faults use it."""

    def __init__(self, connection: socket.socket, stopping: threading.Event) -> None:
        self._connection = connection
        self._stopping = stopping
        self.closing = False

    def pause(self, seconds: float) -> None:
        """Let seconds pass. Raises `HungUpError` as soon as the client has gone or we stop."""
        left = seconds
        while not self._stopping.wait(min(left, _POLL)) and self._client_is_there():
            left -= _POLL
            if left <= 0:
                return
        raise HungUpError

    def write(self, data: bytes) -> None:
        """Send bytes in one call, so that Nagle's algorithm has nothing to wait for."""
        self._connection.sendall(data)

    def hang_up(self) -> None:
        """Close the connection after this request."""
        self.closing = True

    def reset(self) -> None:
        """Close it now, with a reset in place of an end."""
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
