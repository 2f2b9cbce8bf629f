"""The wait before a sink is tried again."""

from sinks.backoff import MAX_STUCK_THREADS, retry_delay, seconds_to_next_try


def test_the_wait_grows_under_a_ceiling() -> None:
    """The wait is random, up to 1, 2, 4 … 60 seconds."""
    most = [retry_delay(failures, cap=60, draw=lambda: 1.0) for failures in range(1, 9)]
    assert most == [1, 2, 4, 8, 16, 32, 60, 60]
    assert retry_delay(5, cap=60, draw=lambda: 0.0) == 0
    assert retry_delay(100_000, cap=60, draw=lambda: 1.0) == 60
    assert retry_delay(0, cap=60, draw=lambda: 1.0) == 1


def test_stuck_threads_slow_down_more_of_them() -> None:
    """A near event shortens the wait only while few threads are stuck."""

    def seconds(stuck_threads: int, *, urgent: bool) -> float:
        return seconds_to_next_try(
            10, None, stuck_threads=stuck_threads, urgent=urgent, draw=lambda: 1.0
        )

    assert seconds(2, urgent=False) == 180
    assert seconds(2, urgent=True) == 5
    assert seconds(MAX_STUCK_THREADS, urgent=True) == 60 * (MAX_STUCK_THREADS + 1)
