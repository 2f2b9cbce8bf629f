"""Snapshots of the database. Every answer of a page or the API, and every notice, is made from one,
so that it does not contradict itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from sqlalchemy import Connection

from console.db.connection.clock import CommonClock
from console.db.connection.opening import Database
from console.db.connection.transactions import read_from
from console.db.events.event_history import EventHistory
from console.db.events.event_lists import EventLists
from console.db.events.known_events import NO_GROUPS, KnownEvents
from console.db.sources.listening import read_listening
from console.db.vms.known_vms import KnownVms
from console.db.vms.vm_lists import VmLists
from console.fleet.contact import BY_HEARTBEATS, Listening, SilentTime
from console.turns.groups import Grouping


class Snapshot:
    """The database in one transaction, at one time."""

    def __init__(
        self,
        connection: Connection,
        now: float,
        silent_time: SilentTime,
        *,
        grouping: Grouping = NO_GROUPS,
        has_break: bool = False,
    ) -> None:
        """`grouping`: the groups for which events wait. `has_break`: as in `read_listening`."""
        self.connection: Final = connection
        self.now: Final = now
        """Seconds since 1970."""
        self.listening: Final[Listening] = read_listening(
            connection, now, silent_time, has_break=has_break
        )
        self.vms: Final = KnownVms(connection, now, self.listening)
        self.vm_lists: Final = VmLists(connection, self.vms)
        self.events: Final = KnownEvents(connection, now, self.listening, grouping=grouping)
        self.event_lists: Final = EventLists(connection, self.events)
        self.event_history: Final = EventHistory(connection, self.events)


class Snapshots:
    """Opens snapshots. May be used from any thread."""

    def __init__(
        self,
        database: Database,
        *,
        silent_time: SilentTime = BY_HEARTBEATS,
        grouping: Grouping = NO_GROUPS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`grouping`: the groups for which events wait."""
        self.grouping = grouping
        self.database = database
        self.silent_time = silent_time
        self.clock = clock

    @contextmanager
    def open(self) -> Iterator[Snapshot]:
        """Open a snapshot of the database as it is now. Raises `DatabaseFailedError` if it does
        not answer.
        """
        with read_from(self.database.reading) as connection:
            yield self.of(connection)

    def of(self, connection: Connection, *, is_exact: bool = False) -> Snapshot:
        """Return a snapshot within an open transaction. With `is_exact` the database's clock is
        read first.
        """
        if is_exact and isinstance(self.clock, CommonClock):
            self.clock.compare(connection)
        return Snapshot(
            connection,
            self.clock(),
            self.silent_time,
            grouping=self.grouping,
            has_break=self.database.continuity.has_break,
        )
