"""How long a request for events may take."""

from datetime import timedelta

import pytest
from support.documents.documents import NOW, FakeClock

from bridge.imds.events_timeout import EventsTimeout

USUAL, FIRST = 5.0, 130.0


@pytest.mark.parametrize(
    ("hours", "seconds"),
    [(None, FIRST), (0, USUAL), (23, USUAL), (25, FIRST), (-1, USUAL), (-25, FIRST)],
)
def test_a_service_that_answered_an_earlier_run_within_a_day_is_on(
    hours: float | None, seconds: float
) -> None:
    """The service counts as on for a day after the last document, also if the clock was set
    since.
    """
    answered_at = None if hours is None else NOW - timedelta(hours=hours)
    timeout = EventsTimeout(FakeClock(), usual=USUAL, first=FIRST, answered_at=answered_at)
    assert timeout.seconds == seconds


@pytest.mark.parametrize("passing", ["suspend", "advance", "jump"])
def test_a_day_without_a_document_turns_the_service_off(passing: str) -> None:
    """A run that had no document for a day waits for the next one as for its first, however the
    time passed: asleep, without an answer, or by the wall clock alone.
    """
    clock = FakeClock()
    timeout = EventsTimeout(clock, usual=USUAL, first=FIRST)
    assert timeout.seconds == FIRST
    timeout.note_document()
    getattr(clock, passing)(23 * 3600)
    assert timeout.seconds == USUAL
    getattr(clock, passing)(2 * 3600)
    assert timeout.seconds == FIRST
    timeout.note_document()
    assert timeout.seconds == USUAL


def test_a_wall_clock_that_stood_still_hides_no_suspension() -> None:
    """A suspension counts also if the wall clock is not set right after it."""
    clock = FakeClock()
    timeout = EventsTimeout(clock, usual=USUAL, first=FIRST)
    timeout.note_document()
    clock.suspend(30 * 3600)
    clock.jump(-30 * 3600)
    assert timeout.seconds == FIRST
