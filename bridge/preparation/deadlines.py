"""When a VM is to prepare for an event although nobody asks for it."""

from __future__ import annotations

from bridge.events.state import CurrentState
from bridge.events.tracked import TrackedEvent
from bridge.preparation.open_preparations import OpenPreparations
from wire.preparation import NONE


class Deadlines:
    """The deadlines of the events that are known now: `lead` seconds before their notBefore."""

    def __init__(self, preparations: OpenPreparations, current: CurrentState, lead: float) -> None:
        self._preparations = preparations
        self._current = current
        self._lead = lead

    def seconds_to_next(self) -> float | None:
        """Return the seconds until the next deadline; None if no event has one."""
        waits = (
            self._seconds_left(tracked)
            for tracked in self._current.events.values()
            if self._is_ahead(tracked)
        )
        return min((seconds for seconds in waits if seconds is not None), default=None)

    def is_due(self, tracked: TrackedEvent) -> bool:
        """Check whether the deadline of this state of the event has come, and it may still help to
        prepare.
        """
        seconds = self._seconds_left(tracked)
        if seconds is None or seconds > 0:
            return False
        if tracked.shown and self._current.is_current():
            return True
        # Azure does not wait for an IMDS that gives no document: what was seen last counts, until
        # the event may have begun. One that is over by now costs a recovery.
        return self._is_ahead(tracked)

    def _is_ahead(self, tracked: TrackedEvent) -> bool:
        """Check whether the event's time is known and has not come yet."""
        not_before = tracked.event.not_before
        return not_before is not None and self._current.time_of(tracked) < not_before

    def _seconds_left(self, tracked: TrackedEvent) -> float | None:
        """Return the seconds until the deadline at which this state of an event is prepared for;
        None without a deadline.
        """
        is_coming = tracked.pending and tracked.event.event_status == "Scheduled"
        if not is_coming or self._preparations.state_of(tracked) != NONE:
            return None
        not_before = tracked.event.not_before
        if not_before is None or self._preparations.interrupted_cause(tracked):
            return 0.0
        left = (not_before - self._current.time_of(tracked)).total_seconds()
        return max(0.0, left - self._lead)
