"""Values to rows, whose order is that of the tables' columns, and back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from operator import attrgetter
from sys import intern
from typing import Any, Final

from pydantic_core import from_json, to_json
from sqlalchemy import Row, Table

from console.fleet.values import Event, Gap, Receipt, Sighting, Stream, Vm
from console.records.incoming import EventFacts, IncomingRecord, ReceiptFacts
from console.store import tables

Values = tuple[Any, ...]


def _names(table: Table) -> tuple[str, ...]:
    # SQLAlchemy's names are a kind of text of its own, which Python finds an argument by slowly.
    return tuple(intern(str(column.name)) for column in table.columns)


# Thousands of these a second: what C can do in one call is not a loop here.
_VM: Final = _names(tables.vm)
_TAGS: Final = _VM.index("tags")
_VM_BEFORE: Final = attrgetter(*_VM[:_TAGS])
_VM_BEHIND: Final = attrgetter(*_VM[_TAGS + 1 : -1])
_STREAM: Final = _names(tables.stream)
_FACTS: Final = tuple(each.name for each in fields(EventFacts))
_FACTS_VALUES: Final = attrgetter(*_FACTS)
stream_row: Final[Callable[[Stream], Values]] = attrgetter(*_STREAM)
"""A stream's row."""
gap_row: Final[Callable[[Gap], Values]] = attrgetter(*_names(tables.gap))
"""A gap's row."""


def _json(value: object) -> str:
    return to_json(value).decode()


def vm_row(vm: Vm, number: int) -> Values:
    """A VM's row."""
    tags = _json(vm.tags) if vm.tags else "{}"
    return (*_VM_BEFORE(vm), tags, *_VM_BEHIND(vm), number)


def vm_of(row: Row[Any]) -> Vm:
    """A VM from its row."""
    values = dict(zip(_VM, row, strict=True))
    del values["changed"]
    values["tags"] = {} if values["tags"] == "{}" else from_json(values["tags"])
    return Vm(**values)


def stream_of(row: Row[Any]) -> Stream:
    """A stream from its row."""
    return Stream(**dict(zip(_STREAM, row, strict=True)))


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


def record_row(record: IncomingRecord) -> Values:
    """A record's row."""
    about = record.event.event_id if record.event is not None else None
    if record.receipt is not None:
        about = record.receipt.event_id
    return (
        record.id,
        record.place.vm_id,
        record.stream,
        record.sequence,
        record.type,
        record.time,
        record.received_at,
        about,
        record.body,
    )


def event_row(event: Event, number: int) -> Values:
    """An event's row."""
    return (
        event.event_id,
        event.state,
        event.shown_by,
        event.shown_at,
        event.first_at,
        event.event_type,
        _json(event.sites),
        event.words,
        number,
    )


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


def sighting_row(sighting: Sighting, number: int) -> Values:
    """A sighting's row."""
    facts = sighting.facts
    return (
        sighting.event_id,
        sighting.vm_id,
        sighting.record_id,
        sighting.stream,
        sighting.sequence,
        sighting.time,
        sighting.first_at,
        int(facts.state == "ended"),
        _json(dict(zip(_FACTS, _FACTS_VALUES(facts), strict=True))),
        number,
    )


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


def receipt_row(receipt: Receipt, number: int) -> Values:
    """A receipt's row."""
    facts = receipt.facts
    return (
        receipt.record_id,
        facts.jti,
        receipt.vm_id,
        facts.event_id,
        facts.state,
        facts.reason,
        facts.actor,
        receipt.at,
        number,
        facts.why,
    )


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
