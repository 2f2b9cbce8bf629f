"""An event as a VM reports it, for tests of what the console decides about it."""

from __future__ import annotations

from dataclasses import replace

from sinks.samples import sample_event
from wire.event import Event


def reported(
    event_id: str = "E", *, event_type: str | None = "Freeze", duration: int | None = None
) -> Event:
    """Return a scheduled event of the platform that names no VM."""
    return replace(
        sample_event(event_id, resources=(), description=None),
        event_type=event_type,
        not_before=None,
        event_source="Platform",
        duration_in_seconds=duration,
    )
