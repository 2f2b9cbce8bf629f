"""The timeline of an event or a VM, one entry per fact."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import Field

from console.fleet.model import Model, Moment, ReportedMoment
from console.fleet.outcomes import outcome_text
from console.fleet.values.decision import Decision, Receipt, VmCommand
from console.fleet.values.report import LatestReport
from console.fleet.values.stream import SequenceGap
from console.records.incoming import EventState, PreparationContent

_EVENT: Final = "seb.event."


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRecord:
    """A stored record, without its bytes."""

    id: str
    vm_id: str
    type: str
    time: float
    received_at: float
    sequence: int
    event_id: str | None
    receipt: Receipt | None = None
    preparation: PreparationContent | None = None


class TimelineRecord(Model):
    """An entry: a record came in."""

    kind: Literal["record"]
    at: Moment | None
    id: str
    vm_id: str
    event_id: str | None
    type: str
    transition: str | None


class TimelineReceipt(Model):
    """An entry: a VM reported a state of an approval."""

    kind: Literal["receipt"]
    at: Moment | None
    id: str
    vm_id: str
    event_id: str | None
    jti: str
    state: str
    reason: str | None
    by: str | None
    rsn: str | None
    act: str | None


class TimelinePreparation(Model):
    """An entry: a VM reported how far it has prepared."""

    kind: Literal["preparation"]
    at: Moment | None
    id: str
    vm_id: str
    event_id: str | None
    state: str
    reason: str | None
    cause: str | None


class TimelineDecision(Model):
    """An entry: a person or a program decided, or the decision ended."""

    kind: Literal["decision"]
    at: Moment | None
    id: str
    event_id: str
    action: str
    by: str
    reason: str | None
    outcome: str | None
    words: str | None


class TimelineCommand(Model):
    """An entry: a command was sent to a VM, or the VM did not answer."""

    kind: Literal["command"]
    at: Moment | None
    jti: str
    event_id: str
    vm_id: str
    channel: str
    act: str
    state: str


TimelineEntry = Annotated[
    TimelineRecord | TimelineReceipt | TimelinePreparation | TimelineDecision | TimelineCommand,
    Field(discriminator="kind"),
]


def timeline_item(record: PastRecord) -> TimelineRecord | TimelineReceipt | TimelinePreparation:
    """Return one entry of a timeline: a record, or the receipt or preparation in it."""
    at = min(record.time, record.received_at)
    if record.receipt is not None:
        content = record.receipt.content
        return TimelineReceipt(
            kind="receipt",
            at=at,
            id=record.id,
            vm_id=record.vm_id,
            event_id=record.event_id,
            jti=content.jti,
            state=content.state,
            reason=content.reason,
            by=content.actor,
            rsn=content.person_reason,
            act=content.act,
        )
    if record.preparation is not None:
        return TimelinePreparation(
            kind="preparation",
            at=at,
            id=record.id,
            vm_id=record.vm_id,
            event_id=record.event_id,
            state=record.preparation.state,
            reason=record.preparation.reason,
            cause=record.preparation.cause,
        )
    return TimelineRecord(
        kind="record",
        at=at,
        id=record.id,
        vm_id=record.vm_id,
        event_id=record.event_id,
        type=record.type,
        transition=record.type.split(".")[2] if record.type.startswith(_EVENT) else None,
    )


def timeline(
    records: Sequence[PastRecord], decisions: Iterable[Decision], commands: Iterable[VmCommand]
) -> list[TimelineEntry]:
    """Return everything that happened to an event, in order."""
    items: list[TimelineEntry] = [timeline_item(each) for each in records]
    for command in commands:
        items += _command_items(command)
    for each in decisions:
        items += _decision_items(each)
    return sorted(items, key=lambda item: item.at or 0.0)


def _decision_items(decision: Decision) -> Iterable[TimelineDecision]:
    """Yield what was decided, and how it ended."""
    decided = TimelineDecision(
        kind="decision",
        at=decision.at,
        id=decision.id,
        event_id=decision.event_id,
        action=decision.kind,
        by=decision.actors,
        reason=decision.reason,
        outcome=None,
        words=None,
    )
    yield decided
    if decision.outcome is not None:
        text = outcome_text(decision.outcome, decision.outcome_reason)
        ended = {"at": decision.over_at, "outcome": decision.outcome, "words": text}
        yield decided.model_copy(update=ended)


def _command_items(command: VmCommand) -> Iterable[TimelineCommand]:
    """Yield the sending of a command to a VM, and that the VM did not answer."""
    sent = TimelineCommand(
        kind="command",
        at=command.sent_at or command.made_at,
        jti=command.jti,
        event_id=command.event_id,
        vm_id=command.vm_id,
        channel=command.channel,
        act=command.act,
        state="made" if command.sent_at is None else "sent",
    )
    yield sent
    if command.unanswered_at is not None:
        yield sent.model_copy(update={"at": command.unanswered_at, "state": "unanswered"})


class MissingRecords(Model):
    """Records that never came."""

    stream: str
    first: int
    last: int
    found_at: Moment | None


def gap_item(gap: SequenceGap) -> MissingRecords:
    """Return a gap as the API shows it."""
    return MissingRecords(stream=gap.stream, first=gap.first, last=gap.last, found_at=gap.found_at)


class PastEvent(Model):
    """What is known of an event at one VM."""

    event_id: str
    event_type: str | None
    impact: str | None
    state: EventState
    event_status: str
    affects_this_vm: bool
    not_before: ReportedMoment | None
    first_seen_at: Moment | None
    last_seen_at: Moment | None
    notice_seconds: float | None
    duration_in_seconds: int | None
    pause_seconds: float | None
    downtime_seconds: float | None


def history_item(latest: LatestReport) -> PastEvent:
    """Return what is known of an event at one VM: the notice that it got, and the pause that it
    measured.
    """
    report = latest.report
    event = latest.report.event
    return PastEvent(
        event_id=event.event_id,
        event_type=event.event_type,
        impact=report.impact,
        state=report.state,
        event_status=event.event_status,
        affects_this_vm=report.affects_this_vm,
        not_before=event.not_before,
        first_seen_at=latest.first_seen_at,
        last_seen_at=latest.time,
        notice_seconds=report.notice_seconds,
        duration_in_seconds=event.duration_in_seconds,
        pause_seconds=report.pause_seconds,
        downtime_seconds=report.downtime_seconds,
    )
