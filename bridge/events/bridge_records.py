"""The records about the bridge itself; values in, values out, like `normalize`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from bridge.events.gaps import Gap
from bridge.events.normalize import Observer
from bridge.store.recovery import StoreReset
from sinks import record as records
from sinks.record import EventRecord, RecordDraft, rfc3339


def started(
    observer: Observer,
    now: datetime,
    *,
    sinks: Sequence[str],
    restarted: bool | None,
    gap_seconds: float | None,
) -> RecordDraft:
    """A run begins: its sinks, whether the VM booted meanwhile, and the seconds without a poll."""
    detail = {
        "sinks": list(sinks),
        "restarted": restarted,
        "gapSeconds": None if gap_seconds is None else round(gap_seconds, 3),
    }
    return _draft(records.BRIDGE_STARTED, observer, now, "started", detail)


def stopped(observer: Observer, now: datetime, *, reason: str) -> RecordDraft:
    """A run ends in good order."""
    return _draft(records.BRIDGE_STOPPED, observer, now, "stopped", {"reason": reason})


def heartbeat(
    observer: Observer,
    now: datetime,
    *,
    interval: float,
    looked_at: datetime | None,
    pending: int,
    last_sequence: int,
) -> RecordDraft:
    """The bridge is alive: the next heartbeat is due in `interval` seconds."""
    detail = {
        "intervalSeconds": interval,
        "lastPollTime": looked_at and rfc3339(looked_at),
        "pendingEvents": pending,
        "lastRecordSequence": f"{last_sequence:020d}",
    }
    return _draft(records.BRIDGE_HEARTBEAT, observer, now, "heartbeat", detail)


def gap(observer: Observer, now: datetime, ended: Gap) -> list[RecordDraft]:
    """The record of a long gap between polls; none for a short one."""
    if not ended.is_long or ended.since is None:
        return []
    detail = {
        "from": rfc3339(ended.since),
        "until": rfc3339(now),
        "seconds": round(ended.seconds or 0.0, 3),
        "reason": ended.reason,
    }
    return [_draft(records.BRIDGE_GAP, observer, now, "gap", detail)]


def store_reset(observer: Observer, now: datetime, reset: StoreReset) -> RecordDraft:
    """The store was lost, and a new one was begun."""
    detail = {
        "reason": reset.reason,
        "previousStream": reset.previous_stream,
        "keptAs": reset.kept_as,
    }
    return _draft(records.BRIDGE_STORE_RESET, observer, now, "storeReset", detail)


def dead_letter(
    observer: Observer, now: datetime, *, sink: str, record: EventRecord, reason: str, attempts: int
) -> RecordDraft:
    """A sink refused a record for good."""
    detail = {
        "sink": sink,
        "recordId": record.id,
        "recordType": record.type,
        "recordSequence": f"{record.sequence:020d}",
        "reason": reason,
        "attempts": attempts,
    }
    return _draft(records.BRIDGE_DEAD_LETTER, observer, now, "deadLetter", detail)


def _draft(
    record_type: str, observer: Observer, now: datetime, key: str, detail: Mapping[str, object]
) -> RecordDraft:
    return RecordDraft(
        type=record_type,
        source=observer.vm.source,
        subject=f"bridge/{observer.instance_id}",
        time=now,
        partition_key=observer.vm.vm_id,
        data={**observer.to_wire(), key: detail},
    )
