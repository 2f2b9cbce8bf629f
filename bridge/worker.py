"""One sink's worker: it takes records from the outbox in order, and gives up on none of them.

It knows nothing of other sinks, so that none can delay another.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from typing import Any, Final

from bridge.clock import Clock
from bridge.logs import Redactor
from bridge.outbox import Batch, Outbox
from bridge.sinkhealth import (
    IDLE_SECONDS,
    MAX_RETRY_AFTER_SECONDS,
    MAX_RETRY_SECONDS,
    URGENT_RETRY_SECONDS,
    Health,
    State,
    retry_delay,
)
from bridge.store import StoreError
from sinks.base import Sink, SinkError, SinkPaused, SinkRejected
from sinks.record import EventRecord

log: Final = logging.getLogger(__name__)

Park = Callable[[EventRecord, str, int], None]
"""Parks a record as dead: the record, the reason, and how often it was tried."""


class _AbandonedError(Exception):
    """The call came back after the watchdog had given up on it."""


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
        park: Park,
        redact: Redactor,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self.sink = sink
        self.name = sink.name
        self.health = health
        self._outbox = outbox
        self._clock = clock
        self._urgent = urgent
        self._park = park
        self._redact = redact
        self._draw = draw
        self._opened = False
        self._busy_since: float | None = None
        self._refused: str | None = None
        self._wake = threading.Event()
        self._resumed = threading.Event()
        self._finishing = threading.Event()
        self._abandoned = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"sink-{self.name}", daemon=True)

    def start(self) -> None:
        """Begin to deliver."""
        self._thread.start()

    def wake(self) -> None:
        """There may be something to deliver."""
        self._wake.set()

    def finish(self) -> None:
        """Try at once what is left, until the first failure, then close and end."""
        self._finishing.set()
        self._wake.set()

    def resume(self) -> None:
        """A person wants a paused or failing sink to be tried now."""
        self._resumed.set()
        self._wake.set()

    def is_stuck(self) -> bool:
        """Whether the call that is under way has passed the sink's deadline."""
        since = self._busy_since
        return since is not None and self._clock.monotonic() - since > self.sink.deadline

    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def abandon(self) -> None:
        """Never use this worker's results again; its thread ends when its call comes back."""
        self._abandoned.set()
        self._wake.set()
        try:
            self.sink.abort()
        except Exception as error:
            log.exception(
                "the sink's abort failed",
                extra={"action": "sink_bug", "sink": self.name, "error": type(error).__name__},
            )

    def join(self, seconds: float) -> bool:
        """Wait until the thread has ended; False where it has not within so many seconds."""
        self._thread.join(max(0.0, seconds))
        return not self._thread.is_alive()

    def _run(self) -> None:
        if self.health.failures:
            self._wait(self._delay(None))
        while not self._abandoned.is_set():
            last = self._finishing.is_set()
            try:
                self._serve()
                break
            except _AbandonedError:
                return
            except Exception as error:  # noqa: BLE001  # one of the three places that catch broadly
                self._close()
                if last or self._abandoned.is_set():
                    break
                self._wait(self._failed(error))
                if self.health.state == "paused" and self._finishing.is_set():
                    break
        self._close()

    def _serve(self) -> None:
        """Open the sink, and deliver until there is nothing left to do and the end is near."""
        self._opened = True  # whether it goes well or not: close is for both
        self._call(self.sink.open)
        while True:
            batch = self._outbox.next(self.name, self.sink.accepts, self.sink.BATCH)
            if batch is not None:
                self._deliver(batch)
            self._call(self.sink.maintain)
            self._healthy()
            if batch is None:
                if self._finishing.is_set():
                    return
                self._wake.wait(IDLE_SECONDS)
                self._wake.clear()

    def _deliver(self, batch: Batch) -> None:
        try:
            self._call(lambda: self.sink.deliver(batch.records))
        except SinkRejected as error:
            self._outbox.delivered(self.name, batch, error.delivered)
            self._refuse(batch.records[min(error.delivered, len(batch.records) - 1)], error)
        except SinkError as error:
            self._outbox.delivered(self.name, batch, error.delivered)
            raise
        else:
            self._outbox.delivered(self.name, batch)
            self.health.delivered += len(batch.records)

    def _refuse(self, record: EventRecord, error: SinkRejected) -> None:
        """Park the record, or have it tried again where the sink says that it may yet be taken."""
        self.health.refusals = self.health.refusals + 1 if self._refused == record.id else 1
        self._refused = record.id
        if self.health.refusals < error.tries:
            raise SinkError(str(error)) from error
        reason = self._redact(str(error))
        self._park(record, reason, self.health.refusals)
        log.error(
            "a record is dead for this sink",
            extra={
                "action": "record_dead",
                "sink": self.name,
                "record": record.id,
                "type": record.type,
                "reason": reason,
            },
        )
        self.health.refusals, self._refused = 0, None

    def _call(self, work: Callable[[], None]) -> None:
        self._busy_since = self._clock.monotonic()
        try:
            work()
        finally:
            self._busy_since = None
            if self._abandoned.is_set():
                raise _AbandonedError from None

    def _close(self) -> None:
        if self._opened:
            self._opened = False
            try:
                self._call(self.sink.close)
            except _AbandonedError:
                pass
            except Exception as error:
                log.exception(
                    "the sink's close failed",
                    extra={"action": "sink_bug", "sink": self.name, "error": type(error).__name__},
                )

    def _healthy(self) -> None:
        health = self.health
        if health.state == "ok":
            return
        outage = self._clock.monotonic() - health.since if health.failures else None
        log.info(
            "the sink takes records",
            extra={
                "action": "sink_up",
                "sink": self.name,
                "failures": health.failures or None,
                "outage_seconds": outage,
            },
        )
        health.failures = 0
        health.turn("ok", None, self._clock.monotonic())

    def _failed(self, error: Exception) -> float | None:
        """Note a failure; returns the seconds to wait, or None for until a person acts."""
        health = self.health
        reason = self._redact(str(error))
        if not isinstance(error, (SinkError, StoreError)):
            reason = f"a bug in the sink: {type(error).__name__}: {reason}"
            log.error(reason, exc_info=error, extra={"action": "sink_bug", "sink": self.name})
        health.failures += 1
        state: State = "paused" if isinstance(error, SinkPaused) else "failing"
        if health.turn(state, reason, self._clock.monotonic()):
            log.warning(
                "the sink takes no records",
                extra={
                    "action": "sink_paused" if state == "paused" else "sink_down",
                    "sink": self.name,
                    "reason": reason,
                },
            )
        if state == "paused":
            return None
        return self._delay(error.retry_after if isinstance(error, SinkError) else None)

    def _delay(self, retry_after: float | None) -> float:
        if retry_after is not None:
            return min(max(retry_after, 0.0), MAX_RETRY_AFTER_SECONDS)
        # Each call that is still stuck in an abandoned thread slows the making of more of them.
        cap = URGENT_RETRY_SECONDS if self._urgent() else MAX_RETRY_SECONDS
        return retry_delay(self.health.failures, cap=cap, draw=self._draw) + (
            self.health.stuck_threads * MAX_RETRY_SECONDS
        )

    def _wait(self, seconds: float | None) -> None:
        """Wait so long, or until there is a reason not to."""
        started = self._clock.monotonic()
        while not (self._finishing.is_set() or self._abandoned.is_set()):
            if self._resumed.is_set():
                self._resumed.clear()
                return
            left = None if seconds is None else started + seconds - self._clock.monotonic()
            if left is not None and left <= 0:
                return
            self._wake.wait(left if left is None else min(left, IDLE_SECONDS))
            self._wake.clear()
            if left is not None and left > URGENT_RETRY_SECONDS and self._urgent():
                started, seconds = self._clock.monotonic(), self._draw() * URGENT_RETRY_SECONDS
