"""Which published message each acknowledgement of the broker is for."""

from __future__ import annotations

import threading
from collections.abc import Callable

Done = Callable[[str | None], None]


class Acknowledgements:
    """By packet id. An acknowledgement may come before its message is expected here."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._expected: dict[int, Done] = {}
        self._early: dict[int, str | None] = {}

    def expect(self, mid: int, done: Done) -> None:
        """Call `done` once the message of that id is acknowledged; at once if it is already."""
        with self._lock:
            if mid not in self._early:
                self._expected[mid] = done
                return
            why = self._early.pop(mid)
        done(why)

    def came(self, mid: int, why: str | None) -> None:
        """The broker has taken the message (None) or refused it (why)."""
        with self._lock:
            done = self._expected.pop(mid, None)
            if done is None:
                self._early[mid] = why
                return
        done(why)

    def forget(self) -> None:
        """A new connection begins, with packet ids of its own."""
        with self._lock:
            self._expected.clear()
            self._early.clear()
