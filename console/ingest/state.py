"""The state of a source, for status, readiness and metrics."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class SourceState:
    """The state of one source. The source updates it, from any thread."""

    name: str
    kind: str
    is_connected: bool = False
    since: float | None = None
    """When it was connected; None while it is not."""
    trouble: str | None = None
    """Why it is not connected."""
    lag: float = 0.0
    """How many seconds the last record waited at the broker or hub."""

    def note_connected(self, at: float) -> None:
        """Note that the source is connected now."""
        self.since = at
        self.trouble = None
        self.is_connected = True

    def note_disconnected(self, reason: str) -> None:
        """Note that the source is not connected any more."""
        self.since = None
        self.trouble = reason
        self.is_connected = False
