"""The bounds of one VM: records and bytes a minute, so that one VM cannot crowd out others."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from typing import Final

from console.ingest.delivery import Refused
from console.records.incoming import Incoming, IncomingRecord, IncomingState

BURST_MINUTES: Final = 10
"""What a VM does not use adds up for so many minutes, and may be sent at once: more than a bridge
keeps of a day without a console. Heartbeats replace each other there.
"""
TOO_MUCH: Final = "too_much"
_NAME_BYTES: Final = 150
"""What a name in an event takes in the database, besides the record: rows and their indexes."""
_MAX_KNOWN: Final = 20_000
"""VMs that are counted; those that have not sent for the longest are dropped beyond that."""


@dataclass(slots=True)
class _Left:
    records: float
    size: float
    at: float
    told_at: float = -math.inf


class Bounds:
    """What is left of each VM's bound; from any thread."""

    def __init__(self, *, records: int, size: int) -> None:
        """`records` and `size` (bytes) that a VM may send in a minute; 0 sets no bound."""
        self._records = records or math.inf
        self._size = size or math.inf
        self._lock = threading.Lock()
        self._left: dict[str, _Left] = {}

    def wait(self, vm_id: str, size: int, *, now: float) -> float:
        """Count a record of so many bytes; 0.0, or the seconds after which it would be taken, and
        then it is not counted. `now` is any clock in seconds that does not go back.
        """
        with self._lock:
            left = self._refilled(vm_id, now)
            if left.records >= 1 and left.size >= size:
                left.records -= 1
                left.size -= size
                return 0.0
            minutes = 0.0
            if left.records < 1:
                minutes = (1 - left.records) / self._records
            if left.size < size:
                minutes = max(minutes, (size - left.size) / self._size)
            return max(1.0, 60 * minutes)

    def charge(self, vm_id: str, item: Incoming | Refused | None, *, now: float) -> None:
        """Count what a record that was taken brings besides its bytes: the names in its events.
        What comes next may have to wait for that.
        """
        names = _names_in(item)
        if names:
            with self._lock:
                self._refilled(vm_id, now).size -= names * _NAME_BYTES

    def tells(self, vm_id: str, *, now: float) -> bool:
        """Whether a VM that sends too much is to be told of now: once a minute, so that what it
        sends costs no writing.
        """
        with self._lock:
            left = self._refilled(vm_id, now)
            is_due = now - left.told_at >= 60  # noqa: PLR2004  # a minute
            if is_due:
                left.told_at = now
            return is_due

    def _refilled(self, vm_id: str, now: float) -> _Left:
        """What is left of a VM's bound; the VMs are in the order in which they last sent."""
        most = (BURST_MINUTES * self._records, BURST_MINUTES * self._size)
        left = self._left.pop(vm_id, None) or _Left(*most, at=now)
        minutes = max(0.0, now - left.at) / 60
        if minutes and left.records < most[0]:
            left.records = min(most[0], left.records + minutes * self._records)
        if minutes and left.size < most[1]:
            left.size = min(most[1], left.size + minutes * self._size)
        left.at = now
        self._left[vm_id] = left
        if len(self._left) > _MAX_KNOWN:
            del self._left[next(iter(self._left))]
        return left


def _names_in(item: Incoming | Refused | None) -> int:
    """How many names the events have that it tells of."""
    if isinstance(item, IncomingRecord):
        return 0 if item.event is None else len(item.event.event.resources)
    if isinstance(item, IncomingState):
        return sum(len(report.event.resources) for _, report in item.events)
    return 0
