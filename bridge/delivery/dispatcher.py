"""One worker per sink, and the watchdog that replaces a stuck one."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from bridge.clock import Clock
from bridge.config.load import SinkSpec
from bridge.delivery.health import Health
from bridge.delivery.worker import Delivered, MarkDead, Worker
from bridge.store.outbox import Outbox
from bridge.store.recipient import Recipient
from sinks.base import Sink, SinkContext, SinkSettings
from sinks.settings import PreparingSettings
from sinks.shared.logs import Redactor
from wire.record import BRIDGE_DEAD_LETTER, Record, RecordDraft

_LOG: Final = logging.getLogger(__name__)

DeadLetter = Callable[[str, Record, str, int], RecordDraft]
"""Makes the dead letter, which says that a sink refused a record: from the sink's name, the record,
the reason and the number of tries.
"""


MakeSink = Callable[[SinkSpec, SinkContext], Sink[Any]]


class BrokenSink(Sink[SinkSettings]):
    """Replaces a sink that could not be made, so that it shows as failing."""

    KIND = "broken"

    def __init__(
        self, name: str, settings: SinkSettings, context: SinkContext, error: Exception
    ) -> None:
        super().__init__(name, settings, context)
        self._error = error

    def open(self) -> None:
        """Raise what went wrong."""
        raise self._error

    def deliver(self, records: Sequence[Record]) -> None:
        """Raise what went wrong."""
        del records
        raise self._error


def make_sink(spec: SinkSpec, context: SinkContext) -> Sink[Any]:
    """Return the sink of these settings, or one that reports why it could not be made."""
    try:
        return spec.sink_class(spec.name, spec.settings, context)
    except Exception as error:  # noqa: BLE001  # one sink's bug must not stop the others
        return BrokenSink(spec.name, spec.settings, context, error)


def recipients(sinks: Iterable[Sink[Any]]) -> dict[str, Recipient]:
    """Return the configured sinks, as the outbox knows them."""
    return {
        sink.name: Recipient(
            kind=sink.settings.kind,
            prepares=_prepares(sink.settings),
            accepts=sink.accepts,
            choice=sink.settings.choice.text,
        )
        for sink in sinks
    }


def _prepares(settings: SinkSettings) -> bool:
    return isinstance(settings, PreparingSettings) and settings.prepares


class Dispatcher:
    """Serves every configured sink. All methods may be called from any thread."""

    def __init__(
        self,
        sinks: Sequence[SinkSpec],
        outbox: Outbox,
        context: SinkContext,
        clock: Clock,
        *,
        urgent: Callable[[], bool],
        dead_letter: DeadLetter,
        redact: Redactor,
        on_delivered: Delivered = lambda *_: None,
        make: MakeSink | None = None,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._make = make or make_sink
        self._specs = {spec.name: spec for spec in sinks}
        self._outbox = outbox
        self._context = context
        self._clock = clock
        self._urgent = urgent
        self._dead_letter = dead_letter
        self._redact = redact
        self._on_delivered = on_delivered
        self._draw = draw
        self._lock = threading.Lock()
        self._stuck: list[Worker] = []
        self.health = {name: Health(since=clock.monotonic()) for name in self._specs}
        self._workers = {name: self._worker(name) for name in self._specs}
        self.is_started = False
        """Whether sinks get records."""
        outbox.register(recipients(worker.sink for worker in self._workers.values()))

    def start(self) -> None:
        """Start the thread of every sink. If the system can start none now, `supervise` tries
        again.
        """
        self.is_started = True
        for worker in self._workers.values():
            worker.start_if_possible()

    def wake(self) -> None:
        """Have every sink look for records to deliver."""
        for worker in self._workers.values():
            worker.wake()

    def resume(self, sink: str) -> None:
        """Try a sink now, at a person's request. Raises `KeyError` for an unknown one."""
        self._workers[sink].resume()

    def sink(self, name: str) -> Sink[Any]:
        """Return the sink with this name. Raises `KeyError`."""
        return self._workers[name].sink

    def supervise(self) -> None:
        """Replace stuck workers, and start those that could not be started; called about once a
        second, by a clock that never goes back.
        """
        with self._lock:
            for name, worker in self._workers.items():
                if worker.abandon_if_stuck():
                    self._stuck.append(worker)
                    self._replace(name, f"no answer within {worker.driver.limit:g} s")
                elif worker.has_died():
                    self._replace(name, "its thread ended")
                elif self.is_started:
                    worker.start_if_possible()
            if self._stuck:
                self._stuck = [worker for worker in self._stuck if worker.is_alive()]
                for name, health in self.health.items():
                    health.stuck_threads = sum(worker.name == name for worker in self._stuck)

    def finish(self, seconds: float) -> bool:
        """Try each sink once more and stop within so many seconds; return whether all did."""
        if not self.is_started:
            return True
        deadline = self._clock.monotonic() + seconds
        with self._lock:
            workers = list(self._workers.values())
        for worker in workers:
            worker.finish()
        late = [each for each in workers if not each.join(deadline - self._clock.monotonic())]
        for worker in late:
            worker.abandon()
        return not late

    def _replace(self, name: str, reason: str) -> None:
        health = self.health[name]
        health.failures += 1
        health.failed += 1
        if health.set_state("failing", reason, self._clock.monotonic()):
            _LOG.warning(
                "the sink is stuck and gets a new worker",
                extra={"action": "sink_stuck", "sink": name, "reason": reason},
            )
        health.stuck_threads = sum(worker.name == name for worker in self._stuck)
        self._workers[name] = self._worker(name)
        self._workers[name].start_if_possible()

    def _worker(self, name: str) -> Worker:
        spec = self._specs[name]
        return Worker(
            self._make(spec, self._context),
            self._outbox,
            self._clock,
            self.health[name],
            urgent=self._urgent,
            mark_dead=self._mark_dead(name),
            redact=self._redact,
            on_delivered=self._on_delivered,
            draw=self._draw,
        )

    def _mark_dead(self, name: str) -> MarkDead:
        def mark_dead(record: Record, *, reason: str, attempts: int, again: bool) -> None:
            # No dead letter about a dead letter, or each would make another, nor about heartbeats.
            notice = (
                None
                if record.is_heartbeat or record.type == BRIDGE_DEAD_LETTER
                else self._dead_letter(name, record, reason, attempts)
            )
            self._outbox.mark_dead(
                name,
                record.sequence,
                reason=reason,
                attempts=attempts,
                now=self._clock.now(),
                again=again,
                notice=notice,
            )

        return mark_dead
