"""Brings what was committed, by this console or another, into the fleet in memory."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from sqlalchemy.exc import SQLAlchemyError

from console.fleet.fold import Changes
from console.store import reading
from console.store.errors import told
from console.store.opening import Database
from console.store.reading import News

_LOG: Final = logging.getLogger("console")
_OTHERS_SECONDS: Final = 0.25
"""How often it looks for what other consoles on the same database committed."""
_REST_SECONDS: Final = 0.01
"""After each look, so that many small commits are taken at once."""


class Follower:
    """One thread that looks for news; `deliver` gets them, and returns once they are applied.

    On SQLite this console alone writes, so the writer hands over what it committed. On PostgreSQL
    everything is read from the database, in the order of the commits, whoever made them.
    """

    def __init__(self, database: Database, *, deliver: Callable[[News, bool], set[str]]) -> None:
        self._database = database
        self._deliver = deliver
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._handed: list[tuple[int, Changes]] = []
        self._number: int | None = None
        self._open: set[str] = set()
        self._thread = threading.Thread(target=self._run, name="follower", daemon=True)

    def start(self) -> None:
        """Begin to look, once the database is open."""
        self._thread.start()

    def opened(self) -> None:
        """The database is open."""
        self._wake.set()

    def committed(self, number: int, changes: Changes) -> None:
        """This console's writer has committed; on the writer's thread."""
        if self._database.is_sqlite:
            with self._lock:
                self._handed.append((number, changes))
        self._wake.set()

    def stop(self) -> None:
        """End; harmless if it has not started."""
        self._stop.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(5)

    def _run(self) -> None:
        self._wake.wait()
        while not self._stop.is_set():
            self._wake.clear()
            try:
                self._look()
            except SQLAlchemyError as error:
                _LOG.warning("%s", told(error), extra={"action": "database_not_read"})
                self._wake.set()
                self._stop.wait(1)
            self._stop.wait(_REST_SECONDS)
            self._wake.wait(None if self._database.is_sqlite else _OTHERS_SECONDS)

    def _look(self) -> None:
        first = self._number is None
        news = self._news()
        if first or news.number != self._number:
            self._open = self._deliver(news, first)
            self._number = news.number

    def _news(self) -> News:
        if self._number is not None and self._database.is_sqlite:
            with self._lock:
                handed, self._handed = self._handed, []
            newer = [each for each in handed if each[0] > self._number]
            return self._merged(newer, self._number)
        with self._database.reading.begin() as connection:
            if self._number is None:
                return reading.everything(connection)
            return reading.since(connection, self._number, self._open)

    def _merged(self, handed: list[tuple[int, Changes]], number: int) -> News:
        """Some commits as one; of a row that changed twice, the last."""
        whole = Changes()
        for number, changes in handed:  # noqa: B007, PLR1704  # the last one's number
            whole.vms |= changes.vms
            whole.events |= changes.events
            whole.sightings |= changes.sightings
            whole.receipts += changes.receipts
            whole.returned |= changes.returned
        news = News(number=number, vms=list(whole.vms.values()), events=list(whole.events.values()))
        for (event_id, _), sighting in whole.sightings.items():
            news.sightings.setdefault(event_id, []).append(sighting)
        news.receipts = whole.receipts
        if whole.returned:  # they have witnesses that are not in memory
            returned = sorted(whole.returned)
            with self._database.reading.begin() as connection:
                news.sightings |= reading.sightings_of(connection, returned)
                stored = reading.receipts_of(connection, returned)
            known = {each.record_id for each in stored}
            news.receipts = [*stored, *(r for r in whole.receipts if r.record_id not in known)]
        return news
