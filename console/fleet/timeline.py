"""What has happened to an event or a VM, one JSON object per fact."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from console.fleet.values import Gap, Receipt, Sighting
from console.fleet.view import moment

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
        }
    transition = record.type.split(".")[2] if record.type.startswith(_EVENT) else None
    return common | {"kind": "record", "type": record.type, "transition": transition}


def gap_item(gap: Gap) -> Json:
    """Records that never came."""
    return {
        "stream": gap.stream,
        "first": gap.first,
        "last": gap.last,
        "foundAt": moment(gap.found_at),
    }


def history_item(sighting: Sighting) -> Json:
    """What an event was for one VM: notice against promise, pause against announcement."""
    facts = sighting.facts
    return {
        "eventId": facts.event_id,
        "eventType": facts.event_type,
        "impact": facts.impact,
        "state": facts.state,
        "eventStatus": facts.status,
        "affectsThisVm": facts.affects,
        "notBefore": facts.not_before,
        "firstSeenAt": moment(sighting.first_at),
        "lastSeenAt": moment(sighting.time),
        "noticeSeconds": facts.notice,
        "durationInSeconds": facts.duration,
        "pauseSeconds": facts.pause,
        "downtimeSeconds": facts.downtime,
    }
