"""The records about the bridge itself; values in, values out, like `normalize`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from bridge.events.gaps import PollGap
from wire import bridge
from wire import record as records
from wire.observer import Observer
from wire.record import Record, RecordDraft, draft


def started(
    observer: Observer,
    now: datetime,
    *,
    sinks: Sequence[str],
    restarted: bool | None,
    gap_seconds: float | None,
    prepares: bool = False,
) -> RecordDraft:
    """Return the record that a run begins: its sinks, whether the VM was booted, and the seconds
    without a poll.
    """
    detail = bridge.Started(
        sinks=tuple(sinks),
        restarted=restarted,
        gap_seconds=None if gap_seconds is None else round(gap_seconds, 3),
        prepares=prepares,
    )
    data = bridge.StartedData(
        vm=observer.vm, node=observer.node, bridge=observer.bridge, started=detail
    )
    return draft(records.BRIDGE_STARTED, data, subject=_subject(observer), now=now)


def stopped(observer: Observer, now: datetime, *, reason: str) -> RecordDraft:
    """Return the record that a run ends in good order."""
    data = bridge.StoppedData(
        vm=observer.vm,
        node=observer.node,
        bridge=observer.bridge,
        stopped=bridge.Stopped(reason=reason),
    )
    return draft(records.BRIDGE_STOPPED, data, subject=_subject(observer), now=now)


def heartbeat(
    observer: Observer,
    now: datetime,
    *,
    interval: float,
    polled_at: datetime | None,
    pending: int,
    last_sequence: int,
    prepares: bool = False,
) -> RecordDraft:
    """Return the record that the bridge is alive: the next heartbeat is due in `interval`
    seconds.
    """
    detail = bridge.Heartbeat(
        interval_seconds=interval,
        last_poll_time=polled_at,
        pending_events=pending,
        last_record_sequence=last_sequence,
        prepares=prepares,
    )
    data = bridge.HeartbeatData(
        vm=observer.vm, node=observer.node, bridge=observer.bridge, heartbeat=detail
    )
    return draft(records.BRIDGE_HEARTBEAT, data, subject=_subject(observer), now=now)


def gap(observer: Observer, now: datetime, ended: PollGap) -> list[RecordDraft]:
    """Return the record of a long gap between polls; none for a short one."""
    if not ended.is_long or ended.since is None:
        return []
    detail = bridge.Gap(
        since=ended.since,
        until=now,
        seconds=round(ended.seconds or 0.0, 3),
        reason=ended.reason,
    )
    data = bridge.GapData(vm=observer.vm, node=observer.node, bridge=observer.bridge, gap=detail)
    return [draft(records.BRIDGE_GAP, data, subject=_subject(observer), now=now)]


def store_reset(observer: Observer, now: datetime, reset: bridge.StoreReset) -> RecordDraft:
    """Return the record that the store was lost, and a new one was begun."""
    data = bridge.StoreResetData(
        vm=observer.vm, node=observer.node, bridge=observer.bridge, store_reset=reset
    )
    return draft(records.BRIDGE_STORE_RESET, data, subject=_subject(observer), now=now)


def dead_letter(
    observer: Observer, now: datetime, *, sink: str, record: Record, reason: str, attempts: int
) -> RecordDraft:
    """Return the record that a sink refused a record for good."""
    detail = bridge.DeadLetter(
        sink=sink,
        record_id=record.id,
        record_type=record.type,
        record_sequence=record.sequence,
        reason=reason,
        attempts=attempts,
    )
    data = bridge.DeadLetterData(
        vm=observer.vm, node=observer.node, bridge=observer.bridge, dead_letter=detail
    )
    return draft(records.BRIDGE_DEAD_LETTER, data, subject=_subject(observer), now=now)


def _subject(observer: Observer) -> str:
    return f"bridge/{observer.bridge.instance_id}"
