"""Addresses of a host, some of them dead."""

import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import pytest

Where = tuple[str, int]


class Addresses:
    """Addresses of one host on loopback: some that never answer, one that refuses, one that takes
    connections.
    """

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    def live(self) -> Where:
        """It accepts connections."""
        listener = self._stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        return "127.0.0.1", listener.getsockname()[1]

    def closed(self) -> Where:
        """It refuses them."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            return "127.0.0.1", listener.getsockname()[1]

    def dead(self) -> Where:
        """It answers nothing: its queue is full, and nobody takes from it."""
        listener = self._stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        where: Where = listener.getsockname()
        for _ in range(8):
            filler = self._stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(where)
        return where

    @staticmethod
    def of(
        monkeypatch: pytest.MonkeyPatch,
        *all_of_them: Where,
        name: str = "receiver.example",
        after: float = 0.0,
    ) -> None:
        """Let the name stand for these addresses, in this order; the name server answers `after` so
        many seconds.
        """
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", where) for where in all_of_them]
        original = socket.getaddrinfo

        def resolved(host: Any, *others: Any, **named: Any) -> Sequence[Any]:
            if host != name:
                return original(host, *others, **named)
            time.sleep(after)
            return list(found)

        monkeypatch.setattr(socket, "getaddrinfo", resolved)
