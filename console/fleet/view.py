"""The fleet as the API shows it: values in, JSON objects out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from console.fleet.candidates import candidates
from console.fleet.commands import stand
from console.fleet.contact import CONTACTS, Listening
from console.fleet.decisions import DecisionStatus, in_turn, standing
from console.fleet.differences import report_differences
from console.fleet.moments import moment
from console.fleet.values import (
    CLEAR,
    Command,
    EventTurn,
    Expectation,
    HeardVm,
    KnownEvent,
    LatestReport,
    Receipt,
    Taken,
    Vm,
    folded,
)
from wire.event import EVENT_FIELDS

CONDITIONS: Final = (CLEAR, "scheduled", "started")
_NOT_AS_REPORTED: Final = {
    "eventId": "as the event's row has it",
    "resources": "each with the VM that it was found to be",
    "resourceType": "always VirtualMachine",
}
SHOWN_FIELDS: Final = tuple(name for name in EVENT_FIELDS if name not in _NOT_AS_REPORTED)
"""Fields of an event, by their names in records, that the API shows as the records have them."""
Json = dict[str, Any]


def overview(
    contacts: Mapping[str, int],
    conditions: Mapping[str, int],
    *,
    due: int,
    now: float,
    sources: Sequence[Json],
) -> Json:
    """The answer of `/api/v1/overview`, from the numbers of VMs by contact and by condition."""
    vms = {name: contacts.get(name, 0) for name in CONTACTS}
    total = sum(vms.values())
    expecting = {name: conditions.get(name, 0) for name in CONDITIONS[1:]}
    return {
        "now": moment(now),
        "vms": {"total": total, **vms},
        "conditions": {CLEAR: total - sum(expecting.values()), **expecting},
        "decisionsDue": due,
        "sources": list(sources),
    }


def vm_item(heard: HeardVm, expectation: Expectation, taken: Taken | None = None) -> Json:
    """One VM as `/api/v1/vms` lists it."""
    vm = heard.vm
    return {
        "vmId": vm.vm_id,
        "name": vm.name,
        "site": vm.site,
        "resourceId": vm.resource_id,
        "location": vm.location,
        "zone": vm.zone,
        "scaleSet": vm.scale_set,
        "contact": heard.contact,
        "condition": expectation.condition,
        "lastHeardAt": moment(vm.heard_at),
        "bridgeVersion": vm.version,
        "prepares": vm.prepares,
        "gaps": vm.missing,
        "conflict": conflict_item(vm),
        "events": list(expectation.events),
        "takenBy": None if taken is None else taken.actor,
        "takenUntil": None if taken is None else moment(taken.until),
    }


def conflict_item(vm: Vm) -> Json | None:
    """What contradicts a VM's name or place; None if nothing does."""
    if vm.conflict_at is None:
        return None
    said = vm.said or vm.known_as
    return {
        "id": said.id,
        "since": moment(vm.conflict_at),
        "isTaken": vm.withheld,
        "said": {
            "name": said.name,
            "site": said.site,
            "resourceId": said.resource_id,
            "subscriptionId": said.subscription_id,
            "resourceGroup": said.resource_group,
            "scaleSet": said.scale_set,
        },
    }


def decision_on(known: KnownEvent, now: float, listening: Listening) -> DecisionStatus:
    """How the decision on an event is now."""
    now_stands = standing(
        known.event.state,
        known.shown.report.fingerprint,
        known.receipts,
        known.decided,
        can_be_asked=bool(candidates(known, now, listening)),
    )
    named = known.named.values()
    return in_turn(
        now_stands,
        known.turn,
        is_grouped=any(each.is_grouped for each in named),
        can_prepare=all(each.contact in ("heard", "late") for each in named if each.prepares),
    )


def event_item(
    known: KnownEvent, now: float, listening: Listening, *, names_scopes: bool = True
) -> Json:
    """One event as `/api/v1/events` lists it; `names_scopes` says which other scopes have reported
    another event under its id.
    """
    event, report = known.event, known.shown.report
    fields = report.event.to_wire()
    decision = decision_on(known, now, listening)
    return {
        "eventId": event.event_id,
        "scope": event.scope,
        "conflicts": [
            *(
                {
                    "kind": "scope",
                    "scope": each if names_scopes else None,
                    "vmId": None,
                    "name": None,
                }
                for each in known.other_scopes
            ),
            *(
                {
                    "kind": "vm",
                    "scope": None,
                    "vmId": vm_id if names_scopes else None,
                    "name": name if names_scopes else None,
                }
                for vm_id, name in known.disputed
            ),
        ],
        "state": event.state,
        "impact": report.impact,
        **{name: fields[name] for name in SHOWN_FIELDS},
        "fingerprint": report.fingerprint,
        "differing": known.differing,
        "resources": [_resource(known, name) for name in report.event.resources],
        "seenBy": known.seen_by,
        "firstSeenAt": moment(event.first_at),
        "turn": turn_item(known.turn),
        "decision": {
            "state": decision.state,
            "by": decision.by,
            "reason": decision.reason,
            "at": moment(decision.at),
        },
        "startedAt": moment(event.started_at),
        "endedAt": moment(event.shown_at) if event.state == "ended" else None,
        "downtimeSeconds": event.downtime,
        "noticeSeconds": event.notice,
        "takenBy": None if known.taken is None else known.taken.actor,
        "takenUntil": None if known.taken is None else moment(known.taken.until),
        "tries": [_try(each, known.receipts) for each in known.decided.commands],
    }


def _try(command: Command, receipts: Sequence[Receipt]) -> Json:
    """How far one command of the console is."""
    now = stand(command, receipts)
    return {
        "jti": command.jti,
        "vmId": command.vm_id,
        "by": command.subject,
        "state": now.state,
        "reason": now.reason,
        "sentAt": moment(command.sent_at or command.made_at),
        "until": moment(command.expires_at),
        "at": moment(now.at),
    }


def turn_item(turn: EventTurn | None) -> Json:
    """Whose turn it is, of an event."""
    if turn is None:
        return {"state": "none", "groups": [], "heldBy": [], "since": None, "reason": None}
    return {
        "state": turn.state,
        "groups": list(turn.groups),
        "heldBy": [
            {"vmId": each.vm_id, "name": each.name, "eventId": each.event_id}
            for each in turn.held_by
        ],
        "since": moment(turn.since),
        "reason": turn.reason,
    }


def reporter_item(latest: LatestReport, heard: HeardVm | None, shown: LatestReport) -> Json:
    """What one reporter says of an event, and in which fields that differs from what `shown` says;
    `heard` is its VM, if its row is there.
    """
    report = latest.report
    other = report_differences(_said(shown), _said(latest))
    return {
        "vmId": latest.vm_id,
        "name": None if heard is None else heard.vm.name,
        "contact": None if heard is None else heard.contact,
        "affectsThisVm": report.affects_this_vm,
        "state": report.state,
        "eventStatus": report.event.event_status,
        "fingerprint": report.fingerprint,
        "impact": report.impact,
        "description": report.event.description,
        "lastSeenAt": moment(latest.time),
        "noticeSeconds": report.notice_seconds,
        "pauseSeconds": report.pause_seconds,
        "downtimeSeconds": report.downtime_seconds,
        "differences": [
            {"field": each.field, "shown": each.before, "reported": each.now} for each in other
        ],
    }


def _said(latest: LatestReport) -> Json:
    """The fields of an event by which reporters can differ; a state document, which has no
    sequence, gives neither impact nor description.
    """
    report = latest.report
    said = {**report.event.to_wire(), "impact": report.impact}
    return said if latest.sequence else {**said, "impact": None, "description": None}


def _resource(known: KnownEvent, name: str) -> Json:
    named = known.named.get(folded(name))
    return {
        "name": name,
        "vmId": None if named is None else named.vm_id,
        "contact": None if named is None else named.contact,
    }
