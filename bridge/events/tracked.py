"""Tracked events: their values from poll to poll, and their form in the store. Pure functions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from bridge.imds.document import Document, ScheduledEvent, parse_event
from wire.event import Event

KEEP_ENDED: Final = 200
"""How many ended events are remembered in full. The store keeps only the revision of older ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What this VM has measured since an event was first seen, whether or not the event
    names it.
    """

    pause_seconds: float | None = None
    restarted: bool | None = None
    """None if a restart would not have been noticed."""
    downtime_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedEvent:
    """An event as the bridge last saw it, kept from poll to poll and across restarts."""

    event: ScheduledEvent
    status: str
    """The eventStatus of its latest record: that of `event`, or how it ended."""
    revision: int
    first_seen: datetime
    not_before: datetime | None
    """The last NotBefore that could be read: it is blank once the event has started."""
    affects_this_vm: bool
    named_before: bool = False
    """Whether it named this VM in an earlier record since it appeared."""
    pending: bool = True
    goes_on_without_this_vm: bool = False
    """Whether it ended here because it no longer names this VM (`SEB_SCOPE=self`)."""
    record_id: str = ""
    measured: Measured = Measured()
    uptime: float | None = None
    """The machine's uptime when it was first seen, in seconds; None before 0.3."""
    appeared: int = 1
    """The revision at which it appeared, or returned."""
    state_since: int = 1
    """The revision since which its fingerprint has been the same."""
    shown: bool = False
    """Whether the newest document of this run shows it: False before the first poll, and while an
    entry that cannot be read might be this event. Not stored.
    """

    @property
    def notice_seconds(self) -> float | None:
        """How long before its NotBefore it was first seen; None if that could not be read."""
        if self.not_before is None:
            return None
        return round((self.not_before - self.first_seen).total_seconds(), 3)

    @property
    def fingerprint(self) -> str:
        """The fingerprint of its latest record."""
        return self.as_reported.fingerprint

    @property
    def as_reported(self) -> Event:
        """Return the event as its latest record shows it: with the status of its end, if
        it ended.
        """
        if self.status == self.event.event_status:
            return self.event
        return replace(self.event, event_status=self.status)


def remembered(
    before: Mapping[str, TrackedEvent], newer: Mapping[str, TrackedEvent]
) -> tuple[dict[str, TrackedEvent], dict[str, int]]:
    """Return two values: the tracked events, the newest last, of which only the most recent ended
    ones stay, and the last revision of each event that is forgotten.
    """
    merged = dict(before)
    for key, each in newer.items():
        merged.pop(key, None)  # the newest last
        merged[key] = each
    ended = [key for key, each in merged.items() if not each.pending]
    forgotten = {key: merged.pop(key).revision for key in ended[:-KEEP_ENDED]}
    return merged, forgotten


def as_shown(tracked: Mapping[str, TrackedEvent], document: Document) -> dict[str, TrackedEvent]:
    """Return the tracked events with the newest document's values, even if that is no change: the
    order of `resources`, for example, says which VM leads. The EventId keeps its record's spelling:
    the case may differ between documents, and the fingerprint covers the id.
    """
    updated = dict(tracked)
    for key, each in tracked.items():
        event = document.events.get(key)
        if event is None:
            if each.shown:
                updated[key] = replace(each, shown=False)
            continue
        if event.event_id != each.event.event_id:
            raw = {**event.raw, "EventId": each.event.event_id}
            event = replace(event, event_id=each.event.event_id, raw=raw)
        if each.event != event or not each.shown:
            updated[key] = replace(each, event=event, shown=True)
    return updated


def measure(
    tracked: Iterable[TrackedEvent],
    *,
    pause_seconds: float = 0.0,
    restarted: bool = False,
    downtime_seconds: float | None = None,
) -> list[TrackedEvent]:
    """Return the pending events with a pause or a restart of this VM noted. Both times are in
    seconds.
    """
    if not pause_seconds and not restarted:
        return []
    changed = []
    for each in tracked:
        if not each.pending:
            continue
        measured = each.measured
        if pause_seconds:
            total = round((measured.pause_seconds or 0.0) + pause_seconds, 3)
            measured = replace(measured, pause_seconds=total)
        if restarted:
            down = None if downtime_seconds is None else round(downtime_seconds, 3)
            measured = replace(measured, restarted=True, downtime_seconds=down)
        changed.append(replace(each, measured=measured))
    return changed


def dump_tracked(tracked: TrackedEvent) -> str:
    """Return the event as text for the store."""
    return json.dumps(
        {
            "raw": dict(tracked.event.raw),
            "status": tracked.status,
            "revision": tracked.revision,
            "firstSeen": tracked.first_seen.isoformat(),
            "notBefore": tracked.not_before and tracked.not_before.isoformat(),
            "affectsThisVm": tracked.affects_this_vm,
            "namedBefore": tracked.named_before,
            "pending": tracked.pending,
            "goesOn": tracked.goes_on_without_this_vm,
            "recordId": tracked.record_id,
            "uptime": tracked.uptime,
            "appeared": tracked.appeared,
            "stateSince": tracked.state_since,
            "measured": {name: getattr(tracked.measured, name) for name in Measured.__slots__},
        }
    )


def load_tracked(text: str) -> TrackedEvent:
    """Read what `dump_tracked` wrote. Raises `ValueError`, `KeyError` or `TypeError`."""
    kept = json.loads(text)
    not_before = kept["notBefore"]
    measured = kept["measured"]
    return TrackedEvent(
        event=parse_event(kept["raw"]),
        status=kept["status"],
        revision=kept["revision"],
        first_seen=datetime.fromisoformat(kept["firstSeen"]),
        not_before=not_before and datetime.fromisoformat(not_before),
        affects_this_vm=kept["affectsThisVm"],
        named_before=kept.get("namedBefore", False),  # 0.2.0 did not keep it
        pending=kept["pending"],
        goes_on_without_this_vm=kept.get("goesOn", False),
        record_id=kept["recordId"],
        uptime=kept.get("uptime"),
        appeared=kept.get("appeared", 1),
        state_since=kept.get("stateSince", 1),
        measured=Measured(
            pause_seconds=measured["pause_seconds"],
            restarted=measured["restarted"],
            downtime_seconds=measured["downtime_seconds"],
        ),
    )
