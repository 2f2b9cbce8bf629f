"""The document of IMDS as values. Azure: all fields but EventId may be missing, and new values may
appear. A field that cannot be read is null here and unchanged in `raw`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

from wire.event import STATUSES, UNKNOWN_STATUS, Event
from wire.strictjson import JsonError, load_json, same_json

# A weekday may stand in front and may be wrong (it is in Microsoft's own example), so it is not
# looked at. A zone that is not UTC or a number is not a date that we can read.
_RFC_1123: Final = re.compile(
    r"(?:[a-z]+,)?\s*(\d{1,2}) ([a-z]{3}) (\d{4}) (\d{2}:\d{2}:\d{2})(?: (?:GMT|UTC|([+-]\d{4})))?",
    re.ASCII | re.IGNORECASE,
)
_MONTHS: Final = "jan feb mar apr may jun jul aug sep oct nov dec"  # whatever the locale
_ISO_8601: Final = re.compile(r"\d{4}-\d{2}-\d{2}[t ]\d{2}:\d{2}.*", re.ASCII | re.IGNORECASE)
_STARTED: Final = "Started"
_NEVER: Final = datetime.max.replace(tzinfo=UTC)
_STATUSES: Final = {word.casefold(): word for word in STATUSES}
_INT_64: Final = range(-(1 << 63), 1 << 63)


class DocumentError(ValueError):
    """The answer of IMDS is not a Scheduled Events document; nothing can be concluded from it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledEvent(Event):
    """One entry of Events as values; `raw` is the entry as received."""

    raw: Mapping[str, Any] = field(repr=False)
    is_ambiguous: bool = False
    """Whether the document has this EventId twice with different content, see `_merged`. The event
    cannot be approved: it is unknown which entry an approval starts.
    """

    @property
    def names_its_vms(self) -> bool:
        """Whether IMDS lists every VM by name: otherwise it is unknown what an approval
        releases.
        """
        listed = self.raw.get("Resources")
        return isinstance(listed, list) and 0 < len(listed) == len(self.resources)


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A document: its events by key, in its order, and what could not be read."""

    incarnation: int | None
    events: Mapping[str, ScheduledEvent]
    ignored: tuple[str, ...] = ()
    """Why entries were left out."""
    without_this_vm: frozenset[str] = frozenset()
    """Keys of events that IMDS lists and that are left out, because they do not name this VM."""
    is_complete: bool = True
    """Whether an event that the document does not list is really gone. That is not known if an
    entry is unreadable, because it might be any event.
    """


def parse_document(body: bytes) -> Document:
    """Read a document. Raises `DocumentError` if it is not one."""
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
    found: dict[str, list[ScheduledEvent]] = {}
    ignored: list[str] = []
    is_complete = True
    for index, entry in enumerate(entries):
        event = _read_entry(entry)
        if event is None:
            ignored.append(f"entry {index} has no EventId")
            is_complete = False
            continue
        same_id = found.setdefault(event.key, [])
        if same_id:
            ignored.append(f"entry {index} repeats the EventId {event.event_id[:80]!r}")
        if not any(_same_content(each, event) for each in same_id):
            same_id.append(event)
    return Document(
        incarnation=_integer(loaded.get("DocumentIncarnation")),
        events={
            key: same_id[0] if len(same_id) == 1 else _merged(same_id)
            for key, same_id in found.items()
        },
        ignored=tuple(ignored),
        is_complete=is_complete,
    )


def _same_content(one: ScheduledEvent, other: ScheduledEvent) -> bool:
    """Check whether two entries of one EventId differ only in the case of that id."""
    return same_json({**one.raw, "EventId": ""}, {**other.raw, "EventId": ""})


def _merged(entries: Sequence[ScheduledEvent]) -> ScheduledEvent:
    """Return one event for entries that describe it differently, in any order: it names all VMs of
    each, with the earliest time and the status `Started` if one has it; the rest is from the first
    entry in the order of their JSON.
    `raw` has the same values, so that this is kept across a restart.
    """
    entries = sorted(entries, key=lambda each: json.dumps(each.raw, sort_keys=True))
    started = next((each for each in entries if each.event_status == _STARTED), entries[0])
    earliest = min(entries, key=lambda each: each.not_before or _NEVER)
    raw = {
        **entries[0].raw,
        "Resources": list(dict.fromkeys(name for each in entries for name in each.resources)),
        "EventStatus": started.raw.get("EventStatus"),
        "NotBefore": earliest.raw.get("NotBefore"),
    }
    return replace(parse_event(raw), is_ambiguous=True)


def _read_entry(entry: object) -> ScheduledEvent | None:
    """Return one entry of Events; None if it has no EventId."""
    if not isinstance(entry, dict):
        return None
    event_id = entry.get("EventId")
    return parse_event(entry) if isinstance(event_id, str) and event_id.strip() else None


def parse_event(raw: Mapping[str, Any]) -> ScheduledEvent:
    """Read one entry that has an EventId; anything else that is missing or odd becomes None."""
    duration = _integer(raw.get("DurationInSeconds"))
    status = (_text(raw.get("EventStatus")) or "").strip()
    return ScheduledEvent(
        event_id=raw["EventId"],
        event_type=_text(raw.get("EventType")),
        resource_type=_text(raw.get("ResourceType")),
        resources=_resources(raw.get("Resources")),
        event_status=_STATUSES.get(status.casefold(), status) or UNKNOWN_STATUS,
        not_before=parse_moment(raw.get("NotBefore")),
        description=_text(raw.get("Description")),
        event_source=_text(raw.get("EventSource")),
        # Azure: -1 means that the duration is not known.
        duration_in_seconds=duration if duration is not None and duration >= 0 else None,
        raw=raw,
    )


def parse_moment(value: object) -> datetime | None:
    """Return NotBefore as a moment in UTC; None if it is blank or cannot be read, never the current
    time.
    """
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
    """Return a whole number that every reader of a record can represent."""
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
