"""Events as a table for a spreadsheet."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from typing import Any, Final

from console.fleet.view import SHOWN_FIELDS, Event
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
"""Fields without a place of their own: they are last, so that no other column moves."""
_DECISION: Final = ("state", "by", "at", "reason")
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
"""The beginnings of a text that a spreadsheet would compute."""


def csv_lines(events: Iterable[Event]) -> Iterator[str]:
    """The header, and a line per event."""
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
    """Texts come from outside: none of them may be a formula."""
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return "" if value is None else value
