"""The fleet as the API shows it: values and `now` in, JSON objects out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from console.fleet.contact import CONTACTS, Ears, contact
from console.fleet.decisions import Decision, decision
from console.fleet.index import Fleet
from console.fleet.values import Event, Receipt, Sighting, Vm

CONDITIONS: Final = ("clear", "scheduled", "started")
Json = dict[str, Any]


def moment(at: float | None) -> str | None:
    """RFC 3339 in UTC with milliseconds."""
    if not at:
        return None
    text = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def overview(fleet: Fleet, now: float, ears: Ears, sources: Sequence[Json]) -> Json:
    """The answer of `/api/v1/overview`."""
    vms = dict.fromkeys(CONTACTS, 0)
    all_vms = list(fleet.vms.values())
    for vm in all_vms:
        vms[contact(vm, now, ears)] += 1
    states = [fleet.condition(vm_id)[0] for vm_id in fleet.expecting()]
    counted = {name: states.count(name) for name in CONDITIONS[1:]}
    due = sum(
        open_decision(fleet, event, now, ears).state == "due"
        for event in list(fleet.events.values())
    )
    return {
        "now": moment(now),
        "vms": {"total": len(all_vms), **vms},
        "conditions": {"clear": len(all_vms) - len(states), **counted},
        "decisionsDue": due,
        "sources": list(sources),
    }


def vm_item(fleet: Fleet, vm: Vm, now: float, ears: Ears) -> Json:
    """One VM as `/api/v1/vms` lists it."""
    condition, events = fleet.condition(vm.vm_id)
    return {
        "vmId": vm.vm_id,
        "name": vm.name,
        "site": vm.site,
        "resourceId": vm.resource_id,
        "location": vm.location,
        "zone": vm.zone,
        "scaleSet": vm.scale_set,
        "contact": contact(vm, now, ears),
        "condition": condition,
        "lastHeardAt": moment(vm.heard_at),
        "bridgeVersion": vm.version,
        "gaps": vm.missing,
        "events": events,
    }


def open_decision(fleet: Fleet, event: Event, now: float, ears: Ears) -> Decision:
    """The decision on an open event."""
    named = set(fleet.named_by(event.event_id).values())
    witnesses = fleet.sightings.get(event.event_id, {})
    return _decision(
        fleet,
        event,
        fleet.receipts.get(event.event_id, ()),
        named & set(witnesses),
        now=now,
        ears=ears,
    )


def _decision(
    fleet: Fleet,
    event: Event,
    receipts: Sequence[Receipt],
    named_witnesses: Iterable[str],
    *,
    now: float,
    ears: Ears,
) -> Decision:
    can_be_asked = any(
        vm.commands is not None and contact(vm, now, ears) == "heard"
        for vm_id in named_witnesses
        if (vm := fleet.vms.get(vm_id)) is not None
    )
    return decision(event.state, receipts, can_be_asked=can_be_asked)


def event_item(
    fleet: Fleet,
    event: Event,
    witnesses: Mapping[str, Sighting],
    receipts: Sequence[Receipt],
    *,
    now: float,
    ears: Ears,
) -> Json:
    """One event as `/api/v1/events` lists it."""
    facts = witnesses[event.shown_by].facts
    named = fleet.resolve(event, witnesses)
    decided = _decision(
        fleet, event, receipts, set(named.values()) & set(witnesses), now=now, ears=ears
    )
    fingerprints = {sighting.facts.fingerprint for sighting in witnesses.values()}
    return {
        "eventId": event.event_id,
        "state": event.state,
        "eventStatus": facts.status,
        "eventType": facts.event_type,
        "eventSource": facts.event_source,
        "impact": facts.impact,
        "notBefore": facts.not_before,
        "durationInSeconds": facts.duration,
        "description": facts.description,
        "fingerprint": facts.fingerprint,
        "differing": len(fingerprints) > 1,
        "resources": [
            _resource(fleet, name, named.get(name), now, ears) for name in facts.resources
        ],
        "seenBy": len(witnesses),
        "firstSeenAt": moment(event.first_at),
        "decision": {
            "state": decided.state,
            "by": decided.by,
            "reason": decided.reason,
            "at": moment(decided.at),
        },
    }


def witness_item(fleet: Fleet, sighting: Sighting, now: float, ears: Ears) -> Json:
    """What one witness says of an event."""
    vm = fleet.vms.get(sighting.vm_id)
    return {
        "vmId": sighting.vm_id,
        "name": None if vm is None else vm.name,
        "contact": None if vm is None else contact(vm, now, ears),
        "affectsThisVm": sighting.facts.affects,
        "state": sighting.facts.state,
        "eventStatus": sighting.facts.status,
        "fingerprint": sighting.facts.fingerprint,
        "lastSeenAt": moment(sighting.time),
        "noticeSeconds": sighting.facts.notice,
        "pauseSeconds": sighting.facts.pause,
        "downtimeSeconds": sighting.facts.downtime,
    }


def _resource(fleet: Fleet, name: str, vm_id: str | None, now: float, ears: Ears) -> Json:
    vm = None if vm_id is None else fleet.vms.get(vm_id)
    return {
        "name": name,
        "vmId": vm_id,
        "contact": None if vm is None else contact(vm, now, ears),
    }
