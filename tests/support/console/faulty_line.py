"""A TCP proxy before a server on loopback that can stop handing on, freeze, and cut.

It acknowledges whatever it does not hand on, so that neither end's TCP sees anything of it.
"""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress
from typing import Final, Self

_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER with no time: a close is a reset."""


class FaultyLine:
    """One port, one far end."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._changed = threading.Condition()
        self._silent = False
        self._frozen = False
        self._cut = False
        self._pairs: list[_Pair] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.mend()
        self._end_all()

    def forget(self) -> None:
        """Every connection of now becomes silent for ever; new ones work."""
        with self._changed:
            for pair in self._pairs:
                pair.silent = True

    def silence(self) -> None:
        """The same, and new connections are silent from their beginning."""
        self._silent = True
        self.forget()

    def freeze(self) -> None:
        """Nothing is handed on until `mend`; then everything is."""
        with self._changed:
            self._frozen = True

    def cut(self) -> None:
        """Reset every connection, and each new one."""
        self._cut = True
        self._end_all()

    def mend(self) -> None:
        """New connections work, and what was frozen goes on."""
        with self._changed:
            self._silent = self._frozen = self._cut = False
            self._changed.notify_all()

    def _end_all(self) -> None:
        with self._changed:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            pair.end()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            pair = _Pair(near, silent=self._silent)
            with self._changed:
                self._pairs.append(pair)
            if self._cut:
                self._end_all()
            else:
                threading.Thread(target=self._serve, args=(pair,), daemon=True).start()

    def _serve(self, pair: _Pair) -> None:
        with suppress(OSError):
            pair.far = socket.create_connection(("127.0.0.1", self._target), timeout=5)
            pair.far.settimeout(None)
            for each in (pair.near, pair.far):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            back = threading.Thread(
                target=self._pump, args=(pair.far, pair.near, pair), daemon=True
            )
            back.start()
            self._pump(pair.near, pair.far, pair)
            back.join()
        pair.end()

    def _pump(self, giving: socket.socket, taking: socket.socket, pair: _Pair) -> None:
        with suppress(OSError):
            while piece := giving.recv(65536):
                with self._changed:
                    self._changed.wait_for(lambda: not self._frozen)
                if not pair.silent:
                    taking.sendall(piece)
        if not pair.silent:  # the far end of a silent one hears nothing of its end either
            for each in (giving, taking):
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)


class _Pair:
    """Both ends of a connection."""

    def __init__(self, near: socket.socket, *, silent: bool) -> None:
        self.near = near
        self.far: socket.socket | None = None
        self.silent = silent

    def end(self) -> None:
        for each in (self.near, self.far):
            if each is None:
                continue
            with suppress(OSError):
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
