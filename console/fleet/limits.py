"""How much of one VM is stored: what exceeds it is quarantined."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from console.fleet.batch import LoadedRows, ReporterKey
from console.records.incoming import EventReport, IncomingRecord, PreparationContent
from wire.preparation import RECOVERED

MAX_OPEN_EVENTS: Final = 1000
"""How many open events one VM may report. A document of Azure's has few."""
MAX_OPEN_NAMES: Final = 20_000
"""How many names there may be in all open events that are shown by one VM."""
_FEW_NAMES: Final = 20
"""An event with at most so many names does not count towards `MAX_OPEN_NAMES`."""
MAX_UNRECOVERED: Final = 100
"""How many preparations one VM may have from which it has not recovered."""
MAX_RECEIPTS: Final = 1000
"""How many receipts of one VM about one event are stored."""
LIMITS: Final[Mapping[str, str]] = {
    "too_many_events": f"it reports {MAX_OPEN_EVENTS:,} open events already",
    "too_many_names": f"its open events name more than {MAX_OPEN_NAMES:,} VMs",
    "too_many_preparations": f"it has prepared for {MAX_UNRECOVERED} events already",
    "too_many_receipts": f"it has sent {MAX_RECEIPTS:,} receipts about this event already",
}
"""Why something of a VM is no longer stored: the reason in the quarantine, and a sentence."""


def exceeded_limit(loaded: LoadedRows, record: IncomingRecord) -> str | None:
    """Return the key in `LIMITS` for a record that exceeds what its VM may store, or None."""
    vm_id = record.vm.vm_id
    if record.event is not None:
        return exceeded_by_event(loaded, vm_id, record.event)
    if record.preparation is not None and is_one_too_many(loaded, vm_id, record.preparation):
        return "too_many_preparations"
    if record.receipt is not None and record.receipt.event_id is not None:
        key = ReporterKey(record.receipt.event_id, vm_id)
        if record.id not in loaded.records and loaded.receipts[key] >= MAX_RECEIPTS:
            return "too_many_receipts"
        loaded.receipts[key] += 1
    return None


def exceeded_by_event(loaded: LoadedRows, vm_id: str, event: EventReport) -> str | None:
    """Return the key in `LIMITS` for an event that exceeds what its VM may report, or
    None.
    """
    if event.state == "ended":
        return None
    before = loaded.reports.get(ReporterKey(event.event.event_id, vm_id))
    was_open = before is not None and before.report.state != "ended"
    if not was_open and loaded.open_events[vm_id] >= MAX_OPEN_EVENTS:
        return "too_many_events"
    names = len(event.event.resources)
    if names <= _FEW_NAMES:
        return None
    if before is not None and was_open:
        names -= len(before.report.event.resources)
    if loaded.open_names[vm_id] + names > MAX_OPEN_NAMES:
        return "too_many_names"
    loaded.open_names[vm_id] += names
    return None


def is_one_too_many(loaded: LoadedRows, vm_id: str, reported: PreparationContent) -> bool:
    """Check whether a VM reports preparations for too many events."""
    if ReporterKey(reported.event_id, vm_id) in loaded.preparations:
        return False
    known = [each for key, each in loaded.preparations.items() if key.vm_id == vm_id]
    return sum(each.content.state != RECOVERED for each in known) >= MAX_UNRECOVERED
