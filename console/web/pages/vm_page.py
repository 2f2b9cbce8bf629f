"""`/vms/<id>`: one VM, how it is heard, what it missed, and what happened to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from console.fleet.contact import silent_after
from console.web.desk import Desk
from console.web.pages import event_rows, measures, past, text, words

_ENTRIES: Final = 60
_HISTORY: Final = 30


def values(desk: Desk, item: Mapping[str, Any], now: float) -> dict[str, Any]:
    """What the template shows of a VM as the API describes it, with its history."""
    row = desk.fleet.vms[item["vmId"]]
    history = [_past_event(each) for each in item["history"]]
    return {
        "vm": item,
        "heard": row.heard_at,
        "heard_by": row.heard_by,
        "patience": silent_after(row, desk.ears()),
        "lost": row.lost_at,
        "stopped": row.stopped_at,
        "retired": row.retired_at,
        "interval": row.interval,
        "open": [
            each for each in event_rows.open_rows(desk, now) if each["eventId"] in item["events"]
        ],
        "history": history[:_HISTORY],
        "more_history": max(0, len(history) - _HISTORY),
        "missing": [
            {**gap, "count": gap["last"] - gap["first"] + 1, "at": text.seconds_of(gap["foundAt"])}
            for gap in item["missing"]
        ],
        # The API's timeline of a VM is newest first already.
        "timeline": past.entries(item["timeline"], lambda _: item["name"], newest_first=False)[
            :_ENTRIES
        ],
    }


def _past_event(item: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **item,
        "type": words.event_type(item["eventType"]),
        "first": text.seconds_of(item["firstSeenAt"]),
        "last": text.seconds_of(item["lastSeenAt"]),
        "measures": measures.measures(item),
    }
