"""How a bridge is heard: the words for it, and when consoles were connected to sources.

`console.db.vms.contact` finds the word of each VM in SQL, so that ten thousand of them are counted,
filtered and compared at once.
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
"""How many heartbeats may be missing until a VM is silent."""
DEFAULT_INTERVAL_SECONDS: Final = 60.0
"""Seconds between heartbeats, until a heartbeat states the interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """An interval in which a console was connected, in seconds since 1970."""

    since: float
    until: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SilentTime:
    """How long a VM may send nothing until it is silent."""

    seconds: float | None = None
    """The same for every VM; None: three heartbeat intervals of each."""

    def of(self, interval: float | None) -> float:
        """Return the silent time in seconds of a VM with this heartbeat interval."""
        if self.seconds is not None:
            return self.seconds
        return INTERVALS * (interval or DEFAULT_INTERVAL_SECONDS)


BY_HEARTBEATS: Final = SilentTime()
"""The silent time unless one is set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """When the consoles of a database were connected to their sources, and the silent time."""

    intervals: Mapping[str, Sequence[Interval]] = field(default_factory=dict)
    """By source, the oldest first; they do not touch."""
    unbroken_since: float = 0.0
    """Since when nothing that VMs tell can have been lost: the end of the last time in which no
    console could store anything, or of the last loss of transactions.
    """
    again_since: Mapping[str, float] = field(default_factory=dict)
    """When consoles connected again to a source after a break that was longer than a moment, or
    another console took a part of it; by source.
    """
    just_since: Mapping[str, float] = field(default_factory=dict)
    """When a console connected to a source some seconds ago: a VM that sends by itself may have
    found no console before, and tries again after some seconds.
    """
    connected: Mapping[str, bool] = field(default_factory=dict)
    """Whether a running console is connected, for each source that one has."""
    silent_time: SilentTime = BY_HEARTBEATS


def merged(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the intervals in which at least one of several consoles was connected."""
    found: list[Interval] = []
    for each in sorted(intervals, key=lambda one: one.since):
        if found and each.since <= found[-1].until:
            last = found.pop()
            each = Interval(since=last.since, until=max(last.until, each.until))  # noqa: PLW2901
        found.append(each)
    return found
