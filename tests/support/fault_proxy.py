"""A TCP proxy before a far end on loopback that can spoil whatever passes.

It never hands on a byte that it swallowed, and never changes one.
"""

from __future__ import annotations

import select
import socket
import struct
import threading
import time
from contextlib import suppress
from enum import StrEnum
from typing import Self

_CHUNK = 65536


class Spoil(StrEnum):
    """What happens to connections, old and new, from now on."""

    NOTHING = "everything passes"
    BLACK_HOLE = "connections are taken, and what is said on them is lost; healing saves new ones"
    RESET = "what is asked passes, and the answer is a reset"
    HALF_CLOSE = "what is asked passes, and instead of an answer the far side's end is closed"
    DRIP = "a byte at a time, each after a while"
    DELAY = "each piece is held back for a while"
    REFUSED = "connections are cut, and new ones refused"


_PAUSES = {Spoil.DRIP: 0.02, Spoil.DELAY: 0.2}
"""Seconds before each byte, before each piece."""


class FaultProxy:
    """One port, one far end (which may change), one fault at a time; a context manager."""

    def __init__(self, target: int, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self.target = target
        self.host = host
        self.passed: list[tuple[float, bytes]] = []
        """What went out to the far end, each piece with its moment (monotonic seconds)."""
        self._spoil = Spoil.NOTHING
        self._struck = 0
        self._changed = threading.Condition()
        self._ended = threading.Event()
        self._near: set[socket.socket] = set()
        # Bound, never listening: keeps the port ours while it refuses.
        self._place = _bound(host, port)
        self.port: int = self._place.getsockname()[1]
        self._listener: socket.socket | None = None

    def __enter__(self) -> Self:
        self._listen()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._refuse()
        self._place.close()

    def spoil(self, fault: Spoil) -> None:
        """From now on, until told otherwise, this."""
        with self._changed:
            self._spoil, self._struck = fault, 0
        if fault is Spoil.REFUSED:
            self._refuse()
        elif self._listener is None:
            self._listen()

    def heal(self) -> None:
        """Spoil nothing more; a connection that lost something stays dead until its owner ends it,
        as one does whose state a firewall has forgotten.
        """
        self.spoil(Spoil.NOTHING)

    def wait_for_strike(self, timeout: float = 30.0) -> bool:
        """Wait until the fault has hit somebody; a refusal hits unseen, and counts at once."""
        with self._changed:
            return self._changed.wait_for(
                lambda: self._struck > 0 or self._spoil is Spoil.REFUSED, timeout
            )

    # Coming and going.

    def _listen(self) -> None:
        self._listener = listener = _bound(self.host, self.port)
        listener.listen(64)
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def _refuse(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        with self._changed:
            for near in self._near:
                with suppress(OSError):
                    near.shutdown(socket.SHUT_RDWR)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        with self._changed:
            self._near.add(near)
        try:
            with near, socket.create_connection(("127.0.0.1", self.target), timeout=5) as far:
                far.settimeout(None)
                for end in (near, far):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._pass(near, far)
        except OSError:
            pass
        with self._changed:
            self._near.discard(near)

    # One thread for both directions: a socket is closed by nobody else.

    def _pass(self, near: socket.socket, far: socket.socket) -> None:
        lost, deaf = False, False
        heard = [near, far]
        while not self._ended.is_set():
            for source in select.select(heard, [], [], 5.0)[0]:
                data = source.recv(1 if self._spoil is Spoil.DRIP else _CHUNK)
                if not data and source is far and (lost or deaf):
                    heard = [near]  # nobody is to learn of it
                    continue
                if not data:
                    return
                fault = self._strike(answer=source is far)
                lost = lost or fault is Spoil.BLACK_HOLE
                if fault is Spoil.RESET:
                    _reset(near)
                    return
                if fault is Spoil.HALF_CLOSE and not deaf:
                    near.shutdown(socket.SHUT_WR)
                    deaf = True
                if not (lost or (deaf and source is far)):
                    self._hand_on(data, far if source is near else near, out=source is near)

    def _strike(self, *, answer: bool) -> Spoil:
        """What happens to this piece."""
        with self._changed:
            fault = self._spoil
            if fault is Spoil.NOTHING or (fault in (Spoil.RESET, Spoil.HALF_CLOSE) and not answer):
                return Spoil.NOTHING
            self._struck += 1
            self._changed.notify_all()
        self._ended.wait(_PAUSES.get(fault, 0.0))
        return fault

    def _hand_on(self, data: bytes, sink: socket.socket, *, out: bool) -> None:
        if out:
            self.passed.append((time.monotonic(), data))
        sink.sendall(data)


def _bound(host: str, port: int) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind((host, port))
    return made


def _reset(near: socket.socket) -> None:
    # Linger of no time: closing sends RST instead of FIN.
    near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    near.close()
