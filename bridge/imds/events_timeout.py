"""The time limit of a request for events, which is longer while the service may be off."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from bridge.clock import Clock, SteadyTime

ON_FOR: Final = timedelta(hours=24)
"""How long Azure keeps the service on after the last request."""


class EventsTimeout:
    """`seconds` is `usual` within a day after the last document, and `first` before and after that:
    the request then turns the service on, which can take two minutes. Any thread may use it.
    """

    def __init__(
        self, clock: Clock, *, usual: float, first: float, answered_at: datetime | None = None
    ) -> None:
        """`answered_at`: when an earlier run had its last document, by the wall clock."""
        self._usual = usual
        self._first = first
        # Suspensions count: a VM may hibernate for days.
        self._time = SteadyTime(clock)
        self._answered_at = answered_at

    @property
    def seconds(self) -> float:
        """How long a request may take now."""
        is_on = self._answered_at is not None and abs(self._time.now() - self._answered_at) < ON_FOR
        return self._usual if is_on else self._first

    def note_document(self) -> None:
        """Note that IMDS has just given a document."""
        self._answered_at = self._time.now()
