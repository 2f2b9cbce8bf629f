"""The connection of a sink whose records wait: commands still come in over it."""

from __future__ import annotations

import random
from collections.abc import Callable

from bridge.clock import Clock
from sinks.backoff import seconds_to_next_try
from sinks.base import SinkError
from sinks.driver import SinkDriver


class OpenConnection:
    """Keeps the connection of a sink while its records wait for their next try. If it breaks, it is
    made again, with pauses of its own: however long a refused record waits, commands come in.
    """

    def __init__(
        self, driver: SinkDriver, clock: Clock, *, draw: Callable[[], float] = random.random
    ) -> None:
        self._driver = driver
        self._clock = clock
        self._draw = draw
        self._is_kept = False
        """Whether records were refused on a connection that was good."""
        self._failures = 0
        """How often it broke or could not be made since it was last good."""
        self._next_try_at = 0.0

    def note_failure(self, error: Exception, *, has_opened: bool) -> None:
        """Note why records wait now. `has_opened`: the sink was open when it happened. A connection
        that broke under a delivery is made again by the next delivery.
        """
        if self._driver.is_open:
            self._is_kept = True
        elif has_opened:
            self._is_kept = False
        elif self._is_kept:
            self._wait_after(error)

    def maintain(self) -> None:
        """Maintain the connection, or make it again if it is time. Never raises."""
        if not self._is_kept:
            return
        if self._driver.is_open:
            error = self._driver.maintain_failing()
            if error is None:
                self._failures = 0  # only now it is known to be good
        elif self._clock.monotonic() >= self._next_try_at:
            error = self._driver.open_failing()
        else:
            return
        if error is not None:
            self._wait_after(error)

    def _wait_after(self, error: Exception) -> None:
        self._failures += 1
        asked = error.retry_after if isinstance(error, SinkError) else None
        pause = seconds_to_next_try(self._failures, asked, stuck_threads=0, draw=self._draw)
        self._next_try_at = self._clock.monotonic() + pause
