"""An event as a VM reports it, for tests of what the console decides about it."""

from __future__ import annotations

from wire.event import Event


def reported(
    event_id: str = "E", *, event_type: str | None = "Freeze", duration: int | None = None
) -> Event:
    """Return a scheduled event of the platform that names no VM."""
    return Event(
        event_id=event_id,
        event_type=event_type,
        resource_type="VirtualMachine",
        resources=(),
        event_status="Scheduled",
        not_before=None,
        description=None,
        event_source="Platform",
        duration_in_seconds=duration,
    )
