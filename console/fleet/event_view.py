"""An event as the API and the pages show it: the class of each answer, and the function that makes
it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

from console.fleet.candidates import candidates
from console.fleet.commands import CommandState, command_status
from console.fleet.contact import Contact, Listening
from console.fleet.decisions import DecisionStatus, DecisionStatusName, decision_status, with_turn
from console.fleet.differences import WORDING, report_differences
from console.fleet.model import Count, Model, Moment, ReportedMoment
from console.fleet.timeline import TimelineEntry
from console.fleet.values.decision import Receipt, VmCommand
from console.fleet.values.event import KnownEvent
from console.fleet.values.keys import name_key
from console.fleet.values.report import LatestReport
from console.fleet.values.turn import EventTurn, TurnState
from console.fleet.values.vm import HeardVm
from console.records.incoming import EventState
from wire import event as wire
from wire.event import EVENT_FIELDS
from wire.fields import fields_of

_NOT_AS_REPORTED: Final = {
    "eventId": "as the event's row has it",
    "resources": "each with the VM that it was found to be",
    "resourceType": "always VirtualMachine",
}
SHOWN_FIELDS: Final = tuple(name for name in EVENT_FIELDS if name not in _NOT_AS_REPORTED)
"""The fields of an event, by their names in records, that the API shows unchanged."""
_SHOWN: Final = tuple(each.attribute for each in fields_of(wire.Event) if each.wire in SHOWN_FIELDS)


def decision_on(known: KnownEvent, now: float, listening: Listening) -> DecisionStatus:
    """Return the status of the decision on an event now."""
    status = decision_status(
        known.event.state,
        known.shown.report.fingerprint,
        known.receipts,
        known.decided,
        can_be_asked=bool(candidates(known, now, listening)),
    )
    named = known.named.values()
    return with_turn(
        status,
        known.turn,
        is_grouped=any(each.is_grouped for each in named),
        can_prepare=all(each.contact in ("heard", "late") for each in named if each.prepares),
        has_latest_groups=known.has_latest_groups,
    )


class Resource(Model):
    """A name that an event lists, and the VM that it was found to be."""

    name: str
    vm_id: str | None
    contact: Contact | None


class DecisionItem(Model):
    """The status of the decision on an event."""

    state: DecisionStatusName
    by: str | None
    reason: str | None
    at: Moment | None


class Try(Model):
    """One command of the console about an event. No answer counts that comes after `until`."""

    jti: str
    vm_id: str
    by: str
    state: CommandState
    reason: str | None
    sent_at: Moment | None
    until: Moment | None
    at: Moment | None


class TurnHolderItem(Model):
    """A VM that is away in a group, and the event for which it is."""

    vm_id: str
    name: str
    event_id: str | None


class TurnItem(Model):
    """Whose turn it is, in the groups of the event's VMs."""

    state: Literal["none", TurnState]
    groups: list[str]
    held_by: list[TurnHolderItem]
    since: Moment | None
    reason: str | None


class EventConflict(Model):
    """The contradiction about an event: another scope has reported another event under its id
    (`scope`), or a VM that reports it reports another identity than it is known by (`vm`).
    """

    kind: Literal["scope", "vm"]
    scope: str | None
    vm_id: str | None
    name: str | None


class EventItem(Model):
    """An event as a list shows it."""

    event_id: str
    scope: str
    conflicts: list[EventConflict]
    state: EventState
    event_status: str
    event_type: str | None
    event_source: str | None
    impact: str | None
    not_before: ReportedMoment | None
    duration_in_seconds: int | None
    description: str | None
    fingerprint: str
    differing: bool
    resources: list[Resource]
    seen_by: Count
    first_seen_at: Moment | None
    turn: TurnItem
    decision: DecisionItem
    started_at: Moment | None
    ended_at: Moment | None
    downtime_seconds: float | None
    notice_seconds: float | None
    taken_by: str | None
    taken_until: Moment | None
    tries: list[Try]

    @property
    def start(self) -> float | None:
        """`not_before` in seconds since 1970."""
        return None if self.not_before is None else self.not_before.timestamp()

    @property
    def names(self) -> list[str]:
        """The names of all VMs that it lists, each once, in its order."""
        return list(dict.fromkeys(each.name for each in self.resources))

    @property
    def is_news(self) -> bool:
        """Whether it is only information: no decision is due."""
        return self.state == "scheduled" and wire.is_news(self.event_status)


def event_item(
    known: KnownEvent, now: float, listening: Listening, *, shows_other_scopes: bool = True
) -> EventItem:
    """Return an event as `/api/v1/events` lists it. With `shows_other_scopes` a conflict names the
    scope or the VM that contradicts; otherwise it says only that there is one.
    """
    event = known.event
    report = known.shown.report
    decision = decision_on(known, now, listening)
    return EventItem(
        event_id=event.event_id,
        scope=event.scope,
        conflicts=_event_conflicts(known, shows_other_scopes=shows_other_scopes),
        state=event.state,
        impact=report.impact,
        **{name: getattr(report.event, name) for name in _SHOWN},
        fingerprint=report.fingerprint,
        differing=known.reports_differ,
        resources=[_resource(known, name) for name in report.event.resources],
        seen_by=known.seen_by,
        first_seen_at=event.first_seen_at,
        turn=_turn(known.turn),
        decision=DecisionItem(
            state=decision.state,
            by=decision.by,
            reason=decision.reason,
            at=decision.at,
        ),
        started_at=event.started_at,
        ended_at=event.shown_at if event.state == "ended" else None,
        downtime_seconds=event.downtime,
        notice_seconds=event.notice,
        taken_by=None if known.assigned is None else known.assigned.actor,
        taken_until=None if known.assigned is None else known.assigned.until,
        tries=[_try(each, known.receipts) for each in known.decided.commands],
    )


def _event_conflicts(known: KnownEvent, *, shows_other_scopes: bool) -> list[EventConflict]:
    scopes = [
        EventConflict(
            kind="scope", scope=each if shows_other_scopes else None, vm_id=None, name=None
        )
        for each in known.other_scopes
    ]
    vms = [
        EventConflict(
            kind="vm",
            scope=None,
            vm_id=vm_id if shows_other_scopes else None,
            name=name if shows_other_scopes else None,
        )
        for vm_id, name in known.disputed
    ]
    return scopes + vms


def _try(command: VmCommand, receipts: Sequence[Receipt]) -> Try:
    """Return one command of the console, and how far it is."""
    now = command_status(command, receipts)
    return Try(
        jti=command.jti,
        vm_id=command.vm_id,
        by=command.subject,
        state=now.state,
        reason=now.reason,
        sent_at=command.sent_at or command.made_at,
        until=command.expires_at,
        at=now.at,
    )


def _turn(turn: EventTurn | None) -> TurnItem:
    """Return the turn of an event."""
    if turn is None:
        return TurnItem(state="none", groups=[], held_by=[], since=None, reason=None)
    return TurnItem(
        state=turn.state,
        groups=list(turn.groups),
        held_by=[
            TurnHolderItem(vm_id=each.vm_id, name=each.name, event_id=each.event_id)
            for each in turn.held_by
        ],
        since=turn.since,
        reason=turn.reason,
    )


def _resource(known: KnownEvent, name: str) -> Resource:
    named = known.named.get(name_key(name))
    return Resource(
        name=name,
        vm_id=None if named is None else named.vm_id,
        contact=None if named is None else named.contact,
    )


class ReportDifference(Model):
    """A field whose value at one reporter differs from the value that is shown."""

    field: str
    shown: str | int | list[str] | None
    reported: str | int | list[str] | None


class Reporter(Model):
    """What one VM reports of an event."""

    vm_id: str
    name: str | None
    contact: Contact | None
    affects_this_vm: bool
    state: EventState
    event_status: str
    fingerprint: str
    impact: str | None
    description: str | None
    last_seen_at: Moment | None
    notice_seconds: float | None
    pause_seconds: float | None
    downtime_seconds: float | None
    differences: list[ReportDifference]


class EventDetail(EventItem):
    """An event with its reporters and its timeline."""

    witnesses: list[Reporter]
    timeline: list[TimelineEntry]


def reporter_item(latest: LatestReport, heard: HeardVm | None, shown: LatestReport) -> Reporter:
    """Return one reporter's report of an event, with the fields that differ from the report that is
    shown. `heard` is its VM, if its row exists.
    """
    report = latest.report
    differences = report_differences(_comparable_fields(shown), _comparable_fields(latest))
    return Reporter(
        vm_id=latest.vm_id,
        name=None if heard is None else heard.vm.name,
        contact=None if heard is None else heard.contact,
        affects_this_vm=report.affects_this_vm,
        state=report.state,
        event_status=report.event.event_status,
        fingerprint=report.fingerprint,
        impact=report.impact,
        description=report.event.description,
        last_seen_at=latest.time,
        notice_seconds=report.notice_seconds,
        pause_seconds=report.pause_seconds,
        downtime_seconds=report.downtime_seconds,
        differences=[
            ReportDifference(field=each.field, shown=each.before, reported=each.now)
            for each in differences
        ],
    )


def _comparable_fields(latest: LatestReport) -> dict[str, Any]:
    """Return the fields in which reporters can differ. A state document, which has no sequence,
    gives only those that the fingerprint covers.
    """
    fields = {**latest.report.event.to_wire(), "impact": latest.report.impact}
    return fields if latest.sequence else {**fields, **dict.fromkeys(WORDING)}
