"""`/vms/<id>`: one VM, how it is heard, which records are missing, and what happened to it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from console.db.snapshot import Snapshot
from console.fleet.timeline import PastEvent
from console.fleet.values.event import FleetEvent, KnownEvent
from console.fleet.values.vm import HeardVm, Vm
from console.fleet.vm_view import VmDetail
from console.web.api.vms import vm_detail
from console.web.pages import event_rows, labels, time_comparisons, timeline_lines
from console.web.pages.formatting import DAY
from console.web.pages.silence_causes import SilenceCause, silence_causes

_ENTRIES: Final = 60
_HISTORY: Final = 30
_STRIP_DAYS: Final = 30
_MIN_MARK: Final = 8.0
"""Of 1,000: the least width that can be seen and touched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRow:
    """An event of the VM's history."""

    event: PastEvent
    type: labels.EventType
    comparisons: Sequence[time_comparisons.TimeComparison]


@dataclass(frozen=True, slots=True, kw_only=True)
class StripMark:
    """An event on the line of the last days; the line is 1,000 units wide."""

    event_id: str
    type: str
    status: str
    x: float
    width: float
    kind: str
    """`open`, `over`, or `bad`: it was worse than promised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VmSilence:
    """The silence of a VM: the event that explains it, or the VM's last report."""

    event: FleetEvent | None
    """The event that explains the silence; `since` is then its start, and `back` when the VM is
    expected back.
    """
    since: float | None
    back: float | None
    last: timeline_lines.TimelineLine | None
    """The VM's last report."""
    causes: Sequence[SilenceCause]


def template_values(snapshot: Snapshot, heard: HeardVm) -> dict[str, Any]:
    """Return the values of the template for a VM, with its history."""
    row = heard.vm
    vm = vm_detail(snapshot, heard)
    history = [_past_row(each) for each in vm.history]
    naming = _events_naming(snapshot.events.events_with_ids(vm.events), row.vm_id)
    return {
        "vm": vm,
        "portal": _portal(row.resource_id),
        "heard": row.heard_at,
        "heard_source": row.heard_source,
        "silent_seconds": snapshot.listening.silent_time.of(row.interval),
        "lost": row.lost_at,
        "stopped": row.stopped_at,
        "retired": row.retired_at,
        "conflict_at": row.conflict_at,
        "contradictions": _contradictions(row),
        "interval": row.interval,
        "open": event_rows.in_order(event_rows.rows_of(snapshot, naming)),
        "history": history[:_HISTORY],
        "silence": _silence(snapshot, heard, vm),
        "strip": strip(history, snapshot.now),
        "strip_days": _STRIP_DAYS,
        "more_history": max(0, len(history) - _HISTORY),
        # The timeline of a VM is newest first already.
        "timeline": timeline_lines.lines_of(vm.timeline, lambda _: vm.name, newest_first=False)[
            :_ENTRIES
        ],
    }


def _contradictions(vm: Vm) -> list[tuple[str, str | None, str | None]]:
    """Return the fields in which a VM reports another identity than it is known by: label, reported
    value, known value.
    """
    reported = vm.reported_as or vm.known_as
    known = vm.known_as
    pairs = (
        ("Name", reported.name, known.name),
        ("Subscription", reported.subscription_id, known.subscription_id),
        ("Resource group", reported.resource_group, known.resource_group),
        ("Scale set", reported.scale_set, known.scale_set),
        ("Site", reported.site, known.site),
    )
    return [each for each in pairs if each[1] != each[2]]


def _events_naming(several: Iterable[KnownEvent], vm_id: str) -> list[KnownEvent]:
    """Return the events that name a VM: another scope may have an event with the same id."""
    return [known for known in several if vm_id in {each.vm_id for each in known.named.values()}]


def strip(history: Sequence[PastRow], now: float) -> list[StripMark]:
    """Return the events of the last days that named the VM, as marks on a line, in the order of
    time.
    """
    begin = now - _STRIP_DAYS * DAY
    marks = []
    for row in history:
        event = row.event
        first = event.first_seen_at
        last = event.last_seen_at
        if not event.affects_this_vm or first is None or last is None or last < begin:
            continue
        is_over = event.state == "ended"
        is_worse = any(pair.is_worse for pair in row.comparisons)
        start = max(0.0, 1000 * (first - begin) / (now - begin))
        end = min(1000.0, 1000 * ((last if is_over else now) - begin) / (now - begin))
        width = max(_MIN_MARK, end - start)
        marks.append(
            StripMark(
                event_id=event.event_id,
                type=event.event_type or "Event",
                status=event.event_status,
                x=round(min(start, 1000 - width), 1),
                width=round(width, 1),
                kind=("bad" if is_worse else "over") if is_over else "open",
            )
        )
    return marks[::-1]


def _portal(resource_id: str | None) -> str | None:
    """Return the address of a VM in Azure's portal; None if its ARM id is not valid."""
    if not resource_id or not resource_id.lower().startswith("/subscriptions/"):
        return None
    return f"https://portal.azure.com/#resource{quote(resource_id)}"


def _silence(snapshot: Snapshot, heard: HeardVm, vm: VmDetail) -> VmSilence | None:
    """Return what explains the silence of a VM; None if it is not silent."""
    if heard.contact != "silent":
        return None
    contacts = snapshot.vm_lists.count_by_contact()
    present = sum(count for contact, count in contacts.items() if contact != "retired")
    shared = silence_causes(snapshot, contacts.get("silent", 0), present)
    event = None
    since = None
    back = None
    for known in _events_naming(snapshot.events.events_with_ids(vm.events), vm.vm_id):
        if known.event.state == "started":
            event = known.event
            announced = known.shown.report.event.duration_in_seconds
            since = event.started_at or event.shown_at
            back = since + announced if announced is not None and announced >= 0 else None
            break
    return VmSilence(
        event=event,
        since=since,
        back=back,
        last=next(iter(timeline_lines.lines_of(vm.timeline[:1], lambda _: vm.name)), None),
        causes=[each for each in shared if each.is_of(heard.vm)],
    )


def _past_row(event: PastEvent) -> PastRow:
    comparisons = time_comparisons.compared(event, event.event_type, event.duration_in_seconds)
    return PastRow(event=event, type=labels.event_type(event.event_type), comparisons=comparisons)
