"""The server of a run: the socket that it accepts connections on, and its end at a signal."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from console.config.settings import ConsoleSettings
from sinks.shared.errors import ConfigurationError


def listener(settings: ConsoleSettings) -> socket.socket:
    """Return the socket that the server accepts connections on. Raises `ConfigurationError` if the
    address cannot be used.
    """
    host, port = settings.address
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        raise ConfigurationError(
            f"SEB_CONSOLE_LISTEN: {settings.listen} cannot be used ({error.strerror}); stop what "
            "listens there, or choose another port"
        ) from None


@contextmanager
def ended_by_signals(server: uvicorn.Server) -> Iterator[None]:
    """Make the signals that end a process end only the server.

    uvicorn handles them while it serves, and raises them again at its end for the previous handler.
    That is this one, so the run ends in order and with its own exit code.
    """

    def end(_number: int, _frame: object) -> None:
        server.should_exit = True

    numbers = [getattr(signal, name, None) for name in ("SIGTERM", "SIGINT", "SIGBREAK")]
    before = {each: signal.signal(each, end) for each in numbers if each}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
