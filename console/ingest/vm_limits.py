"""The limits of one VM: records and bytes a minute, so that a VM that sends too much cannot
displace the records of others.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from typing import Final

from console.ingest.source_batch import QuarantinedMessage
from console.records.incoming import IncomingMessage, IncomingRecord, IncomingState

BURST_MINUTES: Final = 10
"""A VM may save up its allowance for this many minutes and use it at once: more than a bridge keeps
of a day without a console. Of heartbeats it keeps only the newest.
"""
TOO_MUCH: Final = "too_much"
_NAME_BYTES: Final = 150
"""How much space a name in an event takes in the database besides the record: rows and indexes."""
_MAX_KNOWN: Final = 20_000
"""How many VMs are counted; beyond that, those that have not sent for the longest are dropped."""


@dataclass(slots=True)
class _Allowance:
    records: float
    size: float
    at: float
    reported_at: float = -math.inf


class VmLimits:
    """What is left of each VM's allowance. May be used from any thread."""

    def __init__(self, *, records: int, size: int) -> None:
        """`records` and `size` (bytes) are what a VM may send in a minute; 0 means no limit."""
        self._records = records or math.inf
        self._size = size or math.inf
        self._lock = threading.Lock()
        self._left: dict[str, _Allowance] = {}

    def seconds_until_allowed(self, vm_id: str, size: int, *, now: float) -> float:
        """Count a record of so many bytes and return 0.0. If the VM has no allowance for it, return
        the seconds after which it would be accepted, and do not count it. `now` is any clock in
        seconds that does not go back.
        """
        with self._lock:
            left = self._refill(vm_id, now)
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

    def charge(
        self, vm_id: str, item: IncomingMessage | QuarantinedMessage | None, *, now: float
    ) -> None:
        """Count the names in the events of an accepted record, besides its bytes. The next record
        may have to wait for that.
        """
        names = _names_in(item)
        if names:
            with self._lock:
                self._refill(vm_id, now).size -= names * _NAME_BYTES

    def may_report(self, vm_id: str, *, now: float) -> bool:
        """Check whether it is time to report a VM that sends too much: once a minute, so that its
        messages cost no writing.
        """
        with self._lock:
            left = self._refill(vm_id, now)
            is_due = now - left.reported_at >= 60  # noqa: PLR2004  # a minute
            if is_due:
                left.reported_at = now
            return is_due

    def _refill(self, vm_id: str, now: float) -> _Allowance:
        """Return what is left of a VM's allowance at this time. The VMs are in the order in which
        they last sent.
        """
        most = (BURST_MINUTES * self._records, BURST_MINUTES * self._size)
        left = self._left.pop(vm_id, None) or _Allowance(*most, at=now)
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


def _names_in(item: IncomingMessage | QuarantinedMessage | None) -> int:
    """Return how many names the events of a message have."""
    if isinstance(item, IncomingRecord):
        return 0 if item.event is None else len(item.event.event.resources)
    if isinstance(item, IncomingState):
        return sum(len(report.event.resources) for _, report in item.events)
    return 0
