"""Timelines in sentences: what happened, the newest first; equal reports of several VMs share a
line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from console.fleet.outcomes import reason_text
from console.fleet.timeline import (
    TimelineCommand,
    TimelineDecision,
    TimelineEntry,
    TimelinePreparation,
    TimelineReceipt,
    TimelineRecord,
)
from console.web.pages import labels

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
    "seb.bridge.gap.v1": ("The bridge did not poll for a while", "violet", "hollow"),
    "seb.bridge.store-reset.v1": ("The bridge lost its store and began a new one", "red", "square"),
    "seb.bridge.dead-letter.v1": ("A sink refused a record for good", "red", "square"),
}
_TONES: Final[Mapping[str, str]] = {
    "confirmed": "green",
    "rejected": "red",
    "failed": "red",
    "unanswered": "red",
    "overtaken": "amber",
    "leave": "soft",
    "left": "soft",
}
"""The tones for states of commands and decisions; other states are blue."""


@dataclass(slots=True, kw_only=True)
class TimelineLine:
    """One line of a timeline."""

    at: float | None
    title: str
    tone: str
    shape: str
    reason: str | None = None
    by: str | None = None
    person_reason: str | None = None
    """The approver's own words."""
    vms: list[tuple[str, str]] = field(default_factory=list)
    """vmId and name of each VM that reported it."""
    vm_word: str = "reported by"
    event_id: str | None = None


def lines_of(
    items: Iterable[TimelineEntry], name_of: Callable[[str], str], *, newest_first: bool = True
) -> list[TimelineLine]:
    """Return the lines of a timeline; equal neighbours are joined to one line."""
    found: list[TimelineLine] = []
    for item in items:
        line = _line_of(item)
        vm = None if item.kind == "decision" else (item.vm_id, name_of(item.vm_id))
        last = found[-1] if found else None
        if last is not None and (
            last.title,
            last.event_id,
            last.reason,
            last.by,
            last.person_reason,
        ) == (
            line.title,
            line.event_id,
            line.reason,
            line.by,
            line.person_reason,
        ):
            if vm is not None and vm not in last.vms:
                last.vms.append(vm)
            continue
        if vm is not None:
            line.vms.append(vm)
        found.append(line)
    return found[::-1] if newest_first else found


def _line_of(item: TimelineEntry) -> TimelineLine:
    """Return one line, without the VM that reported it."""
    title, tone, shape = _title_tone_shape(item)
    line = TimelineLine(at=item.at, title=title, tone=tone, shape=shape, event_id=item.event_id)
    match item:
        case TimelineReceipt():
            line.reason = reason_text(item.reason)
            line.by = item.by
            line.person_reason = item.rsn
        case TimelinePreparation():
            line.reason = reason_text(item.reason)
        case TimelineDecision():
            line.reason = item.words or item.reason
            line.by = item.by
        case TimelineCommand():
            line.vm_word = "to"
    return line


def _title_tone_shape(item: TimelineEntry) -> tuple[str, str, str]:
    """Return title, tone and shape of a line."""
    match item:
        case TimelineRecord():
            known = _TRANSITIONS.get(item.transition or "") or _BRIDGE.get(item.type)
            return known or (item.type, "soft", "hollow")
        case TimelinePreparation():
            return _PREPARATIONS.get(item.state, (item.state, "soft", "square"))
        case TimelineDecision():
            label = "Decision"
            state = item.outcome or item.action
        case TimelineReceipt():
            label = "Approval"
            state = item.state
        case TimelineCommand():
            label = "Command"
            state = item.state
    if item.kind != "decision" and item.act == "prepare":
        label = "Prepare command"
    title = f"{label}: {labels.COMMAND_STATES.get(state, state)}"
    return title, _TONES.get(state, "blue"), "square"
