"""The first page: whether a decision is due, for which VMs, how much time is left, which VMs are
silent, and which source is not connected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from console.db.decisions import assignments
from console.db.events.event_filters import WantedEvents
from console.db.snapshot import Snapshot
from console.db.vms.vm_lists import WantedVms
from console.fleet.contact import CONTACTS
from console.web.api.events import events_page
from console.web.app_state import AppState
from console.web.pages import event_rows
from console.web.pages.event_rows import EventListRow
from console.web.pages.formatting import MINUTE, plural
from console.web.pages.silence_causes import silence_causes

PARAMETERS: Final = ("q",)
"""The parameters of this page's address."""
_EVENTS: Final = 50
_MANY: Final = 5
"""The number of open events from which a search is offered."""
_SILENT: Final = 8
_IS: Final = ("are", "is")
_OVER: Final = 5
"""How many ended events are shown."""
# What needs a decision comes first: an eviction or a deletion needs none.
_ANSWERS: Final[Mapping[str, tuple[Sequence[str], str, str]]] = {
    "due": (("due", "second"), "decision is due", "decisions are due"),
    "started": (("started",), "event is under way", "events are under way"),
    "note": (
        ("note",),
        "eviction or deletion is announced",
        "evictions or deletions are announced",
    ),
    "scheduled": (("scheduled",), "event is scheduled", "events are scheduled"),
}

_DUE_SOON: Final = "Decision due: starts within 15 minutes"
_DUE_LATER: Final = "Decision due: starts later"
_NOTE: Final = "For your information: evictions and deletions, which you need not approve"
_UNDER_WAY: Final = "Under way"
_SCHEDULED: Final = "Scheduled"
_NEWS: Final = "News from Azure"
_HEADINGS: Final = (_DUE_SOON, _DUE_LATER, _UNDER_WAY, _NOTE, _SCHEDULED, _NEWS)
_SOON: Final = 15 * MINUTE


def template_values(state: AppState, snapshot: Snapshot, q: str) -> dict[str, Any]:
    """Return the values of the template; `q` narrows the lists of events and of silent VMs, and
    nothing else.
    """
    over, _ = events_page(snapshot, WantedEvents(q=q or None), state="over", limit=_OVER)
    rows = event_rows.open_rows(snapshot)
    found = event_rows.found_among(snapshot, rows, q)
    contacts = snapshot.vm_lists.count_by_contact()
    vms: dict[str, int] = {name: contacts.get(name, 0) for name in CONTACTS}
    vms["total"] = sum(vms.values())
    quiet = snapshot.vms.vms_with_contact(["silent"], limit=_SILENT)
    silent_found = vms["silent"]
    if q:
        quiet = snapshot.vm_lists.page_of_vms(WantedVms(q=q, contact="silent"), limit=_SILENT)
        silent_found = snapshot.vm_lists.count_by_contact(WantedVms(q=q)).get("silent", 0)
    silent = [each.vm for each in quiet]
    vm_ids = [each.vm_id for each in silent]
    on_it = assignments.assignments_of(snapshot.connection, assignments.VM, vm_ids, snapshot.now)
    return {
        "answer": answer(vms, rows),
        "vms": vms,
        "parts": parts(vms),
        "q": q,
        "has_search": bool(q) or len(rows) >= _MANY,
        "open": len(rows),
        "found": len(found),
        "groups": groups(found[:_EVENTS], snapshot.now),
        "waiting": sum(row.event.decision.state in ("due", "second") for row in rows),
        "more_events": max(0, len(found) - _EVENTS),
        "over": over,
        "silent": silent,
        "causes": silence_causes(snapshot, vms["silent"], vms["total"] - vms["retired"]),
        "silent_taken": {vm_id: by.actor for (vm_id, _), by in on_it.items()},
        "silent_found": silent_found,
        "more_silent": max(0, silent_found - len(silent)),
        "sources": list(state.sources.values()),
        "last_record_at": state.writer.progress.last_record_at,
        "refused": {name: state.writer.progress.quarantined_of(name) for name in state.sources},
    }


def answer(vms: Mapping[str, int], rows: Sequence[EventListRow]) -> dict[str, Any]:
    """Return the main sentence of the page, the event whose countdown is beside it, and the second
    sentence.
    """
    counted = {
        kind: sum(row.section in groups for row in rows)
        for kind, (groups, _, _) in _ANSWERS.items()
    }
    phrases = [
        (kind, f"{count:,} {_ANSWERS[kind][1 if count == 1 else 2]}")
        for kind, count in counted.items()
        if count
    ]
    if phrases:
        besides = [phrase for _, phrase in phrases[1:]]
        if vms["silent"]:
            besides.append(f"{plural(vms['silent'], 'VM')} {_IS[vms['silent'] == 1]} silent")
        rest = " and ".join(filter(None, [", ".join(besides[:-1]), *besides[-1:]]))
        more = f"Besides, {rest}." if rest else ""
        kind, title = phrases[0]
        groups_ = _ANSWERS[kind][0]
        event = next(row for row in rows if row.section in groups_)
    else:
        more = "There is news from Azure that needs no decision." if rows else ""
        kind = "clear"
        title = "Nothing is coming"
        event = None
        if not vms["total"]:
            kind = "empty"
            title = "No VM has reported yet"
        elif vms["learning"] * 2 > vms["total"] - vms["retired"]:
            kind = "learning"
            title = "Nothing is known to be coming"
    if vms["learning"]:
        expected = plural(vms["total"] - vms["retired"], "VM")
        title += f"; {vms['learning']:,} of {expected} not known yet"
    return {
        "kind": kind,
        "title": title,
        "event": event,
        "rest": more,
        "unknown": vms["learning"],
    }


def parts(vms: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return the bar of contacts: where each part begins and how wide it is, in per mille."""
    found = []
    start = 0.0
    total = max(1, sum(vms[name] for name in CONTACTS))
    for name in CONTACTS:
        width = 1000 * vms[name] / total
        found.append({"name": name, "count": vms[name], "x": round(start, 1), "w": round(width, 1)})
        start += width
    return found


def groups(rows: Sequence[EventListRow], now: float) -> list[tuple[str, list[EventListRow]]]:
    """Return the rows under their headings, those that start soon first. An eviction or a deletion
    is never urgent: to approve it would only take the VM away sooner.
    """
    found: dict[str, list[EventListRow]] = {heading: [] for heading in _HEADINGS}
    for row in rows:
        found[_heading(row, now)].append(row)
    return [(heading, members) for heading, members in found.items() if members]


def _heading(row: EventListRow, now: float) -> str:
    if row.section not in ("due", "second"):
        other = {"started": _UNDER_WAY, "note": _NOTE, "news": _NEWS}
        return other.get(row.section, _SCHEDULED)
    start = row.event.start
    is_soon = start is not None and start - now <= _SOON
    return _DUE_SOON if is_soon else _DUE_LATER
