"""Converts values to rows, and rows to values."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json, to_json
from sqlalchemy import Row

from console.db.bulk import Values
from console.fleet.values.decision import Decision, Receipt, VmCommand
from console.fleet.values.event import FleetEvent
from console.fleet.values.keys import EventKey, name_key, sort_name
from console.fleet.values.report import LatestReport, ReportedPreparation
from console.fleet.values.stream import SequenceGap, Stream
from console.fleet.values.vm import FleetName, Vm
from console.records.incoming import EventReport, IncomingRecord, PreparationContent, ReceiptContent
from wire.event import Event
from wire.fields import fields_of

_VM: Final = tuple(each.name for each in fields(Vm))
_STREAM: Final = tuple(each.name for each in fields(Stream))
_GAP: Final = tuple(each.name for each in fields(SequenceGap))
_EVENT: Final = tuple(each.name for each in fields(FleetEvent))
_REPORT: Final = tuple(each.name for each in fields(LatestReport) if each.name != "report")
_DECISION: Final = tuple(each.name for each in fields(Decision))
_COMMAND: Final = tuple(each.name for each in fields(VmCommand))
_NO_TAGS: Final = "{}"
_EVENT_REPORT: Final = TypeAdapter(EventReport)
"""For the JSON in rows, whose names are those of the attributes."""
_NOT_SAID: Final = {
    each.attribute: None for each in fields_of(Event) if each.field.type.is_nullable
}
"""Defaults of the event's fields that a row may not have yet: None, as in a record of an older
bridge.
"""


def vm_row(vm: Vm) -> Values:
    """Return the row of a VM."""
    return {
        **{name: getattr(vm, name) for name in _VM},
        "prepares": int(vm.prepares),
        "withheld": int(vm.withheld),
        "reported_as": None if vm.reported_as is None else _json(asdict(vm.reported_as)),
        "tags": _json(vm.tags) if vm.tags else _NO_TAGS,
        "bound_tags": _json(vm.bound_tags) if vm.bound_tags else _NO_TAGS,
        "replaced_tags": _json(vm.replaced_tags) if vm.replaced_tags else _NO_TAGS,
        "earlier_instance_ids": _json(vm.earlier_instance_ids),
        "place": vm.place,
        "name_key": name_key(vm.name),
        "sort_name": sort_name(vm.name),
    }


def vm_of(row: Row[Any]) -> Vm:
    """Return the VM of a row, which may have further columns."""
    values = {name: getattr(row, name) for name in _VM}
    values["prepares"] = bool(row.prepares)
    values["withheld"] = bool(row.withheld)
    values["reported_as"] = (
        None if row.reported_as is None else FleetName(**from_json(row.reported_as))
    )
    for name in ("tags", "bound_tags", "replaced_tags"):
        values[name] = {} if values[name] == _NO_TAGS else from_json(values[name])
    values["earlier_instance_ids"] = tuple(from_json(row.earlier_instance_ids))
    return Vm(**values)


def stream_row(stream: Stream) -> Values:
    """Return the row of a stream."""
    return {name: getattr(stream, name) for name in _STREAM}


def stream_of(row: Row[Any]) -> Stream:
    """Return the stream of a row."""
    return Stream(**{name: getattr(row, name) for name in _STREAM})


def gap_row(gap: SequenceGap) -> Values:
    """Return the row of a gap."""
    return {name: getattr(gap, name) for name in _GAP}


def gap_of(row: Row[Any]) -> SequenceGap:
    """Return the gap of a row."""
    return SequenceGap(**{name: getattr(row, name) for name in _GAP})


def record_row(record: IncomingRecord) -> Values:
    """Return the row of a record."""
    about = record.event.event.event_id if record.event is not None else None
    if record.receipt is not None:
        about = record.receipt.event_id
    if record.preparation is not None:
        about = record.preparation.event_id
    return {
        "id": record.id,
        "vm_id": record.vm.vm_id,
        "stream": record.stream,
        "sequence": record.sequence,
        "type": record.type,
        "time": record.time,
        "received_at": record.received_at,
        "event_id": about,
        "body": record.body,
    }


def event_row(event: FleetEvent, change_number: int) -> Values:
    """Return the row of an event."""
    values = {name: getattr(event, name) for name in _EVENT}
    changed = {
        "sites": _json(event.sites),
        "is_news": int(event.is_news),
        "change_number": change_number,
    }
    return {**values, **changed}


def key_of(row: Any) -> EventKey:
    """Return the key of the event that a row is about."""
    return EventKey(row.event_id, row.scope)


def event_of(row: Row[Any]) -> FleetEvent:
    """Return the event of a row, which may have further columns."""
    values = {name: getattr(row, name) for name in _EVENT}
    values |= {"sites": tuple(from_json(row.sites)), "is_news": bool(row.is_news)}
    return FleetEvent(**values)


def report_row(latest: LatestReport, change_number: int) -> Values:
    """Return the row of a reporter's latest report."""
    report = latest.report
    return {
        "event_id": latest.event_id,
        "vm_id": latest.vm_id,
        "record_id": latest.record_id,
        "stream": latest.stream,
        "sequence": latest.sequence,
        "time": latest.time,
        "first_seen_at": latest.first_seen_at,
        "over": int(report.state == "ended"),
        "event_report": _EVENT_REPORT.dump_json(report).decode(),
        "change_number": change_number,
        "scope": latest.scope,
        "is_own": int(latest.is_own),
        "is_started": int(report.state == "started"),
        "content_hash": latest.content_hash,
        "names_hash": latest.names_hash,
        "wording_hash": latest.wording_hash,
        "is_weak": int(latest.is_weak),
    }


def report_of(row: Row[Any], *, prefix: str = "") -> LatestReport:
    """Return the latest report of a row, whose columns may have names with a prefix."""
    values = {name: getattr(row, prefix + name) for name in _REPORT}
    values["is_own"] = bool(values["is_own"])
    return LatestReport(**values, report=_event_report_of(getattr(row, f"{prefix}event_report")))


def _event_report_of(text: str) -> EventReport:
    try:
        return _EVENT_REPORT.validate_json(text)
    except ValidationError:
        stored = from_json(text)
        return _EVENT_REPORT.validate_json(
            to_json({**stored, "event": _NOT_SAID | stored["event"]})
        )


def receipt_row(receipt: Receipt, change_number: int) -> Values:
    """Return the row of a receipt."""
    content = receipt.content
    return {
        "record_id": receipt.record_id,
        "jti": content.jti,
        "vm_id": receipt.vm_id,
        "event_id": content.event_id,
        "state": content.state,
        "reason": content.reason,
        "actor": content.actor,
        "at": receipt.at,
        "change_number": change_number,
        "why": content.person_reason,
        "act": content.act,
        "scope": receipt.scope,
        "time": receipt.time,
    }


def receipt_of(row: Row[Any]) -> Receipt:
    """Return the receipt of a row."""
    return Receipt(
        record_id=row.record_id,
        vm_id=row.vm_id,
        at=row.at,
        time=row.time,
        scope=row.scope,
        content=ReceiptContent(
            jti=row.jti,
            event_id=row.event_id,
            state=row.state,
            reason=row.reason,
            actor=row.actor,
            person_reason=row.why,
            act=row.act,
        ),
    )


def preparation_row(preparation: ReportedPreparation, change_number: int) -> Values:
    """Return the row of a preparation."""
    content = preparation.content
    return {
        "event_id": content.event_id,
        "scope": preparation.scope,
        "vm_id": preparation.vm_id,
        "fingerprint": content.fingerprint,
        "state": content.state,
        "reason": content.reason,
        "cause": content.cause,
        "stream": preparation.stream,
        "sequence": preparation.sequence,
        "begun_sequence": preparation.begun_sequence,
        "time": preparation.time,
        "change_number": change_number,
    }


def preparation_of(row: Row[Any]) -> ReportedPreparation:
    """Return the preparation of a row."""
    return ReportedPreparation(
        vm_id=row.vm_id,
        scope=row.scope,
        stream=row.stream,
        sequence=row.sequence,
        begun_sequence=row.begun_sequence,
        time=row.time,
        content=PreparationContent(
            event_id=row.event_id,
            fingerprint=row.fingerprint,
            state=row.state,
            reason=row.reason,
            cause=row.cause,
        ),
    )


def decision_row(decision: Decision, change_number: int) -> Values:
    """Return the row of a decision."""
    return {**{name: getattr(decision, name) for name in _DECISION}, "change_number": change_number}


def decision_of(row: Row[Any]) -> Decision:
    """Return the decision of a row."""
    return Decision(**{name: getattr(row, name) for name in _DECISION})


def command_row(command: VmCommand, change_number: int) -> Values:
    """Return the row of a command."""
    return {**{name: getattr(command, name) for name in _COMMAND}, "change_number": change_number}


def command_of(row: Row[Any]) -> VmCommand:
    """Return the command of a row."""
    return VmCommand(**{name: getattr(row, name) for name in _COMMAND})


def _json(value: object) -> str:
    return to_json(value).decode()
