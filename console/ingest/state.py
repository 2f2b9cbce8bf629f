"""The state of a source, for status, readiness and metrics."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class SourceState:
    """Each source has one and keeps it current, from any thread."""

    name: str
    kind: str
    connected: bool = False
    since: float | None = None
    """Since when it is connected; None while it is not."""
    trouble: str | None = None
    """Why it is not connected."""
    lag: float = 0.0
    """Seconds that the last record had waited at the broker or hub."""

    def up(self, at: float) -> None:
        """It is connected now."""
        self.since, self.trouble, self.connected = at, None, True

    def down(self, why: str) -> None:
        """It is not connected any more."""
        self.since, self.trouble, self.connected = None, why, False
