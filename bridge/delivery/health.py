"""The health of a sink: values that its worker keeps, and that the API and metrics show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from sinks.driver import SinkTries
from wire.record import Record

MAX_REASON_LENGTH: Final = 500
"""Reasons are stored, logged and sent to every sink, so they must not be a page of HTML."""

State = Literal["starting", "idle", "ok", "failing", "paused"]
"""`idle`: no failure, and no acknowledgement since the start or the last refusal."""


@dataclass(slots=True, kw_only=True)
class Health(SinkTries):
    """The health of a sink. It remains when a stuck worker is replaced."""

    state: State = "starting"
    reason: str | None = None
    since: float = 0.0
    """Monotonic time of the last change of state."""
    acknowledged: bool = False
    """Whether the last record that the sink decided on was acknowledged, and not refused."""
    refusal: str | None = None
    """Why it was refused; None if it was acknowledged."""
    delivered: int = 0
    """How many records were acknowledged in this run."""
    delivered_at: datetime | None = None
    """When a record was last acknowledged."""
    lag: float | None = None
    """The seconds from the commit of that record to its acknowledgement."""
    failed: int = 0
    """How many tries have failed in this run."""
    dead: int = 0
    """How many records were marked as dead in this run."""
    next_try_at: float | None = None
    """The monotonic time of the next try; infinite if a person has to act first."""

    def set_state(self, state: State, reason: str | None, now: float) -> bool:
        """Set the state; return whether the log should have a line about that."""
        changed = (state, reason) != (self.state, self.reason)
        if state != self.state:
            self.since = now
        self.state = state
        self.reason = reason
        return changed

    def count_acknowledged(self, count: int, *, lag: float, now: datetime) -> None:
        """Count records that the sink has acknowledged; `lag` is the last one's, in seconds."""
        self.acknowledged = True
        self.refusal = None
        self.delivered += count
        self.delivered_at = now
        self.lag = lag

    def count_dead(self, reason: str) -> None:
        """Count a refused record that was marked as dead."""
        self.acknowledged = False
        self.refusal = reason
        self.refusals = 0
        self.refused_record_id = None


def reason_of(error: Exception, redact: Callable[[str], str]) -> str:
    """Return the text of an exception, without secrets, as one line that fits a record
    and a log.
    """
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  # other people's exceptions; the reason must not be lost
        text = ""
    line = " ".join(redact(text).split()).encode("utf-8", "replace").decode()
    if len(line) > MAX_REASON_LENGTH:
        line = f"{line[:MAX_REASON_LENGTH]}…"
    return line or type(error).__name__


def lag(record: Record, now: datetime) -> float:
    """Return the seconds since the record was observed, at least 0: the clock may have been set."""
    return max(0.0, (now - datetime.fromisoformat(record.time)).total_seconds())
