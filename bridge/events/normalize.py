"""Turns a transition into a record without its place in the stream; values in, values out."""

from __future__ import annotations

from bridge.events.diff import PollContext, Transition
from bridge.events.tracked import TrackedEvent
from wire.event import EventData, Incarnations, Observation
from wire.observer import Observer
from wire.record import RecordDraft, draft, event_record_id
from wire.state import PendingEvent


def normalize(transition: Transition, observer: Observer, poll: PollContext) -> RecordDraft:
    """Return the record of a transition, without its place in the stream."""
    tracked = transition.tracked
    data = EventData(
        vm=observer.vm,
        node=observer.node,
        bridge=observer.bridge,
        transition=transition.kind,
        event=tracked.as_reported,
        affects_this_vm=tracked.affects_this_vm,
        concerns_this_vm=transition.concerns_this_vm,
        impact=tracked.event.impact,
        revision=tracked.revision,
        changed=transition.changed if transition.kind == "updated" else None,
        fingerprint=tracked.fingerprint,
        document=Incarnations(
            incarnation=poll.incarnation, previous_incarnation=poll.previous_incarnation
        ),
        observation=_observation(transition, poll),
        raw=tracked.event.raw,
    )
    return draft(
        f"seb.event.{transition.kind}.v1",
        data,
        subject=f"scheduledEvents/{tracked.event.event_id}",
        now=poll.now,
        record_id=event_record_id(
            vm_id=observer.vm.vm_id,
            event_id=tracked.event.event_id,
            transition=transition.kind,
            revision=tracked.revision,
            fingerprint=data.fingerprint,
            now=poll.now,
        ),
    )


def pending_event(tracked: TrackedEvent, *, preparation: str | None = None) -> PendingEvent:
    """Return an event as state topics and pages show it, with the state of this VM's
    preparation.
    """
    return PendingEvent(
        record_id=tracked.record_id,
        event=tracked.as_reported,
        affects_this_vm=tracked.affects_this_vm,
        impact=tracked.event.impact,
        revision=tracked.revision,
        fingerprint=tracked.fingerprint,
        preparation=preparation,
    )


def _observation(transition: Transition, poll: PollContext) -> Observation:
    measured = transition.tracked.measured
    is_over = transition.kind == "ended"
    return Observation(
        notice_seconds=transition.tracked.notice_seconds,
        gap_seconds=None if poll.gap_seconds is None else round(poll.gap_seconds, 3),
        latency_ms=None if poll.latency_ms is None else round(poll.latency_ms, 3),
        pause_seconds=measured.pause_seconds,
        restarted=measured.restarted,
        downtime_seconds=measured.downtime_seconds,
        goes_on_without_this_vm=transition.tracked.goes_on_without_this_vm if is_over else None,
    )
