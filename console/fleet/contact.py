"""How a bridge is heard: the words, and when anybody listened. `console.db.contact` finds the word
of each VM, in SQL, so that ten thousand of them are counted, filtered and compared at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

Contact = Literal["heard", "late", "silent", "stopped", "learning", "retired"]
CONTACTS: Final[tuple[Contact, ...]] = (
    "heard",
    "late",
    "silent",
    "stopped",
    "learning",
    "retired",
)
INTERVALS: Final = 3
"""Heartbeats that may fail to come until a VM is silent."""
DEFAULT_INTERVAL: Final = 60.0
"""Seconds from one heartbeat to the next, until a heartbeat says otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """From when until when somebody listened, in seconds since 1970."""

    since: float
    until: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """When the consoles of a database listened, and how patient they are."""

    intervals: Mapping[str, Sequence[Interval]] = field(default_factory=dict)
    """By source, the oldest first, none touching the next."""
    connected: Mapping[str, bool] = field(default_factory=dict)
    """The sources that a running console has, and whether one of them is connected."""
    silent_after: float | None = None
    """Seconds for every VM; three of its own heartbeat intervals if None."""

    def patience(self, interval: float | None) -> float:
        """Seconds without a word after which a VM with such heartbeats is silent."""
        if self.silent_after is not None:
            return self.silent_after
        return INTERVALS * (interval or DEFAULT_INTERVAL)


def merged(intervals: Iterable[Interval]) -> list[Interval]:
    """The intervals in which at least one of several consoles listened."""
    found: list[Interval] = []
    for each in sorted(intervals, key=lambda one: one.since):
        if found and each.since <= found[-1].until:
            last = found.pop()
            each = Interval(since=last.since, until=max(last.until, each.until))  # noqa: PLW2901
        found.append(each)
    return found
