"""How a sink is doing, and how long to wait before it is tried again."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

IDLE_SECONDS: Final = 5.0
"""How often an idle sink is looked after."""
FIRST_RETRY_SECONDS: Final = 1.0
MAX_RETRY_SECONDS: Final = 60.0
URGENT_RETRY_SECONDS: Final = 5.0
"""The longest wait while an event that names this VM is near."""
URGENT_NOTICE_SECONDS: Final = 120.0
"""How near that is."""
MAX_RETRY_AFTER_SECONDS: Final = 300.0
"""A destination that asks for a longer wait than this is asked again after this."""

State = Literal["starting", "ok", "failing", "paused"]


@dataclass(slots=True, kw_only=True)
class Health:
    """How a sink is doing; it outlives the worker that a stuck call costs."""

    state: State = "starting"
    reason: str | None = None
    since: float = 0.0
    """Monotonic time of the last change of state."""
    failures: int = 0
    """Failed tries in a row."""
    refusals: int = 0
    """Refusals in a row of one and the same record."""
    delivered: int = 0
    stuck_threads: int = 0
    """Abandoned threads whose call has not come back."""

    def turn(self, state: State, reason: str | None, now: float) -> bool:
        """Take on a state; whether that is worth a line in the log."""
        changed = (state, reason) != (self.state, self.reason)
        if state != self.state:
            self.since = now
        self.state, self.reason = state, reason
        return changed


def retry_delay(failures: int, *, cap: float, draw: Callable[[], float] = random.random) -> float:
    """Seconds until the next try after so many failures in a row: full jitter under a ceiling
    that doubles from 1 s to `cap`, so that a fleet does not return as one.
    """
    return draw() * min(cap, FIRST_RETRY_SECONDS * 2 ** min(failures - 1, 16))
