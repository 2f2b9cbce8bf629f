"""From a transition to a record without its place in the stream; values in, values out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bridge.events.diff import Look, Transition
from bridge.events.tracked import TrackedEvent
from bridge.imds.document import fingerprint, moment_text
from sinks.base import PendingEvent
from sinks.record import RecordDraft, VmIdentity, event_record_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Observer:
    """Who speaks in a record: the VM, its place in a cluster, and this run of the bridge."""

    vm: VmIdentity
    version: str
    instance_id: str
    site: str = "default"
    cluster: str | None = None
    node: str | None = None
    pod: str | None = None

    def to_wire(self) -> dict[str, Any]:
        """What every record's `data` says of its observer."""
        placed = self.cluster or self.node or self.pod
        return {
            "vm": self.vm.to_wire(),
            "node": (
                {"cluster": self.cluster, "node": self.node, "pod": self.pod} if placed else None
            ),
            "bridge": {"version": self.version, "instanceId": self.instance_id, "site": self.site},
        }


def normalize(transition: Transition, observer: Observer, look: Look) -> RecordDraft:
    """The record of a transition, all but its place in the stream."""
    known, observed = transition.known, observer.to_wire()
    event = known.event
    described = event.to_wire(status=known.status)
    hashed = fingerprint(described)
    data: dict[str, Any] = {
        "vm": observed["vm"],
        "node": observed["node"],
        "transition": transition.kind,
        "event": described,
        "affectsThisVm": known.affects_this_vm,
        "impact": event.impact,
        "revision": known.revision,
        "fingerprint": hashed,
        "document": {
            "incarnation": look.incarnation,
            "previousIncarnation": look.previous_incarnation,
        },
        "observation": _observation(transition, look),
        "raw": dict(event.raw),
        "bridge": observed["bridge"],
    }
    if transition.kind == "updated":
        data["changed"] = list(transition.changed)
    return RecordDraft(
        type=f"seb.event.{transition.kind}.v1",
        source=observer.vm.source,
        subject=f"scheduledEvents/{event.event_id}",
        time=look.now,
        partition_key=observer.vm.vm_id,
        data=data,
        id=event_record_id(
            vm_id=observer.vm.vm_id,
            event_id=event.event_id,
            transition=transition.kind,
            revision=known.revision,
            fingerprint=hashed,
        ),
    )


def pending_event(known: TrackedEvent) -> PendingEvent:
    """An event as state topics and pages show it."""
    return PendingEvent(
        record_id=known.record_id,
        event_id=known.event.event_id,
        event_type=known.event.event_type,
        event_status=known.status,
        not_before=moment_text(known.event.not_before),
        resources=known.event.resources,
        affects_this_vm=known.affects_this_vm,
        impact=known.event.impact,
        revision=known.revision,
        fingerprint=known.fingerprint,
        resource_type=known.event.resource_type,
        event_source=known.event.event_source,
        duration_in_seconds=known.event.duration_in_seconds,
    )


def _observation(transition: Transition, look: Look) -> dict[str, Any]:
    known = transition.known
    observation: dict[str, Any] = {
        "noticeSeconds": known.notice_seconds,
        "gapSeconds": None if look.gap_seconds is None else round(look.gap_seconds, 3),
        "latencyMs": None if look.latency_ms is None else round(look.latency_ms, 3),
    }
    if transition.kind in ("started", "ended"):
        observation["pauseSeconds"] = known.measured.pause_seconds
        observation["restarted"] = known.measured.restarted
        observation["downtimeSeconds"] = known.measured.downtime_seconds
    if transition.kind == "ended":
        observation["goesOnWithoutThisVm"] = transition.goes_on
    return observation
