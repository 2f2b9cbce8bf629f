"""How long a sink's worker waits before the next try."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from bridge.delivery.health import Health

FIRST_RETRY_SECONDS: Final = 1.0
MAX_RETRY_SECONDS: Final = 60.0
URGENT_RETRY_SECONDS: Final = 5.0
"""The longest wait while an event that names this VM is near."""
URGENT_NOTICE_SECONDS: Final = 120.0
"""An event is near if it may start within this time."""
MAX_RETRY_AFTER_SECONDS: Final = 300.0
"""The longest wait that a destination can ask for."""
MAX_STUCK_THREADS: Final = 8
"""With so many stuck threads, the next try does not come sooner for a near event: each may cost a
thread.
"""


def seconds_to_next_try(
    health: Health,
    retry_after: float | None,
    *,
    urgent: bool,
    draw: Callable[[], float] = random.random,
) -> float:
    """Return the seconds until the next try; `retry_after` is what the destination asked for."""
    if retry_after is not None:
        return min(max(retry_after, 0.0), MAX_RETRY_AFTER_SECONDS)
    if may_hurry(health, urgent=urgent):
        return retry_delay(health.failures, cap=URGENT_RETRY_SECONDS, draw=draw)
    # The more calls are still stuck in abandoned threads, the longer the wait.
    stuck = health.stuck_threads * MAX_RETRY_SECONDS
    return retry_delay(health.failures, cap=MAX_RETRY_SECONDS, draw=draw) + stuck


def may_hurry(health: Health, *, urgent: bool) -> bool:
    """Check whether to wait less because an event is near."""
    return urgent and health.stuck_threads < MAX_STUCK_THREADS


def retry_delay(failures: int, *, cap: float, draw: Callable[[], float] = random.random) -> float:
    """Return how many seconds to wait after so many failures in a row: full jitter, from 1 s up to
    `cap`.
    """
    return draw() * min(cap, FIRST_RETRY_SECONDS * 2.0 ** min(max(failures, 1) - 1, 16))
