"""`/vms/<id>`: one VM, how it is heard, what it missed, and what happened to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from console.db.snapshot import Snapshot
from console.fleet.moments import seconds_of
from console.fleet.values import HeardVm, KnownEvent, Vm
from console.web.answers import as_json
from console.web.pages import durations, event_rows, past, words
from console.web.pages.causes import causes
from console.web.pages.text import DAY
from console.web.vms import vm_detail

_ENTRIES: Final = 60
_HISTORY: Final = 30
_STRIP_DAYS: Final = 30
_MIN_MARK: Final = 8.0
"""Of 1,000: what can still be seen and touched."""


def values(snapshot: Snapshot, heard: HeardVm) -> dict[str, Any]:
    """What the template shows of a VM as the API describes it, with its history."""
    row, item = heard.vm, as_json(vm_detail(snapshot, heard))
    history = [_past_event(each) for each in item["history"]]
    return {
        "vm": item,
        "portal": _portal(row.resource_id),
        "heard": row.heard_at,
        "heard_by": row.heard_by,
        "patience": snapshot.listening.patience(row.interval),
        "lost": row.lost_at,
        "stopped": row.stopped_at,
        "retired": row.retired_at,
        "conflict_at": row.conflict_at,
        "said": _contradictions(row),
        "interval": row.interval,
        "open": event_rows.in_order(
            event_rows.rows_of(snapshot, _naming(snapshot.events.some(item["events"]), row.vm_id))
        ),
        "history": history[:_HISTORY],
        "silence": _silence(snapshot, heard, item),
        "strip": strip(history, snapshot.now),
        "strip_days": _STRIP_DAYS,
        "more_history": max(0, len(history) - _HISTORY),
        "missing": [
            {**gap, "count": gap["last"] - gap["first"] + 1, "at": seconds_of(gap["foundAt"])}
            for gap in item["missing"]
        ],
        # The API's timeline of a VM is newest first already.
        "timeline": past.entries(item["timeline"], lambda _: item["name"], newest_first=False)[
            :_ENTRIES
        ],
    }


def _contradictions(vm: Vm) -> list[tuple[str, str | None, str | None]]:
    """What a VM says of itself otherwise than it is known, by the label of each."""
    reported, known = vm.reported_as or vm.known_as, vm.known_as
    pairs = (
        ("Name", reported.name, known.name),
        ("Subscription", reported.subscription_id, known.subscription_id),
        ("Resource group", reported.resource_group, known.resource_group),
        ("Scale set", reported.scale_set, known.scale_set),
        ("Site", reported.site, known.site),
    )
    return [each for each in pairs if each[1] != each[2]]


def _naming(several: Iterable[KnownEvent], vm_id: str) -> list[KnownEvent]:
    """Those that name a VM: another scope may have an event of the same id."""
    return [known for known in several if vm_id in {each.vm_id for each in known.named.values()}]


def strip(history: Sequence[Mapping[str, Any]], now: float) -> list[dict[str, Any]]:
    """The events of the last days that named the VM, as marks on a line of 1,000: the start and the
    width of each, in its order of time.
    """
    begin = now - _STRIP_DAYS * DAY
    marks = []
    for each in history:
        if not each["affectsThisVm"] or each["first"] is None or each["last"] < begin:
            continue
        start = max(0.0, 1000 * (each["first"] - begin) / (now - begin))
        last = now if each["state"] != "ended" else each["last"]
        end = min(1000.0, 1000 * (last - begin) / (now - begin))
        width = max(_MIN_MARK, end - start)
        marks.append(
            {
                "event_id": each["eventId"],
                "type": each["eventType"] or "Event",
                "status": each["eventStatus"],
                "at": each["first"],
                "x": round(min(start, 1000 - width), 1),
                "width": round(width, 1),
                "kind": "open"
                if each["state"] != "ended"
                else "bad"
                if any(pair.is_worse for pair in each["measures"])
                else "over",
            }
        )
    return marks[::-1]


def _portal(resource_id: str | None) -> str | None:
    """Where Azure's portal shows a VM; None if its ARM id is not one."""
    if not resource_id or not resource_id.lower().startswith("/subscriptions/"):
        return None
    return f"https://portal.azure.com/#resource{quote(resource_id)}"


def _silence(snapshot: Snapshot, heard: HeardVm, item: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the silence of a VM means: the event that explains it and when the VM is expected back,
    and its last word; None if it is not silent.
    """
    if heard.contact != "silent":
        return None
    open_events = _naming(snapshot.events.some(item["events"]), heard.vm.vm_id)
    begun = [each for each in open_events if each.event.state == "started"]
    last = past.entries(item["timeline"][:1], lambda _: item["name"])
    found: dict[str, Any] = {"event": None, "last": last[0] if last else None, "back": None}
    contacts = snapshot.vms.counted()
    there = sum(count for contact, count in contacts.items() if contact != "retired")
    shared = causes(snapshot, contacts.get("silent", 0), there)
    found["causes"] = [each for each in shared if each.is_of(heard.vm)]
    if begun:
        event, report = begun[0].event, begun[0].shown.report
        announced = report.event.duration_in_seconds
        since = event.started_at or event.shown_at
        found |= {"event": event, "type": words.event_type(event.event_type), "since": since}
        if announced is not None and announced >= 0:
            found["back"] = since + announced
    return found


def _past_event(item: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **item,
        "type": words.event_type(item["eventType"]),
        "first": seconds_of(item["firstSeenAt"]),
        "last": seconds_of(item["lastSeenAt"]),
        "measures": durations.durations(item),
    }
