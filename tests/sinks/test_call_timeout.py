"""The deadline of a call into a sink."""

import pytest
from support.documents.documents import FakeClock

from sinks.call_timeout import AbandonedError, CallTimeout


def test_a_call_ends_in_time_or_is_abandoned() -> None:
    """A call that has ended counts, an abandoned one does not, and no further call begins after
    that.
    """
    clock = FakeClock()
    timeout = CallTimeout(clock.monotonic)
    timeout.call(lambda: None, limit=1)
    clock.advance(2)
    assert not timeout.abandon_if_overdue()

    def stuck() -> None:
        clock.advance(2)
        assert timeout.abandon_if_overdue()

    with pytest.raises(AbandonedError):
        timeout.call(stuck, limit=1)
    with pytest.raises(AbandonedError):
        timeout.call(lambda: pytest.fail("called"), limit=1)
