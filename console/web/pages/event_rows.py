"""Events as the pages list them: what the API shows, in the order of what is to be done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from console.db.events import WantedEvents
from console.db.snapshot import Snapshot
from console.fleet.decisions import takes_away
from console.fleet.moments import seconds_of
from console.fleet.outcomes import reason_words
from console.fleet.values import FleetEvent, KnownEvent
from console.web.answers import as_json
from console.web.events import event_item
from console.web.pages import words

EventRow = dict[str, Any]
_NAMES: Final = 3
_OF_ONE: Final = 5
"""Events of one kind that one VM may show before those of others."""
LATE_SECONDS: Final = 30.0
"""An approval that is not confirmed for so long is worth a look."""
_RANKS: Final = ("due", "second", "started", "note", "scheduled", "news", "ended")


def open_rows(snapshot: Snapshot) -> list[EventRow]:
    """All open events: decisions that are due first, then started ones, then by time left."""
    return in_order(rows_of(snapshot, snapshot.events.open()))


def found_among(snapshot: Snapshot, rows: Sequence[EventRow], q: str) -> list[EventRow]:
    """Those of some open events that somebody searches for, as `console.db.search` has it."""
    if not q:
        return list(rows)
    keys = {each.event.key for each in snapshot.events.open(WantedEvents(q=q))}
    return [row for row in rows if (row["eventId"], row["scope"]) in keys]


def rows_of(snapshot: Snapshot, several: Iterable[KnownEvent]) -> list[EventRow]:
    """Events as rows."""
    return [
        row_of(as_json(event_item(snapshot, each)), each.event, snapshot.now) for each in several
    ]


def row_of(item: Mapping[str, Any], event: FleetEvent, now: float) -> EventRow:
    """What a row shows beside what the API does."""
    names = [resource["name"] for resource in item["resources"]]
    start = seconds_of(item["notBefore"])
    return {
        **item,
        "heading": words.heading(item),
        "type": words.event_type(item["eventType"]),
        "group": group_of(item),
        "start": start,
        "first": seconds_of(item["firstSeenAt"]),
        "shown_at": event.shown_at,
        "shown_by": event.shown_by,
        "may_start": item["state"] == "scheduled"
        and not words.is_news(item)
        and start is not None
        and start <= now,
        "names": names[:_NAMES],
        "more_names": max(0, len(names) - _NAMES),
        "all_sites": event.sites,
        "sites": [site for site in event.sites if site != "default"],
        "asked_by": words.ASKED_BY.get(item["eventSource"] or ""),
        "trying": trying(item, now),
    }


def group_of(item: Mapping[str, Any]) -> str:
    """What is to be done about an event: one of `_RANKS`."""
    decision = item["decision"]["state"]
    if decision in ("due", "second"):
        return "note" if takes_away(item["eventType"]) else str(decision)
    return "news" if words.is_news(item) else str(item["state"])


def trying(item: Mapping[str, Any], now: float) -> EventRow | None:
    """How far the newest try to approve an event is; None if it was not tried, or is approved.

    `late`: for how long an approval has not been confirmed, once that is long.
    """
    decision, tries = item["decision"], item["tries"]
    if decision["state"] not in ("due", "approving") or item["state"] != "scheduled":
        return None
    begun = seconds_of(decision["at"])
    waits = decision["state"] == "approving" and begun is not None
    late = now - begun if waits and begun is not None and now - begun > LATE_SECONDS else None
    if not tries:
        untried = {"words": None, "waits": False, "until": None}
        return None if late is None else {**untried, "late": late}
    last = tries[-1]
    sent, until = seconds_of(last["sentAt"]), seconds_of(last["until"])
    # Who approves stands in the row already, as long as it is being approved.
    is_said = waits and decision["by"] == last["by"]
    return {
        "ordinal": _ordinal(len(tries)),
        "by": None if is_said else last["by"],
        "words": words.COMMAND_STATES[last["state"]],
        "at": seconds_of(last["at"]),
        "reason": reason_words(last["reason"]),
        "waits": last["state"] == "sent",
        "sent": sent,
        "until": until,
        "patience": None if sent is None or until is None else max(0.0, until - sent),
        "late": late,
    }


def _ordinal(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{'th' if number % 100 in (11, 12, 13) else ending}"


def in_order(rows: Iterable[EventRow]) -> list[EventRow]:
    """By what is to be done, then by time left; events without a time come last. Of one VM that
    shows many, those beyond a few stand behind what all others show: it delays nobody's decision.
    """
    found: list[tuple[int, bool, float, str, EventRow]] = []
    shown: Counter[tuple[str, str]] = Counter()
    for row in sorted(rows, key=_by_time):
        key = (row["group"], row["shown_by"])
        shown[key] += 1
        rank = _RANKS.index(row["group"])
        found.append((rank, shown[key] > _OF_ONE, *_by_time(row), row))
    return [each[-1] for each in sorted(found, key=lambda each: each[:-1])]


def _by_time(row: EventRow) -> tuple[float, str]:
    return (float("inf") if row["start"] is None else row["start"], row["eventId"])
