"""Messages to the service manager. The polls feed the watchdog, never a timer."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Final

MARGIN_SECONDS: Final = 30.0
"""Azure moves a VM with a pause of up to 30 s without polls, which must not cause a restart."""
NOTIFY_SECONDS: Final = 2.0
"""How long a message waits for a service manager that does not respond."""
_MICROSECONDS: Final = 1_000_000

Notify = Callable[[str, float], bool]
"""Sends lines to the service manager within so many seconds; returns whether it has them."""


class Watchdog:
    """Sends messages to systemd, from any thread; `limit` is WatchdogSec= in seconds, or None."""

    def __init__(self, notify: Notify, *, limit: float | None) -> None:
        self._notify = notify
        self._limit = limit
        self._watchdog_microseconds: int | None = None
        """The limit that systemd knows, in microseconds."""
        self._status: str | None = None
        self._lock = threading.Lock()

    def ready(self, status: str, *, allowance: float) -> None:
        """Report that the bridge is up. The first feeding comes within `allowance` seconds."""
        with self._lock:
            self._status = status
            self._watch(allowance, "READY=1", _status_line(status), seconds=NOTIFY_SECONDS)

    def feed(self, allowance: float) -> None:
        """Report that a poll has ended, with any result; the next ends within `allowance` seconds.
        A manager that does not respond delays no poll: the next one feeds again.
        """
        with self._lock:
            self._watch(allowance, seconds=0.0)

    def status(self, text: str) -> None:
        """Report in one line what the bridge does; `systemctl status` shows it."""
        with self._lock:
            if text != self._status:
                self._status = text
                self._send(_status_line(text))

    def stopping(self) -> None:
        """Report that the bridge is stopping for good."""
        with self._lock:
            self._send("STOPPING=1")

    def _watch(self, allowance: float, *lines: str, seconds: float) -> None:
        """Feed the watchdog, and widen its limit if one poll may take longer."""
        if self._limit is None:
            self._send(*lines, seconds=seconds)
            return
        limit = max(self._limit, allowance + MARGIN_SECONDS)
        microseconds = math.ceil(limit * _MICROSECONDS)
        if microseconds == self._watchdog_microseconds:
            self._send(*lines, "WATCHDOG=1", seconds=seconds)
            return
        # sd_notify(3): this replaces WatchdogSec= until the service ends, so a first answer of IMDS
        # that takes two minutes is waited for, and only that one.
        widened = f"WATCHDOG_USEC={microseconds}"
        if self._send(*lines, "WATCHDOG=1", widened, seconds=seconds):
            self._watchdog_microseconds = microseconds

    def _send(self, *lines: str, seconds: float = NOTIFY_SECONDS) -> bool:
        return bool(lines) and self._notify("\n".join(lines), seconds)


def _status_line(text: str) -> str:
    return f"STATUS={' '.join(text.split())}"  # a line end would begin another field
