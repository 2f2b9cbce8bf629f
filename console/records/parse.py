"""Turns bytes into values, with the definitions of `wire`. Raises `ForeignError`, with one word and
a sentence, for anything that is not a record of ours.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

from console.records.incoming import (
    UNPROVEN,
    EventReport,
    IncomingRecord,
    IncomingState,
    IncomingStatus,
    PreparationContent,
    ReceiptContent,
    RecordKind,
)
from wire.bridge import Heartbeat, HeartbeatData, StartedData, StoppedData
from wire.event import EventData
from wire.observer import Observer
from wire.preparation import NONE as NOT_PREPARED
from wire.preparation import STATES as PREPARATION_STATES
from wire.preparation import PreparationData
from wire.receipt import ReceiptData
from wire.record import Record, RecordError, check_record
from wire.state import PendingEvent, ShortVm, StateError, read_state, read_status

MAX_BYTES: Final = 256 * 1024
MAX_TAGS: Final = 50
"""The limit for one VM; Azure allows no more."""
MAX_NAMES: Final = 5000
"""How many VMs an event may name; Azure's largest scale set has 1,000."""
_NUL: Final = b"\\u0000"
_PARTITION_KEY: Final = re.compile(rb'"partitionkey"\s*:\s*"([^"\\]{1,512})"')
_MAX_SEQUENCE: Final = 10**15
"""A VM that makes a record every millisecond needs thirty thousand years to reach it."""
_MAX_SECONDS: Final = 10 * 366 * 86_400.0
_MIN_INTERVAL_SECONDS: Final = 0.01


class ForeignError(ValueError):
    """The bytes are not a record of ours; `reason` is one word for the metric."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def parse_record(
    body: bytes,
    *,
    source: str,
    received_at: float,
    sent_at: float | None = None,
    vm_id: str | None = None,
    site: str | None = None,
) -> IncomingRecord:
    """Return the record in these bytes; `vm_id` is the one that the channel vouches for, if it
    does. Raises `ForeignError`.
    """
    try:
        record, data = check_record(_readable(body))
    except RecordError as error:
        raise ForeignError(error.reason, str(error)) from None
    if vm_id is not None and vm_id != data.vm.vm_id:
        raise ForeignError("foreign_vm", "the topic's vmId is not that of the record")
    if site is not None and data.bridge.site not in (None, site):
        raise ForeignError("foreign_site", "the topic's site is not that of the record")
    heartbeat = data.heartbeat if isinstance(data, HeartbeatData) else None
    _require_possible(record, data, received_at)
    return IncomingRecord(
        id=record.id,
        type=record.type,
        kind=_kind(data),
        vm=data.vm,
        site=data.bridge.site or site,
        stream=record.stream,
        sequence=record.sequence,
        time=datetime.fromisoformat(record.time).timestamp(),
        sent_at=min(received_at if sent_at is None else sent_at, received_at),
        received_at=received_at,
        source=source,
        version=data.bridge.version,
        instance_id=data.bridge.instance_id,
        body=body,
        event=_report_of_record(data) if isinstance(data, EventData) else None,
        receipt=_receipt(data) if isinstance(data, ReceiptData) else None,
        preparation=_preparation(data) if isinstance(data, PreparationData) else None,
        prepares=_prepares(data),
        interval=None if heartbeat is None else heartbeat.interval_seconds,
        last_record=None if heartbeat is None else heartbeat.last_record_sequence,
        pending_events=None if heartbeat is None else _pending_events(heartbeat),
    )


def parse_status(
    body: bytes, *, source: str, received_at: float, vm_id: str, site: str
) -> IncomingStatus:
    """Return the status document in these bytes. It proves contact at the time that it names,
    because it may be retained or have waited at the broker. Raises `ForeignError`.
    """
    try:
        status = read_status(_readable(body))
    except StateError as error:
        raise ForeignError(error.reason, str(error)) from None
    vm = _own(status.vm, vm_id)
    written = None if status.time is None else min(status.time.timestamp(), received_at)
    lost = status.status == "offline" and status.reason == "lost"
    return IncomingStatus(
        vm_id=vm_id,
        name=None if vm is None else vm.name,
        site=site,
        resource_id=None if vm is None else vm.resource_id,
        is_online=status.status == "online",
        is_lost=lost,
        heard_at=None if lost else written,
        received_at=received_at,
        source=source,
        version=status.version,
        instance_id=status.session,
        takes_commands=status.commands and status.status == "online",
        prepares=status.prepares,
    )


def parse_state(
    body: bytes, *, source: str, received_at: float, vm_id: str, site: str
) -> IncomingState:
    """Return the state document in these bytes. Raises `ForeignError`."""
    try:
        state = read_state(_readable(body))
    except StateError as error:
        raise ForeignError(error.reason, str(error)) from None
    vm = _own(state.vm, vm_id)
    return IncomingState(
        vm_id=vm_id,
        name=None if vm is None else vm.name,
        site=site,
        resource_id=None if vm is None else vm.resource_id,
        time=state.time.timestamp(),
        received_at=received_at,
        source=source,
        events=tuple((pending.record_id, _report_of_pending(pending)) for pending in state.events),
        preparations=tuple(
            PreparationContent(
                event_id=each.event.event_id, fingerprint=each.fingerprint, state=each.preparation
            )
            for each in state.events
            if each.preparation in (*PREPARATION_STATES, NOT_PREPARED)
        ),
    )


def vm_of(body: bytes) -> str | None:
    """Return the vmId whose secret must have signed a body, without parsing the body: the last
    `partitionkey`, since the envelope's follows its data. None if there is none. `parse_record`
    refuses a record of another VM.
    """
    found = _PARTITION_KEY.findall(body)
    return found[-1].decode("utf-8", "replace") if found else None


def _require_possible(record: Record, data: Observer, received_at: float) -> None:
    """Raise `ForeignError` for a sequence, a time or a duration that no working bridge can send.
    Gaps and ages are computed from them. A clock may be wrong by years, but not by more than that.
    """
    if len(data.vm.tags) > MAX_TAGS:
        raise ForeignError("too_many_tags", f"data.vm.tags: at most {MAX_TAGS}")
    sequences = [record.sequence]
    if isinstance(data, HeartbeatData):
        heartbeat = data.heartbeat
        sequences.append(heartbeat.last_record_sequence)
        if 0 < heartbeat.interval_seconds < _MIN_INTERVAL_SECONDS:
            raise ForeignError("impossible", "data.heartbeat.intervalSeconds is too short")
    if max(sequences) > _MAX_SEQUENCE:
        raise ForeignError("impossible", f"a sequence is more than {_MAX_SEQUENCE:,}")
    ahead = datetime.fromisoformat(record.time).timestamp() - received_at
    if ahead > _MAX_SECONDS:
        raise ForeignError("impossible", "time is more than ten years ahead")
    if isinstance(data, EventData):
        observation = data.observation
        durations = (observation.pause_seconds, observation.downtime_seconds)
        if any(each is not None and not 0 <= each <= _MAX_SECONDS for each in durations):
            raise ForeignError(
                "impossible", "data.observation: a duration is negative, or ten years"
            )
        if len(data.event.resources) > MAX_NAMES:
            raise ForeignError("too_many_names", f"data.event.resources: at most {MAX_NAMES:,} VMs")
        known = (observation.notice_seconds, data.event.duration_in_seconds)
        if any(each is not None and abs(each) > _MAX_SECONDS for each in known):
            raise ForeignError("impossible", "data: a duration is more than ten years")


def _readable(body: bytes) -> bytes:
    if len(body) > MAX_BYTES:
        raise ForeignError("too_large", f"{len(body)} bytes; the limit is {MAX_BYTES}")
    # PostgreSQL holds no NUL in a text; U+FFFD says that there was a sign.
    return body.replace(_NUL, b"\\ufffd")


def _kind(data: Observer) -> RecordKind:
    if isinstance(data, EventData):
        return "event"
    kinds: dict[type[Observer], RecordKind] = {
        HeartbeatData: "heartbeat",
        StoppedData: "stopped",
        ReceiptData: "receipt",
    }
    return kinds.get(type(data), "other")


def _report_of_record(data: EventData) -> EventReport:
    return EventReport(
        event=data.event,
        transition=data.transition,
        affects_this_vm=data.affects_this_vm,
        impact=data.impact,
        revision=data.revision,
        fingerprint=data.fingerprint,
        notice_seconds=data.observation.notice_seconds,
        pause_seconds=data.observation.pause_seconds,
        downtime_seconds=data.observation.downtime_seconds,
        goes_on=data.observation.goes_on_without_this_vm or False,
    )


def _report_of_pending(pending: PendingEvent) -> EventReport:
    proof = "" if pending.is_what_it_shows else UNPROVEN
    return EventReport(
        event=pending.event,
        transition="started" if pending.event.event_status == "Started" else "scheduled",
        affects_this_vm=pending.affects_this_vm,
        impact=pending.impact,
        revision=pending.revision,
        fingerprint=proof + pending.fingerprint,
    )


def _receipt(data: ReceiptData) -> ReceiptContent:
    return ReceiptContent(
        jti=data.jti,
        event_id=data.evt,
        state=data.state,
        reason=data.reason,
        actor=data.actor,
        person_reason=data.rsn or None,
        act=data.act,
    )


def _preparation(data: PreparationData) -> PreparationContent:
    return PreparationContent(
        event_id=data.evt,
        fingerprint=data.evh,
        state=data.state,
        reason=data.reason,
        cause=data.cause,
    )


def _prepares(data: Observer) -> bool | None:
    if isinstance(data, HeartbeatData):
        return data.heartbeat.prepares
    return data.started.prepares if isinstance(data, StartedData) else None


def _pending_events(heartbeat: Heartbeat) -> int | None:
    """Return how many events a VM knows to be pending; None before it has read any document."""
    return None if heartbeat.last_poll_time is None else heartbeat.pending_events


def _own(vm: ShortVm | None, vm_id: str) -> ShortVm | None:
    if vm is not None and vm.vm_id != vm_id:
        raise ForeignError("foreign_vm", "the topic's vmId is not that of the document")
    return vm
