"""The service manager's end of NOTIFY_SOCKET: what a service says, in the order of its saying."""

import socket
import time
from pathlib import Path
from typing import Self

from support.patience import PATIENCE


class NotifySocket:
    """A datagram socket in a directory; each datagram is a list of NAME=VALUE."""

    def __init__(self, directory: Path) -> None:
        self.address = str(directory / "notify")
        self.heard: list[list[str]] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)

    def __enter__(self) -> Self:
        self._socket.bind(self.address)
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def hear(self, line: str, *, after: int = 0) -> int:
        """Wait for a datagram with this line, from the given place on; its place.

        Raises `AssertionError` with all that was said instead.
        """
        deadline = time.monotonic() + PATIENCE
        place = after
        while True:
            while place < len(self.heard):
                if line in self.heard[place]:
                    return place
                place += 1
            self._socket.settimeout(max(0.01, deadline - time.monotonic()))
            try:
                self.heard.append(self._socket.recv(4096).decode().split("\n"))
            except TimeoutError:
                raise AssertionError(f"{line} was not said, but {self.heard[after:]}") from None

    def rest(self) -> list[list[str]]:
        """All that was said, what nobody has heard yet included."""
        self._socket.setblocking(False)
        while True:
            try:
                self.heard.append(self._socket.recv(4096).decode().split("\n"))
            except BlockingIOError:
                return self.heard
