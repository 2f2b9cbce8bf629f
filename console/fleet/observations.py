"""What a reporter says of an event, and which reporter an event is shown by."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from console.fleet.values import Event, Observation, Vm
from console.records.incoming import EventReport, IncomingRecord, IncomingState
from wire.event import UNKNOWN_STATUS


def of_record(record: IncomingRecord, event: EventReport) -> Observation:
    """What a record says; a VM whose clock is ahead is not newer than its peers for that."""
    at = min(record.time, record.received_at)
    return Observation(
        event_id=event.event.event_id,
        vm_id=record.vm.vm_id,
        record_id=record.id,
        stream=record.stream,
        sequence=record.sequence,
        time=at,
        first_at=at,
        facts=event,
    )


def of_pending(state: IncomingState, vm: Vm, record_id: str, event: EventReport) -> Observation:
    """What a state document says of an event whose record has not come in."""
    at = min(state.time, state.received_at)
    return Observation(
        event_id=event.event.event_id,
        vm_id=state.vm_id,
        record_id=record_id,
        stream=vm.stream or "",
        sequence=0,
        time=at,
        first_at=at,
        facts=event,
    )


def ended_unseen(observation: Observation, state: IncomingState) -> Observation | None:
    """An open event that a newer state document does not list: it is over, and how is not known.

    None if it is over already.
    """
    if observation.facts.state == "ended":
        return None
    unknown = replace(observation.facts.event, event_status=UNKNOWN_STATUS)
    facts = replace(observation.facts, transition="ended", event=unknown)
    return replace(observation, time=min(state.time, state.received_at), facts=facts)


def supersedes(one: Observation, other: Observation) -> bool:
    """Whether a reporter's observation takes the place of its other one."""
    if one.sequence and other.sequence:
        if one.stream != other.stream:
            return one.time >= other.time
        return one.sequence > other.sequence or (
            one.sequence == other.sequence and one.facts != other.facts
        )
    # One of them, or both, is from a state document.
    if one.facts.revision != other.facts.revision:
        return one.facts.revision > other.facts.revision
    if "ended" in (one.facts.state, other.facts.state):
        return one.time >= other.time
    return bool(one.sequence) or not other.sequence  # of the same revision, the record says more


def shown(event: Event | None, observation: Observation, vm: Vm) -> Event:
    """The event's row after an observation of a VM: the newest, by time, shows it; one that cannot
    be proven shows it only until another comes.
    """
    facts = observation.facts
    if event is None:
        event = Event(
            event_id=facts.event.event_id,
            scope=vm.scope,
            state=facts.state,
            shown_by=observation.vm_id,
            shown_at=observation.time,
            first_at=observation.first_at,
        )
    event = _measured(event, observation)
    sites = event.sites if vm.site in event.sites else (*event.sites, vm.site)
    first_at = min(event.first_at, observation.first_at)
    older = observation.time < event.shown_at or facts.goes_on or not facts.is_proven
    if older and observation.vm_id != event.shown_by:
        return replace(event, sites=sites, first_at=first_at)
    starts = facts.event.not_before
    return replace(
        event,
        state=facts.state,
        shown_by=observation.vm_id,
        shown_at=observation.time,
        first_at=first_at,
        event_type=facts.event.event_type,
        not_before=None if starts is None else starts.timestamp(),
        is_news=facts.is_news,
        sites=sites,
        words="\n".join([facts.event.event_id, *facts.event.resources]).lower(),
        status=facts.event.event_status,
    )


def _measured(event: Event, observation: Observation) -> Event:
    """The event's row with what a reporter measured, whichever reporter shows it."""
    facts = observation.facts
    started_at, notice, downtime = event.started_at, event.notice, event.downtime
    if facts.state == "started":
        started_at = _best(min, started_at, observation.time)
    if facts.affects_this_vm:
        notice = _best(max, notice, facts.notice_seconds)
        downtime = _best(max, downtime, facts.downtime_seconds or facts.pause_seconds)
    return replace(event, started_at=started_at, notice=notice, downtime=downtime)


def _best(
    choose: Callable[[Iterable[float]], float], one: float | None, other: float | None
) -> float | None:
    known = [each for each in (one, other) if each is not None]
    return choose(known) if known else None
