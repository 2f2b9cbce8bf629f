"""HTTP connections on which everything ends by one deadline; they never wait beyond it.

urllib3's own timeout is per read: a body that dripped held a call of one second for ten.
"""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPConnectionPool


class _Asking(threading.local):
    """By when the request that this thread is at must be over, in monotonic seconds."""

    deadline: float = 0.0


_asking = _Asking()


def allow(seconds: float) -> None:
    """Let all that this thread reads from now on be over after so many seconds."""
    _asking.deadline = time.monotonic() + seconds


def left() -> float:
    """Seconds until this thread's deadline; 0.0 where it has passed."""
    return max(0.0, _asking.deadline - time.monotonic())


class DeadlineSocket(socket.socket):
    """A socket whose reads raise `TimeoutError` at the reading thread's deadline."""

    def recv_into(self, *args: Any) -> int:
        """Read, as far as the deadline allows."""
        seconds = left()
        if not seconds:
            raise TimeoutError("the deadline has passed")
        self.settimeout(seconds)
        return super().recv_into(*args)


class DeadlineConnection(HTTPConnection):
    """A connection on such a socket."""

    def _new_conn(self) -> socket.socket:
        plain = super()._new_conn()
        timeout = plain.gettimeout()
        timely = DeadlineSocket(plain.family, plain.type, plain.proto, fileno=plain.detach())
        # Python would take the new object for a blocking one, while its descriptor is not.
        timely.settimeout(timeout)
        return timely


class DeadlinePool(HTTPConnectionPool):
    """A pool of such connections."""

    ConnectionCls = DeadlineConnection
