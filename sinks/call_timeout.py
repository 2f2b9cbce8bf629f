"""Calls into a sink's code, each with a deadline; a call that misses it is abandoned. The bridge
and the console make their calls with it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class AbandonedError(Exception):
    """The watchdog has abandoned these calls: they have no effect any more."""


class SinkBugError(Exception):
    """The sink breaks its contract."""


class CallTimeout:
    """Makes the calls of one thread, while another one watches. A call ends in time and counts, or
    it is abandoned and does not: one lock decides, so that no two threads act on the same delivery.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        """`monotonic` returns the seconds since some moment, and never goes back."""
        self.limit = 0.0
        """Seconds that the latest call may take."""
        self._monotonic = monotonic
        self._overdue_at: float | None = None
        self._lock = threading.Lock()
        self._abandoned = threading.Event()

    @property
    def is_abandoned(self) -> bool:
        """Whether the results of calls are ignored from now on."""
        return self._abandoned.is_set()

    def call(self, work: Callable[[], None], *, limit: float) -> None:
        """Do the work within `limit` seconds. Raises what the work raises, or `AbandonedError`."""
        with self._lock:
            if self.is_abandoned:
                raise AbandonedError
            self.limit = limit
            self._overdue_at = self._monotonic() + limit
        try:
            work()
        except SystemExit as error:
            raise SinkBugError("it tried to end the process") from error
        finally:
            with self._lock:
                self._overdue_at = None
                if self.is_abandoned:
                    raise AbandonedError from None

    def abandon(self) -> None:
        """Ignore the results of all calls from now on."""
        with self._lock:
            self._abandoned.set()

    def abandon_if_overdue(self) -> bool:
        """Abandon the call if it has exceeded its limit; return whether it has."""
        with self._lock:
            overdue = self._overdue_at is not None and self._monotonic() > self._overdue_at
            if overdue:
                self._abandoned.set()
            return overdue
