"""Puts what was committed into the fleet in memory, and tells the open pages."""

from __future__ import annotations

from console.fleet.index import Fleet
from console.fleet.values import UNDECIDED, Command, Receipt
from console.fleet.witnesses import PULL
from console.sources.enrolment import EVERY_VM
from console.store.reading import News
from console.web.desk import Desk
from console.web.stream import Stream


def apply(fleet: Fleet, news: News, stream: Stream) -> set[str]:
    """On the event loop's thread; the ids of the events that are open then."""
    changed = {vm.vm_id for vm in news.vms}
    for vm in news.vms:
        fleet.put_vm(vm)
    touched = {event.event_id: event for event in news.events}
    about = [*news.sightings, *(each.facts.event_id for each in news.receipts)]
    about += [each.event_id for each in news.decisions]
    about += [each.event_id for each in news.commands]
    for event_id in about:
        if event_id is not None and event_id in fleet.events:
            touched.setdefault(event_id, fleet.events[event_id])
    told = []
    for decision in news.decisions:
        fleet.put_decision(decision)
    for command in news.commands:
        fleet.put_command(command)
    before = {
        event_id: fleet.decided[event_id] for event_id in touched if event_id in fleet.decided
    }
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
        decided = fleet.decided.get(event.event_id) or before.get(event.event_id, UNDECIDED)
        stream.event_changed(event, witnesses, receipts, decided)
    for command, receipts in news.told:
        stream.command_changed(command, receipts)
    stream.vms_changed(fleet.vms[vm_id] for vm_id in changed if vm_id in fleet.vms)
    return set(fleet.events)


def apply_beside(desk: Desk, news: News) -> None:
    """What changed beside records: who may ask for commands, and who does."""
    desk.asked.put(news.asked)
    revoked = desk.enrolments.put(news.generations)
    if EVERY_VM in revoked:
        desk.asked.forget(None)
        desk.pull_queue.wake_all()
    else:
        desk.asked.forget(revoked)
        for vm_id in revoked:
            desk.pull_queue.wake(vm_id)


def _joined(standing: list[Receipt], new: list[Receipt]) -> list[Receipt]:
    known = {receipt.record_id for receipt in standing}
    return [*standing, *(each for each in new if each.record_id not in known)]


def events_of(news: News) -> set[str]:
    """The events that the news are about."""
    found = {each.event_id for each in news.events} | set(news.sightings)
    found |= {each.facts.event_id for each in news.receipts if each.facts.event_id is not None}
    found |= {each.event_id for each in news.decisions}
    return found | {each.event_id for each in news.commands}


def commands_to_offer(news: News) -> list[Command]:
    """Commands that a VM is to fetch, whichever console made them; what was fetched and is not
    answered yet too, for the answer may have been lost.
    """
    return [each for each in news.commands if each.channel == PULL and each.unanswered_at is None]
