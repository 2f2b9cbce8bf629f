"""Bytes to values. What is not a record of ours raises `NotOurs`, with one word and a sentence."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from console.records.incoming import (
    UNPROVEN,
    EventFacts,
    IncomingRecord,
    IncomingState,
    IncomingStatus,
    Kind,
    Place,
    PreparationFacts,
    ReceiptFacts,
)
from console.records.models import DataModel, PendingModel, RecordModel, StateModel, StatusModel
from wire import preparation
from wire.record import APPROVAL, BRIDGE_HEARTBEAT, BRIDGE_STOPPED, DATA_SCHEMA, PREPARATION

M = TypeVar("M", bound=BaseModel)

MAX_BYTES: Final = 256 * 1024
_EVENT: Final = "seb.event."
_NUL: Final = b"\\u0000"


class NotOurs(ValueError):
    """These bytes are not a record of ours; `reason` is one word for the metric."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def seconds(moment: str) -> float:
    """Seconds since 1970 of an RFC 3339 moment. Raises `NotOurs`."""
    try:
        return datetime.fromisoformat(moment).astimezone(UTC).timestamp()
    except (ValueError, OverflowError):
        raise NotOurs("wrong_type", f"{moment[:40]!r} is not a moment") from None


def parse_record(
    body: bytes,
    *,
    source: str,
    received_at: float,
    sent_at: float | None = None,
    vm_id: str | None = None,
    site: str | None = None,
) -> IncomingRecord:
    """A record; `vm_id` is the one that the channel vouches for, if it does. Raises `NotOurs`."""
    model = _read(RecordModel, body)
    _require_known(model)
    data = model.data
    if model.partitionkey != data.vm.vmId:
        raise NotOurs("foreign_vm", "partitionkey is not the vmId of data.vm")
    if vm_id is not None and vm_id != data.vm.vmId:
        raise NotOurs("foreign_vm", "the topic's vmId is not that of the record")
    heartbeat = data.heartbeat
    return IncomingRecord(
        id=model.id,
        type=model.type,
        kind=_kind(model.type),
        place=_place(data, site),
        stream=model.stream,
        sequence=int(model.sequence),
        time=seconds(model.time),
        sent_at=min(received_at if sent_at is None else sent_at, received_at),
        received_at=received_at,
        source=source,
        version=data.bridge.version,
        session=data.bridge.instanceId,
        body=body,
        event=_event(data) if model.type.startswith(_EVENT) else None,
        receipt=_receipt(data) if model.type == APPROVAL else None,
        preparation=_preparation(data) if model.type == PREPARATION else None,
        prepares=_prepares(data),
        interval=None if heartbeat is None else heartbeat.intervalSeconds,
        last_record=None if heartbeat is None else int(heartbeat.lastRecordSequence),
    )


def parse_status(
    body: bytes, *, source: str, received_at: float, vm_id: str, site: str
) -> IncomingStatus:
    """A status document. It proves contact at the time that it names, for it may be retained, or
    have lain at the broker.

    Raises `NotOurs`.
    """
    model = _read(StatusModel, body)
    name, resource_id = _named(model.vm, vm_id)
    told = None if model.time is None else min(seconds(model.time), received_at)
    lost = model.status == "offline" and model.reason == "lost"
    heard_at = None if lost else told
    return IncomingStatus(
        vm_id=vm_id,
        name=name,
        site=site,
        resource_id=resource_id,
        online=model.status == "online",
        lost=lost,
        heard_at=heard_at,
        received_at=received_at,
        source=source,
        version=model.version,
        session=model.session,
        commands=model.commands and model.status == "online",
        prepares=model.prepares,
    )


def parse_state(
    body: bytes, *, source: str, received_at: float, vm_id: str, site: str
) -> IncomingState:
    """A state document. Raises `NotOurs`."""
    model = _read(StateModel, body)
    name, resource_id = _named(model.vm, vm_id)
    return IncomingState(
        vm_id=vm_id,
        name=name,
        site=site,
        resource_id=resource_id,
        time=seconds(model.time),
        received_at=received_at,
        source=source,
        events=tuple((event.recordId, _pending(event)) for event in model.events),
        preparations=tuple(
            PreparationFacts(
                event_id=each.eventId, fingerprint=each.fingerprint, state=each.preparation
            )
            for each in model.events
            if each.preparation not in (None, preparation.NONE)
        ),
    )


def _read(model: type[M], body: bytes) -> M:
    if len(body) > MAX_BYTES:
        raise NotOurs("too_large", f"{len(body)} bytes; the limit is {MAX_BYTES}")
    if _NUL in body:
        # PostgreSQL holds no NUL in a text; U+FFFD says that there was a sign.
        body = body.replace(_NUL, b"\\ufffd")
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False, include_input=False)[0]
        if problem["type"] == "json_invalid":
            raise NotOurs("not_json", problem["msg"]) from None
        place = ".".join(str(part) for part in problem["loc"])
        reason = "missing_field" if problem["type"] == "missing" else "wrong_type"
        raise NotOurs(reason, f"{place}: {problem['msg']}") from None


def _require_known(model: RecordModel) -> None:
    if not model.type.startswith("seb."):
        raise NotOurs("unknown_type", f"the type {model.type[:80]!r} is not one of the bridge's")
    if not model.type.endswith(".v1") or model.dataschema != DATA_SCHEMA:
        raise NotOurs(
            "newer_version", f"{model.type[:80]} of {model.dataschema[:80]}: upgrade the console"
        )


def _kind(record_type: str) -> Kind:
    if record_type.startswith(_EVENT):
        return "event"
    kinds: dict[str, Kind] = {
        BRIDGE_HEARTBEAT: "heartbeat",
        BRIDGE_STOPPED: "stopped",
        APPROVAL: "receipt",
    }
    return kinds.get(record_type, "other")


def _place(data: DataModel, site: str | None) -> Place:
    vm = data.vm
    return Place(
        vm_id=vm.vmId,
        name=vm.name,
        site=data.bridge.site or site,
        resource_id=vm.resourceId,
        subscription_id=vm.subscriptionId,
        resource_group=vm.resourceGroup,
        location=vm.location,
        zone=vm.zone,
        scale_set=vm.scaleSet,
        tags=vm.tags or {},
    )


def _event(data: DataModel) -> EventFacts:
    event = data.event
    if event is None or data.transition is None or not data.fingerprint or data.revision is None:
        raise NotOurs("missing_field", "a record of an event lacks event, transition or revision")
    return EventFacts(
        event_id=event.eventId,
        event_type=event.eventType,
        event_source=event.eventSource,
        status=event.eventStatus,
        not_before=event.notBefore,
        description=event.description,
        duration=event.durationInSeconds,
        resources=tuple(event.resources),
        transition=data.transition,
        affects=data.affectsThisVm,
        impact=data.impact,
        revision=data.revision,
        fingerprint=data.fingerprint,
        notice=data.observation.noticeSeconds,
        pause=data.observation.pauseSeconds,
        downtime=data.observation.downtimeSeconds,
        goes_on=data.observation.goesOnWithoutThisVm or False,
    )


def _pending(event: PendingModel) -> EventFacts:
    return EventFacts(
        event_id=event.eventId,
        event_type=event.eventType,
        event_source=event.eventSource,
        status=event.eventStatus,
        not_before=event.notBefore,
        description=None,
        duration=event.durationInSeconds,
        resources=tuple(event.resources),
        transition="started" if event.eventStatus == "Started" else "scheduled",
        affects=event.affectsThisVm,
        impact=event.impact,
        revision=event.revision,
        fingerprint=event.fingerprint if event.is_whole else UNPROVEN + event.fingerprint,
    )


def _receipt(data: DataModel) -> ReceiptFacts:
    if data.jti is None or data.state is None or data.actor is None:
        raise NotOurs("missing_field", "a receipt lacks jti, state or actor")
    return ReceiptFacts(
        jti=data.jti,
        event_id=data.evt,
        state=data.state,
        reason=data.reason,
        actor=data.actor,
        why=data.rsn or None,
        act=data.act,
    )


def _preparation(data: DataModel) -> PreparationFacts:
    if data.evt is None or data.evh is None or data.state not in preparation.STATES:
        raise NotOurs("missing_field", "a preparation lacks evt, evh or state")
    return PreparationFacts(
        event_id=data.evt,
        fingerprint=data.evh,
        state=data.state,
        reason=data.reason,
        cause=data.cause,
    )


def _prepares(data: DataModel) -> bool | None:
    said = data.heartbeat or data.started
    return None if said is None else said.prepares


def _named(vm: Any, vm_id: str) -> tuple[str | None, str | None]:
    if not isinstance(vm, dict):
        return None, None
    if vm.get("vmId", vm_id) != vm_id:
        raise NotOurs("foreign_vm", "the topic's vmId is not that of the document")
    name, resource_id = vm.get("name"), vm.get("resourceId")
    return (
        name if isinstance(name, str) and name else None,
        resource_id if isinstance(resource_id, str) else None,
    )
