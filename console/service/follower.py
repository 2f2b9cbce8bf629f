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
"""How often it looks for what other consoles, or commands, on the same database committed."""
_REST_SECONDS: Final = 0.01
"""After each look, so that many small commits are taken at once."""


class Follower:
    """One thread that looks for news; `deliver` gets them, and returns once they are applied.

    On SQLite this console's writer alone takes records in, so it hands over what it committed, and
    only the rest is read. On PostgreSQL everything is read from the database, in the order of the
    commits, whoever made them.
    """

    def __init__(self, database: Database, *, deliver: Callable[[News, bool], set[str]]) -> None:
        self._database = database
        self._deliver = deliver
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._handed: list[tuple[int, Changes]] = []
        self._number: int | None = None
        """Of the newest transaction that was looked at."""
        self._begun = 0
        """Of the newest transaction at the start."""
        self._beside = 0
        """Of the newest transaction that has been read, on SQLite."""
        self._mine: set[int] = set()
        """The transactions that this console's writer has made, as far as they are newer."""
        self.looks = 0
        """How often it has looked to the end."""
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
                self._mine.add(number)
        self._wake.set()

    def wake(self) -> None:
        """This console has committed something else; on any thread."""
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
            self._wake.wait(_OTHERS_SECONDS)

    def _look(self) -> None:
        first = self._number is None
        news = self._news()
        if first or not news.is_empty:
            self._open = self._deliver(news, first)
        if first:
            self._begun = self._beside = news.number
        self._number = news.number
        self.looks += 1

    def _news(self) -> News:
        if self._number is not None and self._database.is_sqlite:
            return self._handed_over(self._number)
        with self._database.reading.begin() as connection:
            if self._number is None:
                return reading.everything(connection)
            return reading.since(connection, self._number, self._open)

    def _handed_over(self, delivered: int) -> News:
        """On SQLite: what the writer handed over, and what others wrote beside it."""
        beside = News(number=delivered)
        with self._database.reading.begin() as connection:
            number = reading.newest_number(connection)
            with self._lock:
                mine = sum(1 for each in self._mine if self._beside < each <= number)
            if mine < number - self._beside:  # somebody else has written something, too
                reading.add_beside(connection, beside, self._beside)
        # After the number: what the writer committed up to there has been handed over by now, or
        # its sources have not been answered yet.
        with self._lock:
            handed = list(self._handed)
        newer = [each for each in handed if each[0] > self._begun]
        news = self._merged(newer, delivered)
        news.number = max(number, news.number)
        news.asked, news.generations = beside.asked, beside.generations
        news.decisions += beside.decisions
        news.commands += beside.commands
        if news.receipts or news.commands:
            with self._database.reading.begin() as connection:
                reading.tell_commands(connection, news)
        with self._lock:  # only now: what cannot be read is read again
            del self._handed[: len(handed)]
            self._mine = {each for each in self._mine if each > number}
        self._beside = number
        return news

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
                reading.add_decided(connection, news, returned)
            known = {each.record_id for each in stored}
            news.receipts = [*stored, *(r for r in whole.receipts if r.record_id not in known)]
        return news
