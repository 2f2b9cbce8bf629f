"""The connection of a sink whose records wait: commands still come in over it."""

from __future__ import annotations

import random
from collections.abc import Callable

from bridge.clock import Clock
from sinks.backoff import MAX_RETRY_SECONDS, retry_delay
from sinks.driver import SinkDriver


class OpenConnection:
    """Maintains the connection of a sink that is open while its records wait for their next try. If
    it breaks, it is made again, with pauses of its own. A sink that is closed stays closed.
    """

    def __init__(
        self, driver: SinkDriver, clock: Clock, *, draw: Callable[[], float] = random.random
    ) -> None:
        self._driver = driver
        self._clock = clock
        self._draw = draw
        self._stays_open = driver.is_open
        self._failures = 0
        """How often it broke or could not be made in a row."""
        self._next_try_at = 0.0

    def maintain(self) -> None:
        """Maintain the connection, or make it again if it is time. Never raises."""
        if not self._stays_open:
            return
        if self._driver.is_open:
            self._driver.maintain_failing()
        elif self._clock.monotonic() >= self._next_try_at:
            self._driver.open_failing()
        if self._driver.is_open:
            self._failures = 0
        elif self._clock.monotonic() >= self._next_try_at:
            self._failures += 1
            pause = retry_delay(self._failures, cap=MAX_RETRY_SECONDS, draw=self._draw)
            self._next_try_at = self._clock.monotonic() + pause
