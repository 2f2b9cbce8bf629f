"""Things to do a little later, all of which can be called off at once."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Timers:
    """A set of timers. After `cancel` nothing starts any more, and nothing is still running."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._timers: set[threading.Timer] = set()
        self._canceled = False

    def after(self, seconds: float, action: Callable[[], None]) -> threading.Timer:
        """Do it in so many seconds, in a thread of its own."""

        def act() -> None:
            try:
                action()
            finally:
                with self._lock:
                    self._timers.discard(timer)

        timer = threading.Timer(seconds, act)
        timer.daemon = True
        timer.name = "imds-timer"
        with self._lock:
            if not self._canceled:
                self._timers.add(timer)
                timer.start()
        return timer

    def cancel(self) -> None:
        """Call everything off, and wait for what is running."""
        with self._lock:
            self._canceled = True
            timers = list(self._timers)
            self._timers.clear()
        for timer in timers:
            timer.cancel()
        for timer in timers:
            timer.join()
