"""The change feed: notices that something was committed, by this console or another one."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Final

from console.db.connection.errors import DatabaseFailedError
from console.db.connection.opening import Database
from console.db.connection.transactions import newest_change_number, read_from

_LOG: Final = logging.getLogger("console")
_READ_SECONDS: Final = 0.25
"""The time between two readings of the number, to find commits of other consoles and commands."""
_REST_SECONDS: Final = 0.01
"""The pause after each reading, so that many small commits are handled together."""

ChangeListener = Callable[[int | None, int], None]
"""Called at each reading with two transaction numbers: everything up to the first was read before,
and the second is the newest. None for the first: anything may have changed. Raises
`DatabaseFailedError` if it cannot read; then it is called again with the same number.
"""


class ChangeFeed:
    """Reads the number of the newest transaction again and again, on one thread, and calls the
    listeners when it has grown.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._listeners: Sequence[ChangeListener] = ()
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._change_number: int | None = None
        self.reads = 0
        """How many readings have called every listener."""
        self.ready = False
        """Whether there was a first reading."""
        self._thread = threading.Thread(target=self._run, name="changes", daemon=True)

    def start(self, listeners: Sequence[ChangeListener]) -> None:
        """Start the thread that looks for commits; the database is open."""
        self._listeners = listeners
        self._thread.start()

    def wake(self) -> None:
        """Read the number at once: this console has opened the database or committed something. May
        be called from any thread.
        """
        self._wake.set()

    def stop(self) -> None:
        """Stop; harmless if it has not started."""
        self._stop.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(5)

    def _run(self) -> None:
        self._wake.wait()
        while not self._stop.is_set():
            self._wake.clear()
            try:
                self._read()
            except DatabaseFailedError as error:
                _LOG.warning("%s", error, extra={"action": "database_not_read"})
                self._wake.set()
                self._stop.wait(1)
            except Exception:  # noqa: BLE001  # what is new must be seen after it, too
                _LOG.exception("this is a bug in the console", extra={"action": "changes_bug"})
                self._stop.wait(1)
            self._stop.wait(_REST_SECONDS)
            self._wake.wait(_READ_SECONDS)

    def _read(self) -> None:
        newest_before = self._database.continuity.newest
        with read_from(self._database.reading) as connection:
            change_number = newest_change_number(connection)
        self._database.continuity.end_read(change_number, newest_before=newest_before)
        # A number that went back: the database was restored, or is another one.
        last = self._change_number
        since = None if last is None or change_number < last else last
        for listener in self._listeners:
            listener(since, change_number)
        self._change_number = change_number
        self.ready = True
        self.reads += 1
