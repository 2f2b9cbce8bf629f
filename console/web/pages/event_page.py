"""`/events/<id>`: one event, the VMs that it names, what its reporters say, and what has
happened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from console.db.snapshot import Snapshot
from console.fleet.event_view import EventDetail, Reporter, Resource
from console.web.pages import (
    decision_block,
    event_rows,
    incident_text,
    labels,
    time_comparisons,
    timeline_lines,
)

_RESOURCES: Final = 200
"""The most named VMs on the page; the API has all."""
_OTHERS: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedVmBlock:
    """A VM that the event names, and its own report of the event."""

    resource: Resource
    reporter: Reporter | None
    comparisons: Sequence[time_comparisons.TimeComparison]


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldDifference:
    """A row of the table of differences: a value of one field that differs from the value that is
    shown.
    """

    label: str
    is_time: bool
    before: Any
    now: Any
    vms: list[tuple[str, str]] = field(default_factory=list)
    """vmId and name of each VM that reports this value."""


def template_values(event: EventDetail, names: Mapping[str, str], now: float) -> dict[str, Any]:
    """Return the values of the template for an event; `names` are the names of VMs by vmId."""
    reports = {each.vm_id: each for each in event.witnesses}
    named_ids = {resource.vm_id for resource in event.resources}
    others = [each for vm_id, each in reports.items() if vm_id not in named_ids]
    entries = timeline_lines.lines_of(event.timeline, lambda vm_id: names.get(vm_id, vm_id))
    return {
        "event": event,
        "heading": labels.heading(event),
        "report": incident_text.lines_of(event, entries[::-1], now),
        "type": labels.event_type(event.event_type),
        "last_try": event_rows.last_try(event, now),
        "may_start": event_rows.may_start(event, now),
        "asked_by": labels.ASKED_BY.get(event.event_source or ""),
        "named": [
            _named_vm_block(each, reports.get(each.vm_id or ""), event)
            for each in event.resources[:_RESOURCES]
        ],
        "more_named": max(0, len(event.resources) - _RESOURCES),
        "others": others[:_OTHERS],
        "differences": _differences(event.witnesses) if event.state != "ended" else [],
        "more_others": max(0, len(others) - _OTHERS),
        "timeline": entries,
        "tone": event_rows.section_of(event),
    }


def _named_vm_block(
    resource: Resource, reporter: Reporter | None, event: EventDetail
) -> NamedVmBlock:
    announced = event.duration_in_seconds
    comparisons = (
        time_comparisons.compared(reporter, event.event_type, announced)
        if reporter is not None
        else []
    )
    return NamedVmBlock(resource=resource, reporter=reporter, comparisons=comparisons)


def _differences(reporters: Sequence[Reporter]) -> list[FieldDifference]:
    """Return where reporters differ from what is shown, in the order of the fields; reporters with
    the same value share a line.
    """
    found: dict[tuple[str, str], FieldDifference] = {}
    for reporter in reporters:
        for each in reporter.differences:
            line = found.setdefault(
                (each.field, repr(each.reported)),
                FieldDifference(
                    label=labels.field_label(each.field),
                    is_time=each.field == "notBefore",
                    before=decision_block.field_value(each.field, each.shown),
                    now=decision_block.field_value(each.field, each.reported),
                ),
            )
            line.vms.append((reporter.vm_id, reporter.name or reporter.vm_id))
    return [found[each] for each in sorted(found, key=lambda key: labels.field_order(key[0]))]


def names_of(snapshot: Snapshot, event: EventDetail) -> dict[str, str]:
    """Return the names of the VMs in an event's timeline, as far as they are known."""
    vm_ids = {each.vm_id for each in event.timeline if each.kind != "decision"}
    return {each.vm.vm_id: each.vm.name for each in snapshot.vms.vms_with_ids(sorted(vm_ids))}
