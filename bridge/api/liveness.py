"""Decides whether the poll loop is alive, which a restart can fix; never whether IMDS or a sink
answers.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final

from bridge.clock import Clock
from bridge.imds.events_timeout import EventsTimeout

SLACK_SECONDS: Final = 10.0
"""How long a poll may take in addition to its wait and its request: a slow disk, a busy machine."""


class Liveness:
    """Counts the finished rounds of the poll loop, failed ones included. Any thread may read it."""

    def __init__(
        self,
        clock: Clock,
        *,
        interval: float,
        timeout: float,
        first_timeout: float,
        on_beat: Callable[[float], None] = lambda _: None,
    ) -> None:
        """All in seconds: `interval` from poll to poll, `timeout` for a request, `first_timeout`
        for one that may turn the service on. `on_beat` is called after each finished round,
        with the allowance.
        """
        self._clock = clock
        self._on_beat = on_beat
        self._rest = max(interval + SLACK_SECONDS, 3 * interval)
        self._events_timeout = EventsTimeout(clock, usual=timeout, first=first_timeout)
        self._beat_at = clock.monotonic()
        self.attempted_at: datetime | None = None
        """When a poll last ended, by the wall clock; None before the first."""

    @property
    def allowance(self) -> float:
        """Return how many seconds may pass from one finished poll to the next before the loop
        counts as hanging.
        """
        return self._rest + self._events_timeout.seconds

    def beat(self, *, was_sent: bool = True, answered: bool = False) -> None:
        """Note that a poll has ended. `was_sent`: it sent a request; `answered`: IMDS gave a
        document.
        """
        if answered:
            self._events_timeout.note_document()
        self._beat_at = self._clock.monotonic()
        if was_sent:
            self.attempted_at = self._clock.now()
        self._on_beat(self.allowance)

    def is_alive(self) -> bool:
        """Check whether a poll has ended recently enough."""
        return self._clock.monotonic() - self._beat_at <= self.allowance
