"""The worker of one sink: it delivers records in order, and knows nothing of other sinks."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Final, Protocol

from bridge.clock import Clock
from bridge.delivery.health import Health, State, lag, reason_of
from bridge.delivery.open_connection import OpenConnection
from bridge.store.batch import Batch
from bridge.store.database import StoreError
from bridge.store.outbox import Outbox
from sinks.backoff import URGENT_RETRY_SECONDS, may_hurry
from sinks.base import Sink, SinkError, SinkPaused, SinkRejected
from sinks.driver import AbandonedError, SinkDriver, refused_of, taken_before
from sinks.shared.logs import Redactor
from sinks.shared.threads import try_to_start
from wire.record import Record

_LOG: Final = logging.getLogger(__name__)

IDLE_SECONDS: Final = 5.0
"""How often an idle sink gets its `maintain`."""
_ACTIONS: Final = {
    "ok": "sink_up",
    "idle": "sink_idle",
    "failing": "sink_down",
    "paused": "sink_paused",
}
_MESSAGES: Final = {
    "ok": "the sink takes records",
    "idle": "the sink does not fail any more; no record has been acknowledged yet",
}


class MarkDead(Protocol):
    """Marks a record as dead in the store."""

    def __call__(self, record: Record, *, reason: str, attempts: int, again: bool) -> None:
        """Mark the record; `again`: it was dead before, and a person had it tried again."""


Delivered = Callable[[str, Sequence[float]], None]
"""Called with the sink's name, and for each acknowledged record the seconds since its commit."""


@dataclass(frozen=True, slots=True)
class _Refusal:
    """A record that the sink has refused for good."""

    record: Record
    reason: str
    tries: int


class Worker:
    """A thread that serves one sink until it is told to finish, or is abandoned."""

    def __init__(
        self,
        sink: Sink[Any],
        outbox: Outbox,
        clock: Clock,
        health: Health,
        *,
        urgent: Callable[[], bool],
        mark_dead: MarkDead,
        redact: Redactor,
        on_delivered: Delivered,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self.sink = sink
        self.name = sink.name
        self.health = health
        self.driver = SinkDriver(sink, monotonic=clock.monotonic, log=_LOG)
        self._outbox = outbox
        self._clock = clock
        self._urgent = urgent
        self._mark_dead_in_store = mark_dead
        self._redact = redact
        self._on_delivered = on_delivered
        self._draw = draw
        self._connection = OpenConnection(self.driver, clock, draw=draw)
        self._unwritten: _Refusal | None = None
        """A refusal that the store has not taken yet."""
        self._has_opened = False
        """Whether the sink was open since the last failure."""
        self._ended = False
        self._wake = threading.Event()
        self._resumed = threading.Event()
        self._finishing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"sink-{self.name}", daemon=True)

    def start_if_possible(self) -> None:
        """Start the thread unless it was started; if the system can start none now, the caller
        tries again later.
        """
        if not self._is_started:
            try_to_start(self._thread)

    def wake(self) -> None:
        """Make the thread look for records: some may have been committed."""
        self._wake.set()

    def finish(self) -> None:
        """Try once more to deliver the records that are left, until the first failure. After that,
        close the sink and stop.
        """
        self._finishing.set()
        self._wake.set()

    def resume(self) -> None:
        """Try a paused or failing sink now, at a person's request."""
        self._resumed.set()
        self._wake.set()

    def abandon_if_stuck(self) -> bool:
        """Abandon a call that has exceeded the sink's deadline; return whether there was one."""
        is_stuck = self.driver.abandon_if_overdue()
        if is_stuck:
            self._wake.set()
        return is_stuck

    def is_alive(self) -> bool:
        """Check whether the thread runs."""
        return self._thread.is_alive()

    def has_died(self) -> bool:
        """Check whether the thread has ended although it was not told to."""
        return self._is_started and not (self._thread.is_alive() or self._ended)

    def abandon(self) -> None:
        """Ignore this worker's results from now on; its thread ends when its call returns."""
        self.driver.abandon()
        self._wake.set()

    def join(self, seconds: float) -> bool:
        """Wait until the thread has ended; return False if it has not within so many seconds, or
        could not be started.
        """
        if not self._is_started:
            return False
        self._thread.join(max(0.0, seconds))
        return not self._thread.is_alive()

    @property
    def _is_started(self) -> bool:
        return self._thread.ident is not None

    def _run(self) -> None:
        if self.health.failures:
            self._wait(self._seconds_to_next_try())
        while not self.driver.is_abandoned:
            last = self._finishing.is_set()
            try:
                self._serve()
                break
            except AbandonedError:
                break
            except Exception as error:  # noqa: BLE001  # one of the three places that catch broadly
                self.driver.close_after(error)
                self._connection.note_failure(error, has_opened=self._has_opened)
                if last or self.driver.is_abandoned:
                    break
                self._wait(self._note_failure(error))
                if self.health.state == "paused" and self._finishing.is_set():
                    break
        self.driver.close()
        self._ended = True

    def _serve(self) -> None:
        """Open the sink, and deliver until nothing is left and the worker is to finish."""
        self._has_opened = self.driver.is_open
        self.driver.open()
        self._has_opened = True
        while True:
            batch = self._outbox.next(self.name, self.sink.BATCH)
            if batch is not None:
                self._deliver(batch)
            self.driver.maintain()
            self._note_success()
            if batch is None:
                if self._finishing.is_set():
                    return
                # Random, or VMs that were disconnected at one moment would all reconnect at one
                # moment.
                self._wake.wait(IDLE_SECONDS * (0.5 + self._draw()))
                self._wake.clear()

    def _deliver(self, batch: Batch) -> None:
        if batch.damaged is not None:
            self._mark_dead(batch, 0, batch.damaged, tries=0)
            return
        unwritten = self._unwritten
        if unwritten is not None and unwritten.record.id == batch.records[0].id:
            self._give_up_on(batch, 0, unwritten)
            return
        try:
            self.driver.deliver(batch.records)
        except SinkRejected as error:
            self._mark_part(batch, error)
            self._refuse(batch, error)
        except SinkError as error:
            self._mark_part(batch, error)
            raise
        else:
            self._mark(batch, len(batch.records))

    def _mark_part(self, batch: Batch, error: SinkError | SinkRejected) -> None:
        """Note which records from the front of the batch were delivered before an error."""
        done = taken_before(error, batch.records)
        if done:
            self._mark(batch, done)
            self.health.failures = 0  # a sink that gets on is not made to wait longer each time

    def _mark(self, batch: Batch, count: int) -> None:
        self._outbox.move_past(self.name, batch, count)
        now = self._clock.now()
        lags = [lag(each, now) for each in batch.records[:count]]
        self.health.count_acknowledged(count, lag=lags[-1], now=now)
        self._on_delivered(self.name, lags)

    def _refuse(self, batch: Batch, error: SinkRejected) -> None:
        """Mark the record as dead, or try it again if the sink says that it may still accept it."""
        record = refused_of(error, batch.records)
        tries = self.health.count_refusal(record.id)
        if tries < error.tries:
            raise SinkError(str(error), stays_open=error.stays_open) from error
        refusal = _Refusal(record, reason_of(error, self._redact), tries)
        self._give_up_on(batch, error.delivered, refusal)

    def _give_up_on(self, batch: Batch, index: int, refusal: _Refusal) -> None:
        """Mark a refused record as dead. If the store does not take that, it is done later, without
        another delivery.
        """
        self._unwritten = refusal
        self._mark_dead(batch, index, refusal.reason, tries=refusal.tries)
        self._unwritten = None
        self.health.count_dead(f"the last record was refused: {refusal.reason}")

    def _mark_dead(self, batch: Batch, index: int, reason: str, *, tries: int) -> None:
        record = batch.records[index]
        self._mark_dead_in_store(record, reason=reason, attempts=tries, again=batch.again)
        self.health.dead += 1
        _LOG.error(
            "a record is dead for this sink",
            extra={
                "action": "record_dead",
                "sink": self.name,
                "record": record.id,
                "type": record.type,
                "reason": reason,
            },
        )

    def _note_success(self) -> None:
        """Note that the sink works. Only an acknowledged record proves that."""
        health = self.health
        state: State = "ok" if health.acknowledged else "idle"
        if (health.state, health.reason) == (state, health.refusal):
            return
        failures = health.failures
        if state == "ok" or failures:
            _LOG.info(
                _MESSAGES[state],
                extra={
                    "action": _ACTIONS[state],
                    "sink": self.name,
                    "failures": failures or None,
                    "outage_seconds": self._clock.monotonic() - health.since if failures else None,
                },
            )
        health.failures = 0
        health.set_state(state, health.refusal, self._clock.monotonic())

    def _note_failure(self, error: Exception) -> float | None:
        """Log a failure that is new; return the seconds to wait, or None to wait for a person."""
        health = self.health
        reason = reason_of(error, self._redact)
        is_bug = not isinstance(error, (SinkError, StoreError))
        if is_bug:
            reason = f"a bug in the sink: {type(error).__name__}: {reason}"
        health.failures += 1
        health.failed += 1
        state: State = "paused" if isinstance(error, SinkPaused) else "failing"
        if health.set_state(state, reason, self._clock.monotonic()):
            _LOG.warning(
                "the sink takes no records",
                exc_info=error if is_bug else None,
                extra={
                    "action": "sink_bug" if is_bug else _ACTIONS[state],
                    "sink": self.name,
                    "reason": reason,
                },
            )
        if state == "paused":
            return None
        return self._seconds_to_next_try(error)

    def _seconds_to_next_try(self, error: Exception | None = None) -> float:
        return self.health.seconds_to_next_try(error, urgent=self._urgent(), draw=self._draw)

    def _wait(self, seconds: float | None) -> None:
        """Wait so many seconds, or until a person resumes the sink, or the worker is to finish."""
        at = self._clock.monotonic() + (inf if seconds is None else seconds)
        stuck = self.health.stuck_threads
        while not (self._finishing.is_set() or self.driver.is_abandoned or self._resumed.is_set()):
            self.health.next_try_at = at
            left = at - self._clock.monotonic()
            if left <= 0:
                break
            self._connection.maintain()
            self._wake.wait(min(left, IDLE_SECONDS))
            self._wake.clear()
            now = self._clock.monotonic()
            if self.health.stuck_threads < stuck and at < inf:
                # A call that was stuck has returned: the destination may be back.
                stuck = self.health.stuck_threads
                at = min(at, now + self._seconds_to_next_try())
            long = URGENT_RETRY_SECONDS < at - now < inf
            if long and may_hurry(self.health.stuck_threads, urgent=self._urgent()):
                at = now + self._draw() * URGENT_RETRY_SECONDS
        self._resumed.clear()
        self.health.next_try_at = None
