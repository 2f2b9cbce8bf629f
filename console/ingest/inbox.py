"""Deliveries that wait for the writer: limited in number and bytes, first in, first out."""

from __future__ import annotations

import queue
import threading
from collections import deque

from console.ingest.source_batch import SourceBatch


class Inbox:
    """A queue between the threads of the sources and of the writer."""

    def __init__(self, *, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._waiting: deque[SourceBatch] = deque()
        self._bytes = 0
        lock = threading.Lock()
        self._arrived = threading.Condition(lock)
        self._made_room = threading.Condition(lock)

    def __len__(self) -> int:
        """Return how many deliveries wait."""
        return len(self._waiting)

    def put(self, delivery: SourceBatch, timeout: float | None = None) -> None:
        """Add a delivery. One that alone is larger than the limit is accepted when nothing else
        waits. Raises `queue.Full` after `timeout` seconds without room.
        """
        with self._made_room:
            if not self._made_room.wait_for(lambda: self._has_room(delivery), timeout):
                raise queue.Full
            self._waiting.append(delivery)
            self._bytes += delivery.size
            self._arrived.notify()

    def pop(self, timeout: float) -> SourceBatch | None:
        """Return the delivery that has waited longest; None if none arrives within `timeout`
        seconds.
        """
        with self._arrived:
            if not self._arrived.wait_for(lambda: bool(self._waiting), timeout):
                return None
            delivery = self._waiting.popleft()
            self._bytes -= delivery.size
            self._made_room.notify_all()
            return delivery

    def _has_room(self, delivery: SourceBatch) -> bool:
        if not self._waiting:
            return True
        return len(self._waiting) < self._most and self._bytes + delivery.size <= self._most_bytes
