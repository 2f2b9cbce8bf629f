"""Brings what was committed, by this console or another, into the fleet in memory."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from sqlalchemy.exc import SQLAlchemyError

from console.store import reading
from console.store.errors import told
from console.store.opening import Database
from console.store.reading import News

_LOG: Final = logging.getLogger("console")
_OTHERS_SECONDS: Final = 0.25
"""How often it looks for what other consoles on the same database committed."""
_REST_SECONDS: Final = 0.01
"""After each look, so that many small commits are read at once."""


class Follower:
    """One thread that reads what is new; `deliver` gets it, and returns once it is applied."""

    def __init__(self, database: Database, *, deliver: Callable[[News, bool], set[str]]) -> None:
        self._database = database
        self._deliver = deliver
        self._news = threading.Event()
        self._stop = threading.Event()
        self._number: int | None = None
        self._open: set[str] = set()
        self._thread = threading.Thread(target=self._run, name="follower", daemon=True)

    def start(self) -> None:
        """Begin to look, from the first `wake` on."""
        self._thread.start()

    def wake(self) -> None:
        """Something was committed."""
        self._news.set()

    def stop(self) -> None:
        """End; harmless if it has not started."""
        self._stop.set()
        self._news.set()
        if self._thread.is_alive():
            self._thread.join(5)

    def _run(self) -> None:
        self._news.wait()
        while not self._stop.is_set():
            self._news.clear()
            try:
                self._look()
            except SQLAlchemyError as error:
                _LOG.warning("%s", told(error), extra={"action": "database_not_read"})
                self._stop.wait(1)
            self._stop.wait(_REST_SECONDS)
            self._news.wait(_OTHERS_SECONDS if not self._database.is_sqlite else None)

    def _look(self) -> None:
        with self._database.reading.begin() as connection:
            first = self._number is None
            news = (
                reading.everything(connection)
                if self._number is None
                else reading.since(connection, self._number, self._open)
            )
        if first or news.number != self._number:
            self._open = self._deliver(news, first)
            self._number = news.number
