"""Timelines in sentences: what happened, newest first, equal reports of many VMs in one line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from console.fleet.moments import seconds_of
from console.fleet.outcomes import reason_words
from console.web.pages import words

_TRANSITIONS: Final[Mapping[str, tuple[str, str, str]]] = {
    "scheduled": ("Announced", "amber", "hollow"),
    "updated": ("Changed", "amber", "hollow"),
    "started": ("Started", "red", ""),
    "ended": ("Ended", "green", ""),
}
_PREPARATIONS: Final[Mapping[str, tuple[str, str, str]]] = {
    "preparing": ("Preparing", "blue", "square"),
    "prepared": ("Prepared", "green", "square"),
    "failed": ("Preparation failed", "red", "square"),
    "recovered": ("Recovered", "green", "square"),
}
_BRIDGE: Final[Mapping[str, tuple[str, str, str]]] = {
    "seb.bridge.started.v1": ("Bridge started", "soft", "square"),
    "seb.bridge.stopped.v1": ("Bridge stopped", "soft", "square"),
    "seb.bridge.gap.v1": ("The bridge did not look for a while", "violet", "hollow"),
    "seb.bridge.store-reset.v1": ("The bridge lost its store and began a new one", "red", "square"),
    "seb.bridge.dead-letter.v1": ("A sink refused a record for good", "red", "square"),
}


@dataclass(slots=True, kw_only=True)
class Entry:
    """One line of a timeline."""

    at: float | None
    title: str
    tone: str
    shape: str
    reason: str | None = None
    by: str | None = None
    why: str | None = None
    """The approver's own words."""
    vms: list[tuple[str, str]] = field(default_factory=list)
    """vmId and name of those that reported it."""
    vm_word: str = "reported by"
    event_id: str | None = None


def entries(
    items: Iterable[Mapping[str, Any]], name_of: Callable[[str], str], *, newest_first: bool = True
) -> list[Entry]:
    """The lines of a timeline of the API; neighbours that say the same are one line."""
    found: list[Entry] = []
    for item in items:
        entry = _entry(item)
        vm = (item["vmId"], name_of(item["vmId"])) if item.get("vmId") else None
        last = found[-1] if found else None
        if last is not None and (last.title, last.event_id, last.reason, last.by, last.why) == (
            entry.title,
            entry.event_id,
            entry.reason,
            entry.by,
            entry.why,
        ):
            if vm is not None and vm not in last.vms:
                last.vms.append(vm)
            continue
        if vm is not None:
            entry.vms.append(vm)
        found.append(entry)
    return found[::-1] if newest_first else found


def _entry(item: Mapping[str, Any]) -> Entry:
    title, tone, shape = _words(item)
    reason = item.get("reason")
    return Entry(
        at=seconds_of(item.get("at")),
        title=title,
        tone=tone,
        shape=shape,
        reason=item.get("words") or reason_words(reason),
        by=item.get("by"),
        why=item.get("rsn"),
        vm_word="to" if item.get("kind") == "command" else "reported by",
        event_id=item.get("eventId"),
    )


def _words(item: Mapping[str, Any]) -> tuple[str, str, str]:
    kind, state = (
        item.get("kind"),
        str(item.get("state") or item.get("outcome") or item.get("action") or ""),
    )
    if kind == "record":
        known = _TRANSITIONS.get(str(item.get("transition"))) or _BRIDGE.get(str(item.get("type")))
        return known or (str(item.get("type")), "soft", "hollow")
    tone = {
        "confirmed": "green",
        "rejected": "red",
        "failed": "red",
        "unanswered": "red",
        "overtaken": "amber",
        "leave": "soft",
        "left": "soft",
    }
    if kind == "preparation":
        return _PREPARATIONS.get(state, (state, "soft", "square"))
    label = {"receipt": "Approval", "command": "Command", "decision": "Decision"}
    if item.get("act") == "prepare":
        label |= {"receipt": "Prepare command", "command": "Prepare command"}
    title = f"{label.get(str(kind), str(kind))}: {words.COMMAND_STATES.get(state, state)}"
    return title, tone.get(state, "blue"), "square"
