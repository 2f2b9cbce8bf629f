"""The health of a sink: values that its worker keeps, and that the API and metrics show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from wire.record import Record

MAX_REASON_LENGTH: Final = 500
"""Reasons are stored, logged and sent to every sink: a page of HTML must not be."""

State = Literal["starting", "idle", "ok", "failing", "paused"]
"""`idle`: no failure, and no acknowledgement since the start or the last refusal."""


@dataclass(slots=True, kw_only=True)
class Health:
    """The health of a sink; it outlives the worker that a stuck call costs."""

    state: State = "starting"
    reason: str | None = None
    since: float = 0.0
    """Monotonic time of the last change of state."""
    failures: int = 0
    """Failed tries in a row."""
    refusals: int = 0
    """Refusals in a row of one and the same record."""
    refused: str | None = None
    """The id of that record."""
    acknowledged: bool = False
    """Whether the last record that the sink decided on was acknowledged, and not refused."""
    delivered: int = 0
    """Records that were acknowledged in this run."""
    delivered_at: datetime | None = None
    """When a record was last acknowledged."""
    lag: float | None = None
    """Seconds from the commit of that record to its acknowledgement."""
    failed: int = 0
    """Failed tries in this run."""
    dead: int = 0
    """Records that were marked as dead in this run."""
    stuck_threads: int = 0
    """Abandoned threads whose call has not come back."""
    next_try_at: float | None = None
    """Monotonic time of the next try while it waits, infinite where a person has to act."""

    def set_state(self, state: State, reason: str | None, now: float) -> bool:
        """Set the state; whether that is worth a line in the log."""
        changed = (state, reason) != (self.state, self.reason)
        if state != self.state:
            self.since = now
        self.state = state
        self.reason = reason
        return changed

    def took(self, count: int, *, lag: float, now: datetime) -> None:
        """So many records were acknowledged; `lag` is the last one's, in seconds."""
        self.acknowledged = True
        self.delivered += count
        self.delivered_at = now
        self.lag = lag

    def refuse(self, record: str) -> int:
        """The record of this id was refused; how often in a row by now."""
        self.refusals = self.refusals + 1 if self.refused == record else 1
        self.refused = record
        return self.refusals

    def marked_dead(self) -> None:
        """The refused record was marked as dead."""
        self.acknowledged = False
        self.refusals = 0
        self.refused = None


def reason_of(error: Exception, redact: Callable[[str], str]) -> str:
    """The text of an exception, without secrets, as one line that fits a record and a log."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  # other people's exceptions; the reason must not be lost
        text = ""
    line = " ".join(redact(text).split()).encode("utf-8", "replace").decode()
    if len(line) > MAX_REASON_LENGTH:
        line = f"{line[:MAX_REASON_LENGTH]}…"
    return line or type(error).__name__


def lag(record: Record, now: datetime) -> float:
    """Seconds since the record was observed, never less than none: the clock may have been set."""
    return max(0.0, (now - datetime.fromisoformat(record.time)).total_seconds())
