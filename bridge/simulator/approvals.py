"""StartRequests: every POST that came, what was answered, and what it set off.

It never starts an event at once: IMDS answers first, and starts the event a little later.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from bridge.clock import Clock
from bridge.simulator.timeline import Timeline, UnknownEventError
from bridge.simulator.timers import Timers


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """A POST as it came. `time` is monotonic seconds; `status` is None where nothing was answered.

    `started`: the EventIds that this POST starts. Empty for a POST that came second: IMDS answers
    that with 200 all the same.
    """

    time: float
    wall: datetime
    body: bytes
    status: int | None
    started: tuple[str, ...]

    @property
    def effective(self) -> bool:
        """Whether the POST set anything off."""
        return bool(self.started)


@dataclass(slots=True, kw_only=True)
class Post:
    """A POST that is being answered; the server fills it in."""

    time: float
    wall: datetime
    body: bytes
    status: int | None = None
    started: list[str] = field(default_factory=list)

    def approval(self) -> Approval:
        """The POST as it stands."""
        return Approval(
            time=self.time,
            wall=self.wall,
            body=self.body,
            status=self.status,
            started=tuple(self.started),
        )


class Approvals:
    """The POSTs so far, and the judge of the next one. `delay`: real seconds to Started."""

    def __init__(
        self,
        timeline: Timeline,
        *,
        clock: Clock,
        timers: Timers,
        delay: float,
        on_approval: Callable[[Approval], None],
    ) -> None:
        self._timeline = timeline
        self._clock = clock
        self._timers = timers
        self._delay = delay
        self._on_approval = on_approval
        self._lock = threading.Lock()
        self._posts: list[Post] = []

    @property
    def approvals(self) -> list[Approval]:
        """Every POST so far, oldest first."""
        with self._lock:
            return [post.approval() for post in self._posts]

    def receive(self, body: bytes) -> Post:
        """Note a POST before anything is made of it."""
        post = Post(time=self._clock.monotonic(), wall=self._clock.now(), body=body)
        with self._lock:
            self._posts.append(post)
        return post

    def judge(self, post: Post, *, version: str) -> tuple[int, bytes]:
        """The status and the body that IMDS answers; events are started a little later."""
        try:
            post.started += self._timeline.approve(_event_ids(post.body), version=version)
        except (ValueError, KeyError, TypeError, RecursionError):
            status, reply = 400, {"error": "Bad request. The StartRequests cannot be read"}
        except UnknownEventError:
            status, reply = 400, {"error": "Bad request. The EventId is unknown"}
        else:
            status, reply = 200, {}
        for event_id in post.started:
            self._timers.after(self._delay, partial(self._begin, event_id))
        self._on_approval(post.approval())
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
