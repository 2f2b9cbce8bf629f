"""What is known of an event from look to look, and its form in the store; no input, no output."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from bridge.imds.document import ScheduledEvent, fingerprint, parse_event

KEEP_ENDED: Final = 200
"""How many ended events are remembered, so that the revision of one that returns grows on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What happened to this VM since an event was first seen, whichever VMs it names."""

    pause_seconds: float | None = None
    restarted: bool | None = None
    """None where a restart would not have been noticed."""
    downtime_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedEvent:
    """An event as the bridge last saw it, kept from poll to poll and through restarts."""

    event: ScheduledEvent
    status: str
    """The eventStatus of its latest record: that of `event`, or how it ended."""
    revision: int
    first_seen: datetime
    not_before: datetime | None
    """The last NotBefore that could be read: it is blank once the event has started."""
    affects_this_vm: bool
    pending: bool = True
    record_id: str = ""
    measured: Measured = Measured()

    @property
    def notice_seconds(self) -> float | None:
        """How long before its NotBefore it was first seen; None where that could not be read."""
        if self.not_before is None:
            return None
        return round((self.not_before - self.first_seen).total_seconds(), 3)

    @property
    def fingerprint(self) -> str:
        """The fingerprint of its latest record."""
        return fingerprint(self.event.to_wire(status=self.status))


def in_scope(known: Mapping[str, TrackedEvent]) -> dict[str, TrackedEvent]:
    """What is known in scope `self`: events of other VMs are no longer followed, nor ended."""
    return {
        key: each if each.affects_this_vm else replace(each, pending=False)
        for key, each in known.items()
    }


def remembered(
    before: Mapping[str, TrackedEvent], news: Mapping[str, TrackedEvent]
) -> dict[str, TrackedEvent]:
    """What is known with the news, newest last, and the last of the events that ended."""
    merged = dict(before)
    for key, each in news.items():
        merged.pop(key, None)  # the latest news last
        merged[key] = each
    ended = [key for key, each in merged.items() if not each.pending]
    for key in ended[:-KEEP_ENDED]:
        del merged[key]
    return merged


def measure(
    known: Iterable[TrackedEvent],
    *,
    pause_seconds: float = 0.0,
    restarted: bool = False,
    downtime_seconds: float | None = None,
) -> list[TrackedEvent]:
    """The pending events that a pause or a restart (each in seconds) changes, as changed."""
    if not pause_seconds and not restarted:
        return []
    changed = []
    for each in known:
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


def dump_tracked(known: TrackedEvent) -> str:
    """The event as text for the store."""
    return json.dumps(
        {
            "raw": dict(known.event.raw),
            "status": known.status,
            "revision": known.revision,
            "firstSeen": known.first_seen.isoformat(),
            "notBefore": known.not_before and known.not_before.isoformat(),
            "affectsThisVm": known.affects_this_vm,
            "pending": known.pending,
            "recordId": known.record_id,
            "measured": {name: getattr(known.measured, name) for name in Measured.__slots__},
        }
    )


def load_tracked(text: str) -> TrackedEvent:
    """Read back what `dump_tracked` wrote. Raises `ValueError`, `KeyError` or `TypeError`."""
    kept = json.loads(text)
    not_before, measured = kept["notBefore"], kept["measured"]
    return TrackedEvent(
        event=parse_event(kept["raw"]),
        status=kept["status"],
        revision=kept["revision"],
        first_seen=datetime.fromisoformat(kept["firstSeen"]),
        not_before=not_before and datetime.fromisoformat(not_before),
        affects_this_vm=kept["affectsThisVm"],
        pending=kept["pending"],
        record_id=kept["recordId"],
        measured=Measured(
            pause_seconds=measured["pause_seconds"],
            restarted=measured["restarted"],
            downtime_seconds=measured["downtime_seconds"],
        ),
    )
