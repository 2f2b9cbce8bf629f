"""The fleet as the API shows it: values and `now` in, JSON objects out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from console.fleet.contact import CONTACTS, Ears, contact
from console.fleet.decisions import Standing, standing
from console.fleet.index import Fleet
from console.fleet.moments import moment
from console.fleet.values import UNDECIDED, Decided, Event, Receipt, Sighting, Vm
from console.fleet.witnesses import can_be_asked

CONDITIONS: Final = ("clear", "scheduled", "started")
Json = dict[str, Any]


def overview(
    fleet: Fleet, now: float, ears: Ears, sources: Sequence[Json], *, site: str | None = None
) -> Json:
    """The answer of `/api/v1/overview`; with a site, only its VMs and events count."""
    vms = dict.fromkeys(CONTACTS, 0)
    all_vms = [vm for vm in fleet.vms.values() if site in (None, vm.site)]
    for vm in all_vms:
        vms[contact(vm, now, ears)] += 1
    states = [
        fleet.condition(vm_id)[0]
        for vm_id in fleet.expecting()
        if site in (None, fleet.vms[vm_id].site)
    ]
    counted = {name: states.count(name) for name in CONDITIONS[1:]}
    due = sum(
        open_decision(fleet, event, now, ears).state == "due"
        for event in list(fleet.events.values())
        if site is None or site in event.sites
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


def open_decision(fleet: Fleet, event: Event, now: float, ears: Ears) -> Standing:
    """How the decision on an open event stands."""
    event_id = event.event_id
    witnesses = fleet.sightings.get(event_id, {})
    shown = witnesses.get(event.shown_by)
    named = set(fleet.named_by(event_id).values()) & set(witnesses)
    return standing(
        event.state,
        "" if shown is None else shown.facts.fingerprint,
        counting(fleet.receipts.get(event_id, ()), witnesses),
        fleet.decided.get(event_id, UNDECIDED),
        can_be_asked=can_be_asked(fleet, named, now, ears),
    )


def counting(receipts: Iterable[Receipt], witnesses: Mapping[str, Sighting]) -> list[Receipt]:
    """The receipts of VMs that the event names, by their own records: no other VM can say what
    became of it.
    """
    return [
        each for each in receipts if each.vm_id in witnesses and witnesses[each.vm_id].facts.affects
    ]


def event_item(
    fleet: Fleet,
    event: Event,
    witnesses: Mapping[str, Sighting],
    receipts: Sequence[Receipt],
    decided: Decided,
    *,
    now: float,
    ears: Ears,
) -> Json:
    """One event as `/api/v1/events` lists it."""
    facts = witnesses[event.shown_by].facts
    named = fleet.resolve(event, witnesses)
    stands = standing(
        event.state,
        facts.fingerprint,
        counting(receipts, witnesses),
        decided,
        can_be_asked=can_be_asked(fleet, set(named.values()) & set(witnesses), now, ears),
    )
    differing = any(not each.facts.is_same(facts) for each in witnesses.values())
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
        "differing": differing,
        "resources": [
            _resource(fleet, name, named.get(name), now, ears) for name in facts.resources
        ],
        "seenBy": len(witnesses),
        "firstSeenAt": moment(event.first_at),
        "decision": {
            "state": stands.state,
            "by": stands.by,
            "reason": stands.reason,
            "at": moment(stands.at),
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
