"""Drives one sink for a worker of the bridge or of the console: opens and closes it, and gives each
call a deadline. It does not know where records come from.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sinks.backoff import seconds_to_next_try
from sinks.base import Sink, SinkError, SinkRejected
from sinks.shared.threads import try_to_start
from wire.record import Record


class AbandonedError(Exception):
    """The watchdog has abandoned these calls: they have no effect any more."""


class SinkBugError(Exception):
    """The sink breaks its contract."""


@dataclass(slots=True, kw_only=True)
class SinkTries:
    """The failures of a sink. They remain when a stuck worker is replaced."""

    failures: int = 0
    """How many tries have failed in a row."""
    refusals: int = 0
    """How often the same record was refused in a row."""
    refused_record_id: str | None = None
    """The id of that record."""
    stuck_threads: int = 0
    """How many abandoned threads have a call that has not returned."""

    def count_refusal(self, record_id: str) -> int:
        """Count a refusal of the record with this id; return how many there were in a row."""
        self.refusals = self.refusals + 1 if self.refused_record_id == record_id else 1
        self.refused_record_id = record_id
        return self.refusals

    def seconds_to_next_try(
        self,
        error: Exception | None = None,
        *,
        urgent: bool = False,
        draw: Callable[[], float] = random.random,
    ) -> float:
        """Return the seconds until the next try after an error; None: after a stuck call."""
        return seconds_to_next_try(
            self.failures,
            error.retry_after if isinstance(error, SinkError) else None,
            stuck_threads=self.stuck_threads,
            urgent=urgent,
            draw=draw,
        )


def taken_before(error: SinkError | SinkRejected, records: Sequence[Record]) -> int:
    """Return how many records a sink took from the front of these before its error."""
    return min(max(error.delivered, 0), len(records))


def refused_of(error: SinkRejected, records: Sequence[Record]) -> Record:
    """Return the one of these records that a sink refused. Raises `SinkBugError` if there is no
    such record.
    """
    if not 0 <= error.delivered < len(records):
        raise SinkBugError(
            f"it refused record {error.delivered} of a batch of {len(records)}"
        ) from error
    return records[error.delivered]


class SinkDriver:
    """Makes the calls of one thread to a sink, while another thread watches. A call ends in time
    and counts, or it is abandoned and does not: one lock decides, so that no two threads act on the
    same delivery.
    """

    def __init__(
        self, sink: Sink[Any], *, monotonic: Callable[[], float], log: logging.Logger
    ) -> None:
        """`monotonic` returns the seconds since some moment, and never goes back."""
        self.sink = sink
        self.is_open = False
        """Whether the sink needs a `close`: an `open` was called, and it may have failed."""
        self.limit = 0.0
        """The seconds that the latest call may take."""
        self._monotonic = monotonic
        self._log = log
        self._overdue_at: float | None = None
        self._lock = threading.Lock()
        self._abandoned = threading.Event()

    def open(self) -> None:
        """Open the sink unless it is open. Raises what the sink raises, or `AbandonedError`."""
        if not self.is_open:
            self.is_open = True
            self._call(self.sink.open)

    def deliver(self, records: Sequence[Record]) -> None:
        """Deliver records to the open sink. Raises what the sink raises, or `AbandonedError`."""
        self._call(lambda: self.sink.deliver(records))

    def maintain(self) -> None:
        """Maintain the sink if it is open. Raises what the sink raises, or `AbandonedError`."""
        if self.is_open:
            self._call(self.sink.maintain)

    def maintain_failing(self) -> Exception | None:
        """Maintain a sink that waits for its next try, if it is open. Never raises: the failure for
        which it waits is known already. Returns the error by which the sink was closed, if any.
        """
        return self._try(self.maintain)

    def open_failing(self) -> Exception | None:
        """Open a sink that waits for its next try, unless it is open. Never raises. Returns the
        error by which the sink was closed, if any.
        """
        return self._try(self.open)

    def _try(self, call: Callable[[], None]) -> Exception | None:
        try:
            call()
        except AbandonedError:
            pass  # the loop that waits checks this itself
        except Exception as error:  # noqa: BLE001  # a sink may raise anything
            self.close_after(error)
            return None if self.is_open else error
        return None

    def close_after(self, error: Exception) -> None:
        """Close the sink, unless the error says that it stays open. Never raises."""
        if not (isinstance(error, SinkError) and error.stays_open):
            self.close()

    def close(self) -> None:
        """Close the sink if it is open. Never raises."""
        if not self.is_open:
            return
        self.is_open = False
        try:
            self._call(self.sink.close)
        except AbandonedError:
            pass
        except Exception as error:  # noqa: BLE001  # it is logged
            self._log_bug("the sink's close failed", error)

    @property
    def is_abandoned(self) -> bool:
        """Whether the results of calls are ignored from now on."""
        return self._abandoned.is_set()

    def abandon(self) -> None:
        """Ignore the results of all calls from now on, and cut the one under way. Any thread may
        call it.
        """
        with self._lock:
            self._abandoned.set()
            self._start_abort()

    def abandon_if_overdue(self) -> bool:
        """Abandon the call under way if it has exceeded the sink's deadline; return whether it was
        abandoned. If no thread can be started to cut it, nothing has changed, and the next call of
        this tries again. Any thread may call it.
        """
        with self._lock:
            is_overdue = self._overdue_at is not None and self._monotonic() > self._overdue_at
            if not (is_overdue and self._start_abort()):
                return False
            self._abandoned.set()
            return True

    def _call(self, work: Callable[[], None]) -> None:
        limit = self.sink.deadline
        with self._lock:
            if self.is_abandoned:
                raise AbandonedError
            self.limit = limit
            self._overdue_at = self._monotonic() + limit
        try:
            work()
        except SystemExit as error:
            raise SinkBugError("it tried to end the process") from error
        finally:
            with self._lock:
                self._overdue_at = None
                if self.is_abandoned:
                    raise AbandonedError from None

    def _start_abort(self) -> bool:
        """Cut the call under way, in another thread because a cut that hangs would block the
        caller; return whether that thread could be started.
        """
        name = f"abort-{self.sink.name}"
        return try_to_start(threading.Thread(target=self._abort, name=name, daemon=True))

    def _abort(self) -> None:
        try:
            self.sink.abort()
        except Exception as error:  # noqa: BLE001  # it is logged
            self._log_bug("the sink's abort failed", error)

    def _log_bug(self, message: str, error: Exception) -> None:
        self._log.exception(
            message,
            extra={"action": "sink_bug", "sink": self.sink.name, "error": type(error).__name__},
        )
