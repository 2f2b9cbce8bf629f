"""A TCP gate before a far end on loopback, which can be shut: connections are taken and nothing
is ever said on them. Opening it again cuts those that were held.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Self

_CHUNK = 65536


class TcpGate:
    """Passes everything on to a port of this machine, while it is open."""

    host = "127.0.0.1"

    def __init__(self, target: int) -> None:
        self.target = target
        self._listener = socket.create_server((self.host, 0))
        self.port: int = self._listener.getsockname()[1]
        self._changed = threading.Condition()
        self._open = True
        self._sockets: set[socket.socket] = set()
        self.held = 0
        """How many connections came, or had something to say, while the gate was shut."""

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, name="gate", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.open()

    def shut(self) -> None:
        """From now on nothing passes, on connections old and new; none is closed."""
        with self._changed:
            self._open = False
            self.held = 0

    def open(self) -> None:
        """Let everything pass again; connections that were held are cut."""
        with self._changed:
            self._open = True
            for each in self._sockets:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
            self._changed.notify_all()

    def wait_for_held(self, timeout: float = 10.0) -> bool:
        """Wait until somebody waits for an answer at the shut gate."""
        with self._changed:
            return self._changed.wait_for(lambda: self.held > 0, timeout)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        with near:
            self._note(near)
            try:
                self._hold()
                with socket.create_connection((self.host, self.target), timeout=5) as far:
                    far.settimeout(None)
                    self._note(far)
                    back = threading.Thread(target=self._pass, args=(far, near), daemon=True)
                    back.start()
                    self._pass(near, far)
                    back.join()
                    self._forget(far)
            except OSError:
                pass
            self._forget(near)

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(_CHUNK):
                self._hold()
                sink.sendall(data)
        for each in (source, sink):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _hold(self) -> None:
        with self._changed:
            if not self._open:
                self.held += 1
                self._changed.notify_all()
            self._changed.wait_for(lambda: self._open)

    def _note(self, each: socket.socket) -> None:
        with self._changed:
            self._sockets.add(each)

    def _forget(self, each: socket.socket) -> None:
        with self._changed:
            self._sockets.discard(each)
