"""Cuts a connection: at once, from any thread, or when its time is up. It knows nothing of HTTP.

One thread watches over all requests of a client, one after the other: a thread for each request
would cost more than the request does where many wait to go out.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import inf
from typing import Any, Final

_LINGER_SECONDS: Final = 90.0
"""How long the watching thread stays without a request: longer than from one heartbeat to the
next, so that no record waits for a thread to start.
"""


class Cutter:
    """Cuts the connection in use."""

    def __init__(self) -> None:
        self.connection: Any = None
        self.why = ""
        """Why it was cut; empty while it was not."""
        self._changed = threading.Condition()
        # Guarded by `_changed`:
        self._due = inf
        self._words = ""
        self._used_at = -inf
        self._looks_at: float | None = None
        """When the watching thread looks next, at the latest; None while there is none."""

    def cut(self, why: str) -> None:
        """End all reading and writing at once. Harmless where nothing is connected."""
        self.why = why
        sock = getattr(self.connection, "sock", None)
        sock = getattr(sock, "socket", sock)  # within TLS to a proxy
        if isinstance(sock, socket.socket):
            with suppress(OSError):
                # Not SSLSocket's own method: it takes the TLS object away under its reader.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)

    @contextmanager
    def after(self, seconds: float) -> Iterator[None]:
        """Cut, should the block last longer than so many seconds; never after it has ended."""
        with self._changed:
            self._used_at = time.monotonic()
            self._due = self._used_at + seconds
            self._words = f"no answer within {seconds:g} s"
            if self._looks_at is None:
                self._looks_at = self._due
                threading.Thread(target=self._watch, name="http-cutter", daemon=True).start()
            elif self._due < self._looks_at:
                self._changed.notify()
        try:
            yield
        finally:
            with self._changed:
                self._due = inf

    def close(self) -> None:
        """Let the watching thread end; a later request starts another."""
        with self._changed:
            self._used_at = -inf
            self._changed.notify()

    def _watch(self) -> None:
        with self._changed:
            while True:
                now = time.monotonic()
                if self._due <= now:
                    self._due = inf
                    self.cut(self._words)
                idle_until = self._used_at + _LINGER_SECONDS
                self._looks_at = self._due if self._due < inf else idle_until
                if self._looks_at <= now:
                    self._looks_at = None
                    return
                self._changed.wait(self._looks_at - now)
