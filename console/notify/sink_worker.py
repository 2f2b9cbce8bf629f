"""Delivers notices to one sink, in order, at least once; one console at a time delivers to it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any, Final

from sqlalchemy.exc import SQLAlchemyError

from console.db import notices as notice_rows
from console.db.connection.errors import message_of
from console.db.connection.opening import Database
from console.notify.sinks import accepts
from sinks.backoff import retry_delay
from sinks.base import Sink, SinkError, SinkPaused, SinkRejected
from sinks.driver import AbandonedError, SinkDriver, SinkTries, refused_of, taken_before
from sinks.shared.errors import SebError
from wire.record import Record

_LOG: Final = logging.getLogger("console")
_DATABASE_WAIT_SECONDS: Final = 1.0
"""The longest wait while the database does not answer."""
_IDLE_SECONDS: Final = 5.0


@dataclass(slots=True, kw_only=True)
class SinkHealth(SinkTries):
    """The health of a sink. It remains when a stuck worker is replaced."""

    trouble: str | None = None
    """Why the sink does not take notices now; None if it does."""
    delivered: int = 0
    rejected: int = 0


class SinkWorker:
    """The thread that delivers to one sink, until it is stopped, or is abandoned in a call that
    lasts longer than the sink's deadline.
    """

    def __init__(
        self,
        sink: Sink[Any],
        *,
        database: Database,
        run_id: str,
        now: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        health: SinkHealth | None = None,
    ) -> None:
        """`run_id` is the id of this run of the console, for the claim; `now` is in seconds since
        1970; `health` is that of the worker that this one replaces.
        """
        self._sink = sink
        self._database = database
        self._run_id = run_id
        self._now = now
        self._monotonic = monotonic
        self._driver = SinkDriver(sink, monotonic=monotonic, log=_LOG)
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._acknowledged = 0
        """The sequence up to which the sink has acknowledged, while the database may not have it; 0
        otherwise.
        """
        self._thread = threading.Thread(target=self._run, name=f"to {sink.name}", daemon=True)
        self.health = health or SinkHealth()

    @property
    def name(self) -> str:
        """The sink's name."""
        return self._sink.name

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Start the thread; the database is open."""
        self._thread.start()

    def wake(self) -> None:
        """Check for notices at once: there is a new one."""
        self._wake.set()

    def abandon_if_stuck(self) -> bool:
        """Abandon a call that has exceeded the sink's deadline; return whether this worker has to
        be replaced.
        """
        if not self._driver.abandon_if_overdue():
            return self._driver.is_abandoned
        self.health.failures += 1
        self._report_trouble(f"no answer within {self._driver.limit:g} s", action="sink_stuck")
        return True

    def successor(self) -> SinkWorker:
        """Return a worker with a new sink that replaces this one."""
        return SinkWorker(
            type(self._sink)(self._sink.name, self._sink.settings, self._sink.context),
            database=self._database,
            run_id=self._run_id,
            now=self._now,
            monotonic=self._monotonic,
            health=self.health,
        )

    def stop(self) -> None:
        """Stop, within seconds. The next run delivers what was not acknowledged."""
        self._stop.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(2)
            if self._thread.is_alive():
                self._driver.abandon()
                self._thread.join(3)

    def _run(self) -> None:
        if self.health.failures:
            self._wait(self.health.seconds_to_next_try())
        while not (self._stop.is_set() or self._driver.is_abandoned):
            self._wake.clear()
            try:
                more = self._deliver_round()
            except AbandonedError:
                break
            except Exception as error:  # noqa: BLE001  # a sink may raise anything
                self._wait(self._note_failure(error))
                continue
            self.health.failures = 0
            if not more:
                self._wake.wait(_IDLE_SECONDS)
        self._driver.close()

    def _deliver_round(self) -> bool:
        """Deliver the notices that wait; return whether there may be more now."""
        if self._acknowledged:  # acknowledged, but the write failed: it is not delivered again
            self._advance(self._acknowledged)
        batch = self._claim()
        if not batch:
            self._driver.maintain()
            return False
        wanted = [record for record in batch if accepts(self._sink, record)]
        done = self._deliver(wanted) or batch[-1].sequence
        self._advance(done)
        if self.health.trouble is not None:
            self.health.trouble = None
            _LOG.info("the sink takes notices", extra={"action": "sink_up", "sink": self.name})
        return True

    def _claim(self) -> list[Record]:
        """Return the next notices, if this console is the one that delivers to the sink."""
        with self._database.reading.begin() as connection:
            if not notice_rows.is_waiting(connection, self.name):
                return []
        with self._database.writing.begin() as connection:
            return notice_rows.claim(
                connection, self.name, self._run_id, now=self._now(), limit=self._sink.BATCH
            )

    def _deliver(self, wanted: list[Record]) -> int:
        """Deliver notices to the sink; return the sequence of one that it refused for good, or 0.
        Raises what the sink raises, after the notices that it took before were noted.
        """
        if not wanted:
            return 0
        self._driver.open()
        try:
            self._driver.deliver(wanted)
        except SinkRejected as error:
            self._acknowledge(wanted[: taken_before(error, wanted)])
            return self._skip_rejected(refused_of(error, wanted), error)
        except SinkError as error:
            self._acknowledge(wanted[: taken_before(error, wanted)])
            raise
        self.health.delivered += len(wanted)
        return 0

    def _acknowledge(self, taken: list[Record]) -> None:
        """Note that the sink has acknowledged these notices, and not those after them."""
        self.health.delivered += len(taken)
        if taken:
            self._advance(taken[-1].sequence)
            self.health.failures = 0  # a sink that gets on is not made to wait longer each time

    def _skip_rejected(self, record: Record, error: SinkRejected) -> int:
        """Skip a notice that the sink can never take; return its sequence. Raises `SinkError` as
        long as another try may help.
        """
        if self.health.count_refusal(record.id) < error.tries:
            raise SinkError(str(error), stays_open=error.stays_open) from None
        self.health.rejected += 1
        _LOG.error(
            "%s; this notice is not delivered there",
            error,
            extra={"action": "notice_rejected", "sink": self.name, "id": record.id},
        )
        return record.sequence

    def _advance(self, number: int) -> None:
        self._acknowledged = number
        with self._database.writing.begin() as connection:
            notice_rows.advance(connection, self.name, self._run_id, number)
        self._acknowledged = 0

    def _note_failure(self, error: Exception) -> float:
        """Note why the sink does not take notices; return the seconds until the next try, or
        infinity if it is paused.
        """
        self.health.failures += 1
        if isinstance(error, SQLAlchemyError):
            self._report_trouble(message_of(error), action="sink_down")
            return retry_delay(self.health.failures, cap=_DATABASE_WAIT_SECONDS)
        if isinstance(error, SinkPaused):
            # Its remedy is for a bridge, whose sinks a person can resume.
            trouble = f"{error.problem.what}; it is tried again when the console starts"
            self._report_trouble(trouble, action="sink_paused")
        elif isinstance(error, (SinkError, SebError)):
            self._report_trouble(str(error), action="sink_down")
        else:
            trouble = f"{type(error).__name__} in the sink"
            _LOG.exception("%s", trouble, extra={"action": "sink_bug", "sink": self.name})
            self._report_trouble(trouble, action="sink_down")
        self._driver.close_after(error)
        if isinstance(error, SinkPaused):
            return inf
        return self.health.seconds_to_next_try(error)

    def _report_trouble(self, trouble: str, *, action: str) -> None:
        if self.health.trouble != trouble and not self._stop.is_set():
            _LOG.warning("%s", trouble, extra={"action": action, "sink": self.name})
        self.health.trouble = trouble

    def _wait(self, seconds: float) -> None:
        """Wait so many seconds, or until the worker is stopped; maintain a sink that is open."""
        at = self._monotonic() + seconds
        while not (self._stop.is_set() or self._driver.is_abandoned):
            left = at - self._monotonic()
            if left <= 0:
                break
            self._driver.maintain_failing()
            self._wake.wait(min(left, _IDLE_SECONDS))
            self._wake.clear()
