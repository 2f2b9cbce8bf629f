"""A TCP proxy before a far end on loopback that can spoil whatever passes, but changes no byte."""

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
    DRIP = "50 bytes a second"
    SLOW = "16 KiB a second"
    DELAY = "each piece is held back for 0.2 s"
    REFUSED = "connections are cut, and new ones refused"


_PAUSES = {Spoil.DRIP: 0.02, Spoil.SLOW: 1 / 16, Spoil.DELAY: 0.2}
"""Seconds before each piece."""
_PIECES = {Spoil.DRIP: 1, Spoil.SLOW: 1024}
"""Bytes of a piece, where it matters."""
_ANSWERS = (Spoil.RESET, Spoil.HALF_CLOSE)
"""What happens only to answers."""


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
                _Line(self, near, far).run()
        except OSError:
            pass
        with self._changed:
            self._near.discard(near)

    # What a line asks.

    @property
    def has_ended(self) -> bool:
        """Whether the proxy is gone."""
        return self._ended.is_set()

    def strike(self, *, answer: bool) -> Spoil:
        """What happens to a piece that has come."""
        with self._changed:
            fault = self._spoil
            if fault is Spoil.NOTHING or (fault in _ANSWERS and not answer):
                return Spoil.NOTHING
            self._struck += 1
            self._changed.notify_all()
            return fault

    @property
    def pace(self) -> tuple[int, float]:
        """Bytes of a piece, and seconds before each."""
        return _PIECES.get(self._spoil, _CHUNK), _PAUSES.get(self._spoil, 0.0)


class _Line:
    """One connection. One thread for both directions: a socket is closed by nobody else."""

    def __init__(self, proxy: FaultProxy, near: socket.socket, far: socket.socket) -> None:
        self._proxy = proxy
        self._near = near
        self._far = far
        self._waiting = {near: bytearray(), far: bytearray()}
        """What is still to go to each end. A line that is slow never fills a window: it is read."""
        self._due = {near: 0.0, far: 0.0}
        self._lost = False
        self._deaf = False
        for end in (near, far):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def run(self) -> None:
        """Until either end closes. Raises `OSError` where one breaks."""
        heard = [self._near, self._far]
        while not self._proxy.has_ended:
            for source in select.select(heard, [], [], self._patience())[0]:
                data = source.recv(_CHUNK)
                if data:
                    if not self._take(data, source):
                        return
                elif source is self._far and (self._lost or self._deaf):
                    heard = [self._near]  # nobody is to learn of it
                else:
                    self._hand_on(at_once=True)
                    return
            self._hand_on()

    def _patience(self) -> float:
        due = [self._due[end] for end, waiting in self._waiting.items() if waiting]
        return max(0.0, min(due) - time.monotonic()) if due else 5.0

    def _take(self, data: bytes, source: socket.socket) -> bool:
        """Queue what came, or lose it; whether the connection lives on."""
        fault = self._proxy.strike(answer=source is self._far)
        if fault is Spoil.RESET:
            # Linger of no time: closing sends RST instead of FIN.
            self._near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._near.close()
            return False
        if fault is Spoil.HALF_CLOSE and not self._deaf:
            self._near.shutdown(socket.SHUT_WR)
            self._deaf = True
        self._lost = self._lost or fault is Spoil.BLACK_HOLE
        if self._lost or (self._deaf and source is self._far):
            return True
        sink = self._far if source is self._near else self._near
        if not self._waiting[sink]:
            self._due[sink] = time.monotonic() + self._proxy.pace[1]
        self._waiting[sink] += data
        return True

    def _hand_on(self, *, at_once: bool = False) -> None:
        piece, pause = self._proxy.pace
        now = time.monotonic()
        for sink, waiting in self._waiting.items():
            if not waiting or (self._due[sink] > now and not at_once):
                continue
            data = bytes(waiting if at_once else waiting[:piece])
            del waiting[: len(data)]
            self._due[sink] = now + pause
            if sink is self._far:
                self._proxy.passed.append((now, data))
            sink.sendall(data)


def _bound(host: str, port: int) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind((host, port))
    return made
