"""The connections of the HTTP server: one request each, and none for longer than it takes, so that
whoever is slow or says nothing cannot keep others from asking.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from waitress.channel import HTTPChannel
from waitress.task import ErrorTask, WSGITask

MOST: Final = 64
"""How many are served at once; of those that have asked nothing yet, the oldest go before that."""
ASK_SECONDS: Final = 10.0
"""How long a connection may take until its request is complete."""
READ_SECONDS: Final = 30.0
"""How long a reader may take nothing of an answer."""
_ROOM: Final = 16
"""How many places are kept for those who come next."""


class _Task(WSGITask):  # type: ignore[misc]  # waitress has no types
    """Ends the connection with its answer: what was sent behind the request is not read."""

    def execute(self) -> None:
        """As waitress calls it."""
        self.set_close_on_finish()
        super().execute()


class Channel(HTTPChannel):  # type: ignore[misc]  # as above
    """A connection that carries one request."""

    task_class = _Task
    error_task_class = ErrorTask


def let_go(channels: Iterable[Any], now: float) -> None:
    """Close what takes too long; to be called by the server's own thread, with the wall clock."""
    open_ = sorted(channels, key=lambda each: each.creation_time)
    silent = [each for each in open_ if not (each.requests or each.total_outbufs_len)]
    surplus = len(open_) - (MOST - _ROOM)
    for place, each in enumerate(silent):
        if place < surplus or now - each.creation_time > ASK_SECONDS:
            each.handle_close()
    for each in open_:
        if each.total_outbufs_len and now - each.last_activity > READ_SECONDS:
            each.handle_close()
