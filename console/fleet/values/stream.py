"""A VM's stream of records, and the records of it that have not come in."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """How much of a VM's stream has come in."""

    vm_id: str
    stream: str
    low: int
    high: int
    high_time: float
    """The time of the record with the highest sequence, by the VM's clock."""
    beat_time: float | None = None
    """The time of its newest heartbeat or start, by the VM's clock. The next heartbeats are due
    whole intervals after it.
    """
    beat_lag: float | None = None
    """The seconds from `beat_time` to the moment at which that record came in, by the console's
    clock.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceGap:
    """Records of a stream that have not come in: those with the sequences `first` to `last`."""

    vm_id: str
    stream: str
    first: int
    last: int
    found_at: float
    seconds: float = 0.0
    """The time from the record before the gap to the one after it, by the VM's clock."""

    @property
    def size(self) -> int:
        """How many sequences are missing."""
        return self.last - self.first + 1
