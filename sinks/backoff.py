"""How long a sink's worker waits before the next try, in the bridge and in the console."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

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
    failures: int,
    retry_after: float | None,
    *,
    stuck_threads: int,
    urgent: bool = False,
    draw: Callable[[], float] = random.random,
) -> float:
    """Return the seconds until the next try, after so many failures in a row.

    `retry_after`: what the destination asked for; `stuck_threads`: how many abandoned threads have
    a call that has not returned; `urgent`: an event that names this VM is near.
    """
    if retry_after is not None:
        return min(max(retry_after, 0.0), MAX_RETRY_AFTER_SECONDS)
    if may_hurry(stuck_threads, urgent=urgent):
        return retry_delay(failures, cap=URGENT_RETRY_SECONDS, draw=draw)
    # The more calls are still stuck in abandoned threads, the longer the wait.
    stuck = stuck_threads * MAX_RETRY_SECONDS
    return retry_delay(failures, cap=MAX_RETRY_SECONDS, draw=draw) + stuck


def may_hurry(stuck_threads: int, *, urgent: bool) -> bool:
    """Check whether to wait less because an event is near."""
    return urgent and stuck_threads < MAX_STUCK_THREADS


def retry_delay(failures: int, *, cap: float, draw: Callable[[], float] = random.random) -> float:
    """Return how many seconds to wait after so many failures in a row: full jitter, from 1 s up to
    `cap`.
    """
    return draw() * min(cap, FIRST_RETRY_SECONDS * 2.0 ** min(max(failures, 1) - 1, 16))
