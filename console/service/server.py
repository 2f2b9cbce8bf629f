"""The server of a run: the socket that it accepts on, and its end at a signal."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from console.config.settings import Settings
from console.errors import ConfigurationError


def listener(settings: Settings) -> socket.socket:
    """The socket that the server accepts on. Raises `ConfigurationError` if it cannot be had."""
    host, port = settings.address
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        raise ConfigurationError(
            f"SEB_CONSOLE_LISTEN: {settings.listen} cannot be used ({error.strerror}); stop what "
            "listens there, or choose another port"
        ) from None


class Server(uvicorn.Server):
    """Ends in good order at a signal; uvicorn's own raises the signal again afterwards."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Listen for the signals that end a process, Windows' Ctrl-Break included."""
        numbers = [getattr(signal, name, None) for name in ("SIGTERM", "SIGINT", "SIGBREAK")]
        before = {each: signal.signal(each, self.handle_exit) for each in numbers if each}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
