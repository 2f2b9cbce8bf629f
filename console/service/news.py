"""Puts what was committed into the fleet in memory, and tells the open pages."""

from __future__ import annotations

from console.fleet.index import Fleet
from console.fleet.values import Receipt
from console.store.reading import News
from console.web.stream import Stream


def apply(fleet: Fleet, news: News, stream: Stream) -> set[str]:
    """On the event loop's thread; the ids of the events that are open then."""
    changed = {vm.vm_id for vm in news.vms}
    for vm in news.vms:
        fleet.put_vm(vm)
    touched = {event.event_id: event for event in news.events}
    for event_id in [*news.sightings, *(each.facts.event_id for each in news.receipts)]:
        if event_id is not None and event_id in fleet.events:
            touched.setdefault(event_id, fleet.events[event_id])
    told = []
    for event_id, event in touched.items():
        sightings = {each.vm_id: each for each in news.sightings.get(event_id, [])}
        receipts = [each for each in news.receipts if each.facts.event_id == event_id]
        witnesses = {**fleet.sightings.get(event_id, {}), **sightings}
        whole = _joined(fleet.receipts.get(event_id, []), receipts)
        changed.update(fleet.named_by(event_id).values())
        fleet.put_event(event, sightings.values())
        changed.update(fleet.named_by(event_id).values())
        for receipt in receipts:
            fleet.put_receipt(receipt)
        told.append((event, witnesses, whole))
    for event, witnesses, receipts in told:
        stream.event_changed(event, witnesses, receipts)
    stream.vms_changed(fleet.vms[vm_id] for vm_id in changed if vm_id in fleet.vms)
    return set(fleet.events)


def _joined(standing: list[Receipt], new: list[Receipt]) -> list[Receipt]:
    known = {receipt.record_id for receipt in standing}
    return [*standing, *(each for each in new if each.record_id not in known)]
