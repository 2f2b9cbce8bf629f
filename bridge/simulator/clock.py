"""The two clocks of the simulator, as one argument. It never sleeps."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime


def utc_now() -> datetime:
    """The wall clock, in UTC."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """Where stamps come from: `now` dates NotBefore and `wall`, `monotonic` (seconds) the rest.

    Scenarios are paced by real time whatever clock is given: a clock that stands still makes
    dates predictable, not a scenario endless.
    """

    now: Callable[[], datetime] = utc_now
    monotonic: Callable[[], float] = time.monotonic
