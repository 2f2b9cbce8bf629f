"""Changes of a sink's condition: noted, logged once, and the wait until the next try."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from bridge.clock import Clock
from bridge.delivery.health import Health, State, reason_of
from bridge.logs import Redactor
from bridge.store.database import StoreError
from sinks.base import SinkError, SinkPaused
from wire.record import Record

log: Final = logging.getLogger("bridge.delivery.worker")

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


class Condition:
    """How one sink's worker fares."""

    def __init__(
        self,
        name: str,
        health: Health,
        clock: Clock,
        *,
        urgent: Callable[[], bool],
        redact: Redactor,
        draw: Callable[[], float],
    ) -> None:
        self._name = name
        self._health = health
        self._clock = clock
        self._urgent = urgent
        self._redact = redact
        self._draw = draw

    def recovered(self) -> None:
        """Nothing fails, at the moment. Only an acknowledged record proves that the sink works."""
        health = self._health
        state: State = "ok" if health.acknowledged else "idle"
        if health.state == state:
            return
        failures = health.failures
        if state == "ok" or failures:
            log.info(
                _MESSAGES[state],
                extra={
                    "action": _ACTIONS[state],
                    "sink": self._name,
                    "failures": failures or None,
                    "outage_seconds": self._clock.monotonic() - health.since if failures else None,
                },
            )
        health.failures = 0
        health.turn(state, None, self._clock.monotonic())

    def failed(self, error: Exception) -> float | None:
        """Note a failure; returns the seconds to wait, or None for until a person acts."""
        health = self._health
        reason = reason_of(error, self._redact)
        is_bug = not isinstance(error, (SinkError, StoreError))
        if is_bug:
            reason = f"a bug in the sink: {type(error).__name__}: {reason}"
        health.failures += 1
        health.failed += 1
        state: State = "paused" if isinstance(error, SinkPaused) else "failing"
        if health.turn(state, reason, self._clock.monotonic()):
            log.warning(
                "the sink takes no records",
                exc_info=error if is_bug else None,
                extra={
                    "action": "sink_bug" if is_bug else _ACTIONS[state],
                    "sink": self._name,
                    "reason": reason,
                },
            )
        if state == "paused":
            return None
        return self.delay(error.retry_after if isinstance(error, SinkError) else None)

    def parked(self, record: Record, reason: str) -> None:
        """Note that a record is dead for this sink."""
        self._health.parked += 1
        log.error(
            "a record is dead for this sink",
            extra={
                "action": "record_dead",
                "sink": self._name,
                "record": record.id,
                "type": record.type,
                "reason": reason,
            },
        )

    def delay(self, retry_after: float | None) -> float:
        """Seconds until the next try; `retry_after` is what the destination asked for."""
        return self._health.delay(retry_after, urgent=self._urgent(), draw=self._draw)
