"""What a batch of records changes: rows in, rows out; the writer does it in a transaction."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from console.fleet import gaps, vms
from console.fleet.sightings import ended_unseen, of_pending, of_record, shown, supersedes
from console.fleet.values import Event, Gap, Receipt, Sighting, Stream, Vm
from console.records.incoming import (
    EventFacts,
    Incoming,
    IncomingRecord,
    IncomingState,
    IncomingStatus,
)

Pair = tuple[str, str]


@dataclass(slots=True, kw_only=True)
class Known:
    """What the database holds of the VMs and events of a batch; the fold works on it."""

    records: set[str] = field(default_factory=set)
    """Ids."""
    vms: dict[str, Vm] = field(default_factory=dict)
    streams: dict[Pair, Stream] = field(default_factory=dict)
    """By vmId and stream."""
    gaps: dict[Pair, list[Gap]] = field(default_factory=dict)
    sightings: dict[Pair, Sighting] = field(default_factory=dict)
    """By event id and vmId."""
    events: dict[str, Event] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Changes:
    """What a batch changes, each row once."""

    records: dict[str, IncomingRecord] = field(default_factory=dict)
    """New ones, by id; heartbeats never."""
    vms: dict[str, Vm] = field(default_factory=dict)
    streams: dict[Pair, Stream] = field(default_factory=dict)
    gaps: dict[Pair, list[Gap]] = field(default_factory=dict)
    """All that are left of a stream's gaps, where they changed."""
    sightings: dict[Pair, Sighting] = field(default_factory=dict)
    events: dict[str, Event] = field(default_factory=dict)
    receipts: list[Receipt] = field(default_factory=list)
    returned: set[str] = field(default_factory=set)
    """Events that were over, and are open again."""
    duplicates: int = 0


def fold(known: Known, batch: Iterable[Incoming]) -> Changes:
    """The changes that a batch makes, in the order in which it came in."""
    changes = Changes()
    for each in batch:
        if isinstance(each, IncomingRecord):
            _record(known, changes, each)
        elif isinstance(each, IncomingStatus):
            _put(known, changes, vms.with_status(known.vms.get(each.vm_id), each))
        else:
            _state(known, changes, each)
    return changes


def _record(known: Known, changes: Changes, record: IncomingRecord) -> None:
    vm_id = record.place.vm_id
    vm = known.vms.get(vm_id)
    key = (vm_id, record.stream)
    stream, missing = known.streams.get(key), known.gaps.get(key, [])
    counted = gaps.count(stream, missing, record, interval=None if vm is None else vm.interval)
    seen = record.kind == "heartbeat" or record.id in known.records
    if seen and not counted.fresh:
        changes.duplicates += 1
        return
    if counted.stream is not stream:
        known.streams[key] = changes.streams[key] = counted.stream
    if counted.gaps != missing:
        known.gaps[key] = changes.gaps[key] = counted.gaps
    heard = vms.with_record(vm, record)
    if counted.gaps or missing:
        growth = sum(gap.size for gap in counted.gaps) - sum(gap.size for gap in missing)
        heard = replace(heard, missing=max(0, heard.missing + growth))
    _put(known, changes, heard)
    if record.event is not None:
        _sight(known, changes, of_record(record, record.event))
        _retire(known, changes, record, record.event)
    if not seen:
        known.records.add(record.id)
        changes.records[record.id] = record
        if record.receipt is not None:
            changes.receipts.append(
                Receipt(
                    record_id=record.id, vm_id=vm_id, at=record.received_at, facts=record.receipt
                )
            )


def _put(known: Known, changes: Changes, vm: Vm) -> None:
    known.vms[vm.vm_id] = changes.vms[vm.vm_id] = vm


def _sight(known: Known, changes: Changes, sighting: Sighting) -> None:
    key = (sighting.event_id, sighting.vm_id)
    standing = known.sightings.get(key)
    if standing is not None:
        if not supersedes(sighting, standing):
            return
        if standing.first_at < sighting.first_at:
            sighting = replace(sighting, first_at=standing.first_at)
    known.sightings[key] = changes.sightings[key] = sighting
    before = known.events.get(sighting.event_id)
    event = shown(before, sighting, known.vms[sighting.vm_id].site)
    if before is not None and before.state == "ended" and event.state != "ended":
        changes.returned.add(event.event_id)
    known.events[event.event_id] = changes.events[event.event_id] = event


def _state(known: Known, changes: Changes, state: IncomingState) -> None:
    """Events that are pending on a VM, where the records about them were missed."""
    vm = vms.with_state(known.vms.get(state.vm_id), state)
    _put(known, changes, vm)
    pending = set()
    for record_id, event in state.events:
        pending.add(event.event_id)
        standing = known.sightings.get((event.event_id, state.vm_id))
        if standing is None or standing.facts.revision < event.revision:
            _sight(known, changes, of_pending(state, vm, record_id, event))
    for (event_id, vm_id), sighting in list(known.sightings.items()):
        if vm_id == state.vm_id and event_id not in pending and sighting.time < state.time:
            over = ended_unseen(sighting, state)
            if over is not None:
                _sight(known, changes, over)


def _retire(known: Known, changes: Changes, record: IncomingRecord, event: EventFacts) -> None:
    """A VM whose deletion a peer reported as ended and Completed is not expected any more."""
    if not is_deletion(event):
        return
    scope = known.vms[record.place.vm_id].scope
    names = {name.casefold() for name in event.resources}
    for vm in list(known.vms.values()):
        gone = scope is not None and vm.scope == scope and vm.name.casefold() in names
        if not gone or vm.vm_id == record.place.vm_id or vm.retired_at is not None:
            continue
        if vm.heard_at <= record.sent_at:
            by = f"event {event.event_id}"
            _put(known, changes, replace(vm, retired_at=record.sent_at, retired_by=by))


def is_deletion(event: EventFacts) -> bool:
    """Whether it says that the VMs that it names are gone."""
    return event.impact == "delete" and event.transition == "ended" and event.status == "Completed"
