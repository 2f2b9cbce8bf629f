"""An event as Azure keeps it, and how each api-version writes it. Pure values."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any, Final
from uuid import uuid4

from bridge.known_api_versions import EVENTS_API_VERSIONS

# Azure: the version history in the Scheduled Events documentation.
_PLAIN_RESOURCE_NAMES_SINCE: Final = "2017-08-01"
_TYPE_SINCE: Final = {"Preempt": "2017-11-01", "Terminate": "2019-01-01"}


def new_event_id() -> str:
    """Return a fresh EventId, upper case as IMDS writes it."""
    return str(uuid4()).upper()


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedEvent:
    """One entry of Events; `resources`: None is the simulated VM alone; `not_before`: with a time
    zone or `ValueError`; `duration`: seconds, -1 unknown.
    """

    event_type: str = "Freeze"
    event_id: str = field(default_factory=new_event_id)
    status: str = "Scheduled"
    resources: tuple[str, ...] | None = None
    not_before: datetime | None = None
    description: str = ""
    source: str = "Platform"
    duration: int = -1
    resource_type: str = "VirtualMachine"

    def __post_init__(self) -> None:
        if self.not_before is not None and self.not_before.tzinfo is None:
            raise ValueError("not_before needs a time zone, for example datetime.now(UTC)")


def render(events: Iterable[SimulatedEvent], *, incarnation: int, version: str) -> bytes:
    """Return the document in the form of an api-version, as compact JSON."""
    shown = [_entry(event, version) for event in events if visible(event, version)]
    document = {"DocumentIncarnation": incarnation, "Events": shown}
    return json.dumps(document, separators=(",", ":")).encode()


def visible(event: SimulatedEvent, version: str) -> bool:
    """Check whether the api-version knows the event's type; one that does not never shows the
    event.
    """
    return version >= _TYPE_SINCE.get(event.event_type, "")


def _entry(event: SimulatedEvent, version: str) -> dict[str, Any]:
    # Azure: 2017-03-01 puts an underscore in front of each resource name.
    mark = "" if version >= _PLAIN_RESOURCE_NAMES_SINCE else "_"
    first = EVENTS_API_VERSIONS[0]
    entry: tuple[tuple[str, str, Any], ...] = (
        ("EventId", first, event.event_id),
        ("EventStatus", first, event.status),
        ("EventType", first, event.event_type),
        ("ResourceType", first, event.resource_type),
        ("Resources", first, [mark + name for name in event.resources or ()]),
        ("NotBefore", first, _rfc1123(event)),
        ("Description", "2019-04-01", event.description),
        ("EventSource", "2019-08-01", event.source),
        ("DurationInSeconds", "2020-07-01", event.duration),
    )
    return {name: value for name, since, value in entry if version >= since}


def _rfc1123(event: SimulatedEvent) -> str:
    # Azure: NotBefore is blank once the event has started.
    if event.not_before is None or event.status == "Started":
        return ""
    # Whole seconds, cut off rather than rounded: so nothing starts before its own NotBefore.
    return format_datetime(event.not_before.astimezone(UTC), usegmt=True)
