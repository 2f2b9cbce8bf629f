"""Cutting a socket that another thread waits on. It sends nothing to the other side."""

from __future__ import annotations

import socket
import sys
from contextlib import suppress


def cut(connection: socket.socket) -> None:
    """End all reading and writing at once, from any thread. It never raises and never waits."""
    # The base class's method: SSLSocket's own would take the TLS state from under its reader.
    with suppress(OSError, ValueError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)
    if sys.platform == "win32":
        # There, a shutdown does not wake a reader that is blocked already (seen with Wine 8);
        # closing does. Elsewhere only the reader may close, or it could read from whatever gets
        # the same descriptor next.
        with suppress(OSError, ValueError):
            socket.close(connection.detach())
