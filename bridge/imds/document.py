"""The document of IMDS as values. Azure: all fields but EventId may be absent, and new words may
appear; what cannot be read is null here and untouched in `raw`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final

from bridge.imds.entries import Entries, split
from bridge.strictjson import JsonError, load_json
from sinks.record import canonical_json

STATUSES: Final = {
    word.casefold(): word for word in ("Scheduled", "Started", "Completed", "Canceled")
}
UNKNOWN_STATUS: Final = "Unknown"

IMPACTS: Final = {
    "freeze": "pause",
    "reboot": "restart",
    "redeploy": "redeploy",
    "preempt": "delete",
    "terminate": "delete",
}

# A weekday may stand in front and may be wrong (it is in Microsoft's own example), so it is not
# looked at. A zone that is not UTC or a number is not a date that we can read.
_RFC_1123: Final = re.compile(
    r"(?:[a-z]+,)?\s*(\d{1,2}) ([a-z]{3}) (\d{4}) (\d{2}:\d{2}:\d{2})(?: (?:GMT|UTC|([+-]\d{4})))?",
    re.ASCII | re.IGNORECASE,
)
_MONTHS: Final = "jan feb mar apr may jun jul aug sep oct nov dec"  # whatever the locale
_ISO_8601: Final = re.compile(r"\d{4}-\d{2}-\d{2}[t ]\d{2}:\d{2}.*", re.ASCII | re.IGNORECASE)
_INT_64: Final = range(-(1 << 63), 1 << 63)


# What an approver must have seen: all that a record says of the event, but its description.
_SEEN: Final = (
    *("eventId", "eventType", "resourceType", "eventStatus"),
    *("notBefore", "eventSource", "durationInSeconds"),
)


class DocumentError(ValueError):
    """What IMDS sent is no Scheduled Events document; nothing can be concluded from it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledEvent:
    """One entry of Events, in values; `raw` is the entry as it came."""

    event_id: str
    event_type: str | None
    resource_type: str | None
    resources: tuple[str, ...]
    event_status: str
    not_before: datetime | None
    description: str | None
    event_source: str | None
    duration_in_seconds: int | None
    raw: Mapping[str, Any] = field(repr=False)

    @property
    def key(self) -> str:
        """What identifies the event: its case differs between IMDS and ARM."""
        return self.event_id.casefold()

    @property
    def impact(self) -> str | None:
        """What type and duration mean for a VM that is named; None for an unknown type."""
        impact = IMPACTS.get((self.event_type or "").casefold())
        # Azure: a duration of 0 says that there is no interruption. Only a pause can be that
        # short; a restart or a deletion is felt whatever the announced duration.
        return "none" if impact == "pause" and self.duration_in_seconds == 0 else impact

    @property
    def names_its_vms(self) -> bool:
        """Whether IMDS lists every VM by name: else it is unknown what an approval releases."""
        listed = self.raw.get("Resources")
        return isinstance(listed, list) and 0 < len(listed) == len(self.resources)

    def affects(self, vm_name: str) -> bool:
        """Whether `resources` names the VM: the whole name, without regard to case."""
        name = vm_name.casefold()
        return any(resource.casefold() == name for resource in self.resources)

    def to_wire(self, *, status: str | None = None) -> dict[str, Any]:
        """The object that stands in a record as `data.event`, with another status if given."""
        return {
            "eventId": self.event_id,
            "eventType": self.event_type,
            "resourceType": self.resource_type,
            "resources": list(self.resources),
            "eventStatus": status or self.event_status,
            "notBefore": moment_text(self.not_before),
            "description": self.description,
            "eventSource": self.event_source,
            "durationInSeconds": self.duration_in_seconds,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A document: its events by key, in its own order, and what of it could not be read."""

    incarnation: int | None
    events: Mapping[str, ScheduledEvent]
    ignored: tuple[str, ...] = ()
    """Why entries were left out."""
    elsewhere: frozenset[str] = frozenset()
    """Keys of events that go on, and are left out because they do not name this VM."""
    whole: bool = True
    """Whether absence of an event proves anything: not while an entry might be any event."""
    entries: Entries = field(default=Entries(), repr=False, compare=False)
    """What was read from which text, for the next document."""


def fingerprint(event: Mapping[str, Any]) -> str:
    """The hash of what an approver must have seen, the same on every VM that sees the event."""
    seen = {name: event[name] for name in _SEEN} | {"resources": sorted(event["resources"])}
    return f"sha256:{sha256(canonical_json(seen)).hexdigest()}"


def moment_text(moment: datetime | None) -> str | None:
    """A moment as RFC 3339 in UTC, with a fraction only where there is one."""
    return None if moment is None else moment.isoformat().replace("+00:00", "Z")


def parse_document(body: bytes, before: Document | None = None) -> Document:
    """Read a document, known entries from `before`. Raises `DocumentError` if it is not one."""
    known = before.entries if before else Entries()
    loaded, entries = split(body, known, _read_entry) or _read_whole(body)
    events, ignored, whole = _unchanged(before, entries), list[str](), True
    if events is None:
        events = {}
        for place, event in enumerate(entries.values):
            if event is None:
                ignored.append(f"entry {place} has no EventId")
                whole = False
            elif events.setdefault(event.key, event) is not event:
                ignored.append(f"entry {place} repeats the EventId {event.event_id[:80]!r}")
    return Document(
        incarnation=_integer(loaded.get("DocumentIncarnation")),
        events=events,
        ignored=tuple(ignored),
        whole=whole,
        entries=entries,
    )


def _unchanged(before: Document | None, entries: Entries) -> dict[str, ScheduledEvent] | None:
    """The events, if they are those of before in their places, changed or not; else None."""
    if before is None or before.ignored or len(before.entries.values) != len(entries.values):
        return None
    pairs = zip(before.entries.values, entries.values, strict=True)
    changed = [(old, new) for old, new in pairs if old is not new]
    if not all(new is not None and new.key == old.key for old, new in changed):
        return None
    return {**before.events, **{new.key: new for _, new in changed}}


def _read_whole(body: bytes) -> tuple[Mapping[str, Any], Entries]:
    try:
        loaded = load_json(body)
    except JsonError as error:
        raise DocumentError(str(error)) from None
    if not isinstance(loaded, dict):
        raise DocumentError(f"the document is a JSON {type(loaded).__name__}, not an object")
    entries = loaded.get("Events")
    if not isinstance(entries, list):
        # An error body is an object without Events: read as 'no events', it would end them all.
        raise DocumentError("the document has no list called Events")
    return loaded, Entries([_read_entry(entry) for entry in entries])


def _read_entry(entry: object) -> ScheduledEvent | None:
    """One entry of Events; None if it has no EventId."""
    if not isinstance(entry, dict):
        return None
    event_id = entry.get("EventId")
    return parse_event(entry) if isinstance(event_id, str) and event_id.strip() else None


def parse_event(raw: Mapping[str, Any]) -> ScheduledEvent:
    """Read one entry that has an EventId; whatever else is missing or odd becomes None."""
    duration = _integer(raw.get("DurationInSeconds"))
    status = _text(raw.get("EventStatus")) or ""
    return ScheduledEvent(
        event_id=raw["EventId"],
        event_type=_text(raw.get("EventType")),
        resource_type=_text(raw.get("ResourceType")),
        resources=_resources(raw.get("Resources")),
        event_status=STATUSES.get(status.strip().casefold(), UNKNOWN_STATUS),
        not_before=parse_moment(raw.get("NotBefore")),
        description=_text(raw.get("Description")),
        event_source=_text(raw.get("EventSource")),
        # Azure: -1 means that the duration is not known.
        duration_in_seconds=duration if duration is not None and duration >= 0 else None,
        raw=raw,
    )


def parse_moment(value: object) -> datetime | None:
    """NotBefore as a moment in UTC; None where it is blank or cannot be read, never 'now'."""
    text = value.strip() if isinstance(value, str) else ""
    try:
        if match := _RFC_1123.fullmatch(text):
            day, month, year, time, zone = match.groups()
            number = _MONTHS.index(month.lower()) // 4 + 1
            text = f"{year}-{number:02}-{day:0>2}T{time}{zone or 'Z'}"
        elif not _ISO_8601.fullmatch(text):
            return None
        moment = datetime.fromisoformat(text.upper())
        return moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _integer(value: object) -> int | None:
    """A whole number that every reader of a record can hold."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and value in _INT_64 else None


def _resources(value: object) -> tuple[str, ...]:
    names = value if isinstance(value, list) else [value]
    # Azure: api-version 2017-03-01 puts an underscore in front; no VM name may begin with one.
    plain = (name.removeprefix("_") for name in names if isinstance(name, str))
    return tuple(name for name in plain if name)
