"""Delivers notices to one sink, in order, at least once; one console at a time delivers to it."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from sqlalchemy.exc import SQLAlchemyError

from console.db import notices as store
from console.db.errors import words_of
from console.db.opening import Database
from console.notify.sinks import accepts
from sinks.base import Sink, SinkError, SinkRejected
from sinks.shared.errors import SebError
from wire.record import Record

_LOG: Final = logging.getLogger("console")
_MAX_WAIT: Final = 60.0
_DATABASE_WAIT: Final = 1.0
"""The longest wait while the database does not answer."""
_IDLE_SECONDS: Final = 5.0


class SinkWorker:
    """The thread that delivers to one sink."""

    def __init__(
        self,
        sink: Sink[Any],
        *,
        database: Database,
        console: str,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`console` is the id of this run, for the claim; `now` in seconds since 1970."""
        self._sink = sink
        self._database = database
        self._console = console
        self._now = now
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._open = False
        self._settled = 0
        """The sequence up to which the sink has acknowledged, while the database may not have it; 0
        otherwise.
        """
        self._refused = ""
        self._refusals = 0
        self._thread = threading.Thread(target=self._run, name=f"to {sink.name}", daemon=True)
        self.trouble: str | None = None
        """Why the sink does not take notices now; None if it does."""
        self.delivered = 0
        self.rejected = 0

    @property
    def name(self) -> str:
        """The sink's name."""
        return self._sink.name

    def start(self) -> None:
        """Start the thread; the database is open."""
        self._thread.start()

    def wake(self) -> None:
        """Look at once: there is something new."""
        self._wake.set()

    def stop(self) -> None:
        """Stop, within seconds. The next run delivers what was not acknowledged."""
        self._stop.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(2)
            if self._thread.is_alive():
                self._sink.abort()
                self._thread.join(3)

    def _run(self) -> None:
        wait = 0.5
        while not self._stop.is_set():
            self._wake.clear()
            try:
                more = self._turn()
            except Exception as error:  # noqa: BLE001  # a sink may raise anything
                self._failed(error)
                retry_after = getattr(error, "retry_after", None) or 0
                self._stop.wait(max(retry_after, random.uniform(wait / 2, wait)))  # noqa: S311  # jitter
                longest = _DATABASE_WAIT if isinstance(error, SQLAlchemyError) else _MAX_WAIT
                wait = min(longest, wait * 2)
                continue
            wait = 0.5
            if not more:
                self._wake.wait(_IDLE_SECONDS)
        self._close()

    def _turn(self) -> bool:
        """Deliver what waits; return whether there may be more at once."""
        if self._settled:  # acknowledged, but the write failed: it is not delivered again
            self._advance(self._settled)
        batch = self._claimed()
        if not batch:
            if self._open:
                self._sink.maintain()
            return False
        wanted = [record for record in batch if accepts(self._sink, record)]
        done = self._delivered(wanted) or batch[-1].sequence
        self._advance(done)
        if self.trouble is not None:
            self.trouble = None
            _LOG.info("the sink takes notices", extra={"action": "sink_up", "sink": self.name})
        return True

    def _claimed(self) -> list[Record]:
        """Return the next notices, if this console is the one that delivers to the sink."""
        with self._database.reading.begin() as connection:
            if not store.is_waiting(connection, self.name):
                return []
        with self._database.writing.begin() as connection:
            return store.claim(
                connection, self.name, self._console, now=self._now(), limit=self._sink.BATCH
            )

    def _delivered(self, wanted: list[Record]) -> int:
        """Deliver notices to the sink; return the sequence of one that it refused for good, or 0.
        Raises what the sink raises, after the notices that it took before were noted.
        """
        if not wanted:
            return 0
        if not self._open:
            self._sink.open()
            self._open = True
        try:
            self._sink.deliver(wanted)
        except SinkRejected as error:
            self._settle(wanted[: error.delivered])
            return self._rejected(wanted[error.delivered], error)
        except SinkError as error:
            self._settle(wanted[: error.delivered])
            raise
        self.delivered += len(wanted)
        return 0

    def _settle(self, taken: list[Record]) -> None:
        """Note that the sink has acknowledged these notices, and not those after them."""
        self.delivered += len(taken)
        if taken:
            self._advance(taken[-1].sequence)

    def _rejected(self, record: Record, error: SinkRejected) -> int:
        """Skip a notice that the sink can never take; return its sequence. Raises `SinkError` as
        long as another try may help.
        """
        self._refusals = self._refusals + 1 if self._refused == record.id else 1
        self._refused = record.id
        if self._refusals < error.tries:
            raise SinkError(str(error)) from None
        self.rejected += 1
        _LOG.error(
            "%s; this notice is not delivered there",
            error,
            extra={"action": "notice_rejected", "sink": self.name, "id": record.id},
        )
        return record.sequence

    def _advance(self, number: int) -> None:
        self._settled = number
        with self._database.writing.begin() as connection:
            store.advance(connection, self.name, self._console, number)
        self._settled = 0

    def _failed(self, error: Exception) -> None:
        if isinstance(error, SQLAlchemyError):
            words = words_of(error)
        elif isinstance(error, (SinkError, SebError)):
            words = str(error)
        else:
            words = f"{type(error).__name__} in the sink"
            _LOG.exception("%s", words, extra={"action": "sink_bug", "sink": self.name})
        if self.trouble != words and not self._stop.is_set():
            _LOG.warning("%s", words, extra={"action": "sink_down", "sink": self.name})
        self.trouble = words
        if not isinstance(error, SQLAlchemyError):
            self._close()

    def _close(self) -> None:
        if self._open:
            self._open = False
            try:
                self._sink.close()
            except Exception:  # noqa: BLE001  # as above
                _LOG.exception("close", extra={"action": "sink_bug", "sink": self.name})
