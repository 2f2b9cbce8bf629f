"""One request, answered: healthily or by the next fault. It never decides what is healthy."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from bridge.simulator.answers import Answer, Target
from bridge.simulator.approvals import Post
from bridge.simulator.faults import Fault
from bridge.simulator.link import Link


class LiveExchange:
    """What a fault is given: the healthy answer, and the connection to spoil it on."""

    def __init__(
        self,
        link: Link,
        *,
        answer: Callable[[], Answer],
        mark_served: Callable[[int], None],
        post: Post | None,
    ) -> None:
        self._link = link
        self._answer = answer
        self._mark_served = mark_served
        self._post = post
        self.pause = link.pause
        self.write = link.write
        self.hang_up = link.hang_up
        self.reset = link.reset

    def answer(self) -> Answer:
        """What the healthy service says, with all that follows from it."""
        return self._answer()

    def mark(self, answer: Answer) -> None:
        """Note the answer: after this its last byte leaves."""
        if answer.document is not None:
            self._mark_served(answer.document)
        if self._post is not None:
            self._post.status = answer.status

    def send(self, answer: Answer) -> None:
        """Send an answer whole, in one packet where it fits."""
        self.mark(answer)
        self.write(answer.head() + answer.body)


class FaultQueue:
    """The faults to come, per endpoint, in the order that they were asked for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queues: dict[Target, deque[tuple[Fault, int | None]]] = {}

    def add(self, fault: Fault, *, times: int | None, at: Target) -> None:
        """Queue a fault for so many requests; None: until `clear`."""
        if times is not None and times < 1:
            raise ValueError("times is at least 1, or None for until heal()")
        with self._lock:
            self._queues.setdefault(at, deque()).append((fault, times))

    def take(self, at: Target | None) -> Fault | None:
        """The fault for the next request, if there is one."""
        with self._lock:
            queue = self._queues.get(at) if at is not None else None
            if not queue:
                return None
            fault, times = queue[0]
            if times is not None:
                queue.popleft()
                if times > 1:
                    queue.appendleft((fault, times - 1))
            return fault

    def clear(self) -> None:
        """Forget all faults."""
        with self._lock:
            self._queues.clear()
