"""Events as a table for a spreadsheet."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from typing import Any, Final

from console.fleet.event_view import SHOWN_FIELDS, EventItem
from console.web.answers import as_json

_FIELDS: Final = (
    "eventId",
    "state",
    "eventStatus",
    "eventType",
    "eventSource",
    "impact",
    "firstSeenAt",
    "notBefore",
    "startedAt",
    "endedAt",
    "noticeSeconds",
    "durationInSeconds",
    "downtimeSeconds",
    "seenBy",
    "description",
)
_NEWER: Final = tuple(name for name in SHOWN_FIELDS if name not in _FIELDS)
"""Fields that were added later: they come last, so that no other column moves."""
_DECISION: Final = ("state", "by", "at", "reason")
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
"""The first characters of a text that a spreadsheet would take for a formula."""


def csv_lines(events: Iterable[EventItem]) -> Iterator[str]:
    """Yield the header, and a line for each event."""
    decided = (f"decision.{name}" for name in _DECISION)
    yield _line([*_FIELDS, "resources", *decided, *_NEWER])
    for item in map(as_json, events):
        names = " ".join(str(each["name"]) for each in item["resources"])
        decision = item["decision"]
        fields = [item[name] for name in _FIELDS]
        newer = [item[name] for name in _NEWER]
        yield _line([*fields, names, *(decision[name] for name in _DECISION), *newer])


def _line(values: Iterable[Any]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\r\n").writerow(map(_cell, values))
    return buffer.getvalue()


def _cell(value: Any) -> Any:
    """Return the content of a cell: a text from outside must not become a formula."""
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return "" if value is None else value
