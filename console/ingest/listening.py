"""Writes the intervals in which this console was connected to its sources, so that every console
can judge contact.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from sqlalchemy import Connection

from console.db.sources.listening import (
    GRACE_SECONDS,
    ListeningInterval,
    delete_past_listening,
    end_other_runs,
    write_listening,
)
from console.ingest.state import SourceState

_WRITE_SECONDS: Final = 4.0
"""The time between two writes: after a kill, so much of the last interval is unknown."""


class ListeningLog:
    """Writes when this console was connected to each source. Used only on the writer's thread."""

    def __init__(self, run_id: str, states: Iterable[SourceState]) -> None:
        """`run_id` is the id of this run of this console."""
        self.run_id = run_id
        self._states = list(states)
        self._listened: dict[str, ListeningInterval] = {}
        self._known: dict[str, float | None] = {}
        """When each source was connected, as last written."""
        self._written_at: float | None = None

    def is_due(self, now: float) -> bool:
        """Check whether there is something to write; `now` in seconds since 1970."""
        if self._written_at is None or not 0 <= now - self._written_at < _WRITE_SECONDS:
            return True
        return any(self._known.get(each.name) != each.since for each in self._states)

    def begin(self, connection: Connection, now: float, *, is_alone: bool) -> None:
        """Write for the first time. `is_alone`: no other console can use this database."""
        if is_alone:
            end_other_runs(connection, self.run_id)
        delete_past_listening(connection, now)
        self.write(connection, now)

    def write(self, connection: Connection, now: float, *, has_break: bool = False) -> bool:
        """Write the current state; return whether this console begins to listen again. That is so
        with `has_break`, or if it could not write for a while. Raises SQLAlchemy's errors; then it
        is written at the next try.
        """
        last_at = self._written_at
        # A clock that was set back counts as a break too: for its new time nothing is known.
        was_away = has_break or last_at is None or abs(now - last_at) > GRACE_SECONDS
        listened = {}
        known = {each.name: each.since for each in self._states}
        for name, since in known.items():
            last = self._listened.get(name)
            if since is None:
                listened[name] = last or ListeningInterval(source=name, since=now, until=now)
            elif last is None or was_away or since != self._known.get(name):
                listened[name] = ListeningInterval(source=name, since=min(since, now), until=now)
            else:
                listened[name] = ListeningInterval(source=name, since=last.since, until=now)
            if was_away and last is not None and since is not None:
                listened[name] = ListeningInterval(source=name, since=now, until=now)
        write_listening(connection, self.run_id, listened.values(), seen_at=now)
        self._listened = listened
        self._known = known
        self._written_at = now
        return was_away and last_at is not None

    def end(self, connection: Connection, now: float) -> None:
        """Write that this run has stopped in order."""
        self.write(connection, now)
        write_listening(connection, self.run_id, self._listened.values(), seen_at=0.0)
