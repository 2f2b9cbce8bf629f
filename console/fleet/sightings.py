"""What a witness says of an event, and which witness an event is shown by."""

from __future__ import annotations

from dataclasses import replace

from console.fleet.values import Event, Sighting, Vm
from console.records.incoming import EventFacts, IncomingRecord, IncomingState


def of_record(record: IncomingRecord, event: EventFacts) -> Sighting:
    """What a record says; a VM whose clock is ahead does not outshine its peers for long."""
    at = min(record.time, record.received_at)
    return Sighting(
        event_id=event.event_id,
        vm_id=record.place.vm_id,
        record_id=record.id,
        stream=record.stream,
        sequence=record.sequence,
        time=at,
        first_at=at,
        facts=event,
    )


def of_pending(state: IncomingState, vm: Vm, record_id: str, event: EventFacts) -> Sighting:
    """What a state document says of an event whose record has not come in."""
    at = min(state.time, state.received_at)
    return Sighting(
        event_id=event.event_id,
        vm_id=state.vm_id,
        record_id=record_id,
        stream=vm.stream or "",
        sequence=0,
        time=at,
        first_at=at,
        facts=event,
    )


def ended_unseen(sighting: Sighting, state: IncomingState) -> Sighting | None:
    """An open event that a newer state document does not list: it is over, and nobody knows how.

    None if it is over already.
    """
    if sighting.facts.state == "ended":
        return None
    facts = replace(sighting.facts, transition="ended", status="Unknown")
    return replace(sighting, time=min(state.time, state.received_at), facts=facts)


def supersedes(one: Sighting, other: Sighting) -> bool:
    """Whether a witness's sighting takes the place of its other one."""
    if one.stream == other.stream and one.sequence and other.sequence:
        return one.sequence > other.sequence or (
            one.sequence == other.sequence and one.facts != other.facts
        )
    if not one.sequence or not other.sequence:
        # One of them is from a state document; of the same revision, the record says more.
        revisions = (one.facts.revision, other.facts.revision)
        return revisions[0] > revisions[1] or (revisions[0] == revisions[1] and bool(one.sequence))
    return one.time >= other.time


def shown(event: Event | None, sighting: Sighting, site: str) -> Event:
    """The event's row after a sighting: the newest, by time, shows it; one that cannot be proven
    shows it only until another comes.
    """
    facts = sighting.facts
    words = "\n".join([facts.event_id, *facts.resources]).lower()
    if event is None:
        return Event(
            event_id=facts.event_id,
            state=facts.state,
            shown_by=sighting.vm_id,
            shown_at=sighting.time,
            first_at=sighting.first_at,
            event_type=facts.event_type,
            sites=(site,),
            words=words,
        )
    sites = event.sites if site in event.sites else (*event.sites, site)
    first_at = min(event.first_at, sighting.first_at)
    older = sighting.time < event.shown_at or facts.goes_on or not facts.is_proven
    if older and sighting.vm_id != event.shown_by:
        return replace(event, sites=sites, first_at=first_at)
    return Event(
        event_id=event.event_id,
        state=facts.state,
        shown_by=sighting.vm_id,
        shown_at=sighting.time,
        first_at=first_at,
        event_type=facts.event_type,
        sites=sites,
        words=words,
    )
