"""The timeline of an event or a VM, one JSON object per fact."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from console.fleet.moments import moment
from console.fleet.outcomes import outcome_words
from console.fleet.values import Command, Decision, LatestReport, Receipt, SequenceGap
from console.records.incoming import PreparationFacts

Json = dict[str, Any]
_EVENT: Final = "seb.event."


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRecord:
    """A record as the store keeps it, without its bytes."""

    id: str
    vm_id: str
    type: str
    time: float
    received_at: float
    sequence: int
    event_id: str | None
    receipt: Receipt | None = None
    preparation: PreparationFacts | None = None


def timeline_item(record: PastRecord) -> Json:
    """One line of a timeline: a record, or the receipt that a record is."""
    at = moment(min(record.time, record.received_at))
    common = {"at": at, "id": record.id, "vmId": record.vm_id, "eventId": record.event_id}
    if record.receipt is not None:
        facts = record.receipt.facts
        return common | {
            "kind": "receipt",
            "jti": facts.jti,
            "state": facts.state,
            "reason": facts.reason,
            "by": facts.actor,
            "rsn": facts.why,
            "act": facts.act,
        }
    if record.preparation is not None:
        return common | {
            "kind": "preparation",
            "state": record.preparation.state,
            "reason": record.preparation.reason,
            "cause": record.preparation.cause,
        }
    transition = record.type.split(".")[2] if record.type.startswith(_EVENT) else None
    return common | {"kind": "record", "type": record.type, "transition": transition}


def timeline(
    records: Sequence[PastRecord], decisions: Iterable[Decision], commands: Iterable[Command]
) -> list[Json]:
    """All that happened to an event, in order."""
    items = [timeline_item(each) for each in records]
    for command in commands:
        items += _command_items(command)
    for each in decisions:
        items += _decision_items(each)
    return sorted(items, key=lambda item: str(item["at"]))


def _decision_items(decision: Decision) -> Iterable[Json]:
    """What was said, and how it ended."""
    said = {
        "at": moment(decision.at),
        "kind": "decision",
        "id": decision.id,
        "eventId": decision.event_id,
        "action": decision.kind,
        "by": decision.actors,
        "reason": decision.reason,
        "outcome": None,
        "words": None,
    }
    yield said
    if decision.outcome is not None:
        words = outcome_words(decision.outcome, decision.outcome_reason)
        yield said | {"at": moment(decision.over_at), "outcome": decision.outcome, "words": words}


def _command_items(command: Command) -> Iterable[Json]:
    """A VM was asked, and perhaps did not answer."""
    asked = {
        "at": moment(command.sent_at or command.made_at),
        "kind": "command",
        "jti": command.jti,
        "eventId": command.event_id,
        "vmId": command.vm_id,
        "channel": command.channel,
        "act": command.act,
        "state": "made" if command.sent_at is None else "sent",
    }
    yield asked
    if command.unanswered_at is not None:
        yield asked | {"at": moment(command.unanswered_at), "state": "unanswered"}


def gap_item(gap: SequenceGap) -> Json:
    """Records that never came."""
    return {
        "stream": gap.stream,
        "first": gap.first,
        "last": gap.last,
        "foundAt": moment(gap.found_at),
    }


def history_item(latest: LatestReport) -> Json:
    """What an event was for one VM: notice against promise, pause against announcement."""
    report = latest.report
    fields = report.event.to_wire()
    return {
        "eventId": fields["eventId"],
        "eventType": fields["eventType"],
        "impact": report.impact,
        "state": report.state,
        "eventStatus": fields["eventStatus"],
        "affectsThisVm": report.affects_this_vm,
        "notBefore": fields["notBefore"],
        "firstSeenAt": moment(latest.first_at),
        "lastSeenAt": moment(latest.time),
        "noticeSeconds": report.notice_seconds,
        "durationInSeconds": fields["durationInSeconds"],
        "pauseSeconds": report.pause_seconds,
        "downtimeSeconds": report.downtime_seconds,
    }
