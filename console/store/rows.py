"""Values to rows of the tables, and back."""

from __future__ import annotations

from dataclasses import fields
from operator import attrgetter
from typing import Any, Final

from pydantic_core import from_json, to_json
from sqlalchemy import Row

from console.fleet.values import Event, Gap, Receipt, Sighting, Stream, Vm
from console.records.incoming import EventFacts, IncomingRecord, ReceiptFacts
from console.store import tables

Values = dict[str, Any]

# Thousands of these a second: what C can do in one call is not a loop here.
_VM: Final = tuple(each.name for each in fields(Vm) if each.name != "tags")
_VM_VALUES: Final = attrgetter(*_VM)
_VM_COLUMNS: Final = tuple(each.name for each in tables.vm.columns)
_STREAM: Final = tuple(each.name for each in fields(Stream))
_STREAM_VALUES: Final = attrgetter(*_STREAM)
_STREAM_COLUMNS: Final = tuple(each.name for each in tables.stream.columns)
_FACTS: Final = tuple(each.name for each in fields(EventFacts))
_FACTS_VALUES: Final = attrgetter(*_FACTS)


def _json(value: object) -> str:
    return to_json(value).decode()


def vm_values(vm: Vm, number: int) -> Values:
    """A VM's row."""
    values: Values = dict(zip(_VM, _VM_VALUES(vm), strict=True))
    values["tags"] = _json(vm.tags) if vm.tags else "{}"
    values["changed"] = number
    return values


def vm_of(row: Row[Any]) -> Vm:
    """A VM from its row."""
    values = dict(zip(_VM_COLUMNS, row, strict=True))
    del values["changed"]
    values["tags"] = {} if values["tags"] == "{}" else from_json(values["tags"])
    return Vm(**values)


def stream_values(stream: Stream) -> Values:
    """A stream's row."""
    return dict(zip(_STREAM, _STREAM_VALUES(stream), strict=True))


def stream_of(row: Row[Any]) -> Stream:
    """A stream from its row."""
    return Stream(**dict(zip(_STREAM_COLUMNS, row, strict=True)))


def gap_values(gap: Gap) -> Values:
    """A gap's row."""
    return {
        "vm_id": gap.vm_id,
        "stream": gap.stream,
        "first": gap.first,
        "last": gap.last,
        "found_at": gap.found_at,
        "seconds": gap.seconds,
    }


def gap_of(row: Row[Any]) -> Gap:
    """A gap from its row."""
    return Gap(
        vm_id=row.vm_id,
        stream=row.stream,
        first=row.first,
        last=row.last,
        found_at=row.found_at,
        seconds=row.seconds,
    )


def record_values(record: IncomingRecord) -> Values:
    """A record's row."""
    about = record.event.event_id if record.event is not None else None
    if record.receipt is not None:
        about = record.receipt.event_id
    return {
        "id": record.id,
        "vm_id": record.place.vm_id,
        "stream": record.stream,
        "sequence": record.sequence,
        "type": record.type,
        "time": record.time,
        "received_at": record.received_at,
        "event_id": about,
        "body": record.body,
    }


def event_values(event: Event, number: int) -> Values:
    """An event's row."""
    return {
        "event_id": event.event_id,
        "state": event.state,
        "shown_by": event.shown_by,
        "shown_at": event.shown_at,
        "first_at": event.first_at,
        "event_type": event.event_type,
        "sites": _json(event.sites),
        "words": event.words,
        "changed": number,
    }


def event_of(row: Row[Any]) -> Event:
    """An event from its row."""
    return Event(
        event_id=row.event_id,
        state=row.state,
        shown_by=row.shown_by,
        shown_at=row.shown_at,
        first_at=row.first_at,
        event_type=row.event_type,
        sites=tuple(from_json(row.sites)),
        words=row.words,
    )


def sighting_values(sighting: Sighting, number: int) -> Values:
    """A sighting's row."""
    return {
        "event_id": sighting.event_id,
        "vm_id": sighting.vm_id,
        "record_id": sighting.record_id,
        "stream": sighting.stream,
        "sequence": sighting.sequence,
        "time": sighting.time,
        "first_at": sighting.first_at,
        "over": int(sighting.facts.state == "ended"),
        "facts": _json(dict(zip(_FACTS, _FACTS_VALUES(sighting.facts), strict=True))),
        "changed": number,
    }


def sighting_of(row: Row[Any]) -> Sighting:
    """A sighting from its row."""
    facts = from_json(row.facts)
    return Sighting(
        event_id=row.event_id,
        vm_id=row.vm_id,
        record_id=row.record_id,
        stream=row.stream,
        sequence=row.sequence,
        time=row.time,
        first_at=row.first_at,
        facts=EventFacts(**{**facts, "resources": tuple(facts["resources"])}),
    )


def receipt_values(receipt: Receipt, number: int) -> Values:
    """A receipt's row."""
    facts = receipt.facts
    return {
        "record_id": receipt.record_id,
        "jti": facts.jti,
        "vm_id": receipt.vm_id,
        "event_id": facts.event_id,
        "state": facts.state,
        "reason": facts.reason,
        "actor": facts.actor,
        "why": facts.why,
        "at": receipt.at,
        "changed": number,
    }


def receipt_of(row: Row[Any]) -> Receipt:
    """A receipt from its row."""
    return Receipt(
        record_id=row.record_id,
        vm_id=row.vm_id,
        at=row.at,
        facts=ReceiptFacts(
            jti=row.jti,
            event_id=row.event_id,
            state=row.state,
            reason=row.reason,
            actor=row.actor,
            why=row.why,
        ),
    )
