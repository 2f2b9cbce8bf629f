"""A reporter's latest report of an event, made from its records and its state documents."""

from __future__ import annotations

from dataclasses import replace

from console.fleet.values.report import LatestReport
from console.fleet.values.vm import Vm
from console.records.incoming import EventReport, IncomingRecord, IncomingState
from wire.event import UNKNOWN_STATUS


def of_record(record: IncomingRecord, event: EventReport, vm: Vm) -> LatestReport:
    """Return the report of a record. Its time is corrected, so that a VM with a wrong clock is
    neither newer nor older than its peers.
    """
    at = vm.reported_at(record.time, record.received_at)
    return LatestReport(
        event_id=event.event.event_id,
        vm_id=record.vm.vm_id,
        record_id=record.id,
        stream=record.stream,
        sequence=record.sequence,
        time=at,
        first_seen_at=at,
        report=event,
        scope=vm.scope,
        is_own=vm.is_named_by(event),
    )


def of_pending(state: IncomingState, vm: Vm, record_id: str, event: EventReport) -> LatestReport:
    """Return the report of a state document about an event whose record has not come in."""
    at = vm.reported_at(state.time, state.received_at)
    return LatestReport(
        event_id=event.event.event_id,
        vm_id=state.vm_id,
        record_id=record_id,
        stream=vm.stream or "",
        sequence=0,
        time=at,
        first_seen_at=at,
        report=event,
        scope=vm.scope,
        is_own=vm.is_named_by(event),
    )


def ended_unseen(latest: LatestReport, at: float) -> LatestReport | None:
    """Return the report of an open event that is no longer pending on the VM at that time, though
    the VM has not reported its end: ended, with an unknown outcome. None if it is over already.
    """
    if latest.report.state == "ended":
        return None
    unknown = replace(latest.report.event, event_status=UNKNOWN_STATUS)
    report = replace(latest.report, transition="ended", event=unknown)
    return replace(latest, time=at, report=report)


def ended_as_unheard(latest: LatestReport, now: float) -> LatestReport:
    """Return the report of an open event that no heard VM reports any more: ended, with an unknown
    outcome.
    """
    event = replace(latest.report.event, event_status=UNKNOWN_STATUS)
    report = replace(latest.report, transition="ended", event=event)
    return replace(latest, time=now, report=report)


def supersedes(one: LatestReport, other: LatestReport) -> bool:
    """Check whether a report replaces another one of the same reporter."""
    if one.sequence and other.sequence:
        if one.stream != other.stream:
            return one.time >= other.time
        return one.sequence > other.sequence or (
            one.sequence == other.sequence and one.report != other.report
        )
    # One of them, or both, is from a state document.
    if one.stream != other.stream and one.time > other.time:
        return True  # a VM that has lost its store counts revisions from 1 again
    if one.report.revision != other.report.revision:
        return one.report.revision > other.report.revision
    if "ended" in (one.report.state, other.report.state):
        return one.time >= other.time
    return bool(one.sequence) or not other.sequence  # of the same revision, the record says more
