"""The POSTs (`StartRequests`) that the simulator gets: each with its answer, and what it starts a
little later.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from bridge.clock import Clock
from bridge.simulator.timeline import Timeline, UnknownEventError


@dataclass(slots=True, kw_only=True)
class Post:
    """A POST and its outcome; `time` is monotonic, `started` are EventIds."""

    time: float
    wall: datetime
    body: bytes
    status: int | None = None
    started: tuple[str, ...] = ()

    @property
    def effective(self) -> bool:
        """Whether the POST had an effect."""
        return bool(self.started)


class Timers:
    """A set of timers. After `cancel` none starts any more, and none is still running."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._timers: set[threading.Timer] = set()
        self._canceled = False

    def after(self, seconds: float, action: Callable[[], None]) -> threading.Timer:
        """Call a function in so many seconds, in another thread."""

        def act() -> None:
            try:
                action()
            finally:
                with self._lock:
                    self._timers.discard(timer)

        timer = threading.Timer(seconds, act)
        timer.daemon = True
        timer.name = "imds-timer"
        with self._lock:
            if not self._canceled:
                self._timers.add(timer)
                timer.start()
        return timer

    def cancel(self) -> None:
        """Cancel everything, and wait for what is running."""
        with self._lock:
            self._canceled = True
            timers = list(self._timers)
            self._timers.clear()
        for timer in timers:
            timer.cancel()
        for timer in timers:
            timer.join()


class Posts:
    """The POSTs so far, and the answer to the next one. `delay`: real seconds to Started."""

    def __init__(
        self,
        timeline: Timeline,
        *,
        clock: Clock,
        timers: Timers,
        delay: float,
        on_approval: Callable[[Post], None],
    ) -> None:
        self._timeline = timeline
        self._clock = clock
        self._timers = timers
        self._delay = delay
        self._on_approval = on_approval
        self._lock = threading.Lock()
        self._posts: list[Post] = []

    @property
    def approvals(self) -> list[Post]:
        """Every POST so far, oldest first."""
        with self._lock:
            return list(self._posts)

    def receive(self, body: bytes) -> Post:
        """Note a POST before it is judged."""
        post = Post(time=self._clock.monotonic(), wall=self._clock.now(), body=body)
        with self._lock:
            self._posts.append(post)
        return post

    def judge(self, post: Post, *, version: str) -> tuple[int, bytes]:
        """Return the status and the body that IMDS answers; events are started a little later."""
        try:
            ids = _event_ids(post.body)
            post.started = tuple(self._timeline.approve(ids, version=version))
        except (ValueError, KeyError, TypeError, RecursionError):
            status = 400
            reply = {"error": "Bad request. The StartRequests cannot be read"}
        except UnknownEventError:
            status = 400
            reply = {"error": "Bad request. The EventId is unknown"}
        else:
            status = 200
            reply = {}
        for event_id in post.started:
            self._timers.after(self._delay, partial(self._begin, event_id))
        self._on_approval(post)
        return status, json.dumps(reply).encode() if reply else b""

    def _begin(self, event_id: str) -> None:
        # A hand-written document stays as it is, and the event may be gone by now.
        with suppress(UnknownEventError):
            self._timeline.start_event(event_id)


def _event_ids(body: bytes) -> list[str]:
    requests = json.loads(body)["StartRequests"]
    ids = [request["EventId"] for request in requests]
    if not ids or not all(isinstance(event_id, str) for event_id in ids):
        raise ValueError("StartRequests is a list of objects with an EventId")
    return ids
