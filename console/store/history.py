"""What is past: events that are over, and the records of an event or a VM."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import Connection, Engine, Select, func, select, tuple_

from console.fleet.timeline import PastRecord
from console.fleet.values import UNDECIDED, Decided, Decision, Event, Gap, Receipt, Sighting
from console.store import decisions, reading, rows, tables
from console.store.transactions import read_from

_MOST_RECORDS: Final = 2000
_RECORD: Final = [column for column in tables.record.columns if column.name != "body"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which events a listing shows; None does not ask."""

    q: str | None = None
    site: str | None = None
    type: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PastEvent:
    """An event with all that was reported about it."""

    event: Event
    sightings: list[Sighting]
    receipts: list[Receipt]
    records: list[PastRecord] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    """Every one, the oldest first."""
    decided: Decided = UNDECIDED


@dataclass(frozen=True, slots=True, kw_only=True)
class PastVm:
    """What has happened to a VM; records and sightings newest first."""

    records: list[PastRecord]
    gaps: list[Gap]
    sightings: list[Sighting]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantined:
    """What was not a record of ours: of one source, for one reason."""

    source: str
    reason: str
    count: int
    first_at: float
    last_at: float
    message: str
    """Of the last one."""


def read_over(
    engine: Engine, wanted: Wanted, limit: int, after: tuple[float, str] | None
) -> list[PastEvent]:
    """Events that are over, the newest first, after a place in that order."""
    c = tables.event.c
    query = _filtered(select(tables.event).where(c.state == "ended"), wanted)
    if after is not None:
        query = query.where(tuple_(c.shown_at, c.event_id) < tuple_(*after))
    query = query.order_by(c.shown_at.desc(), c.event_id.desc()).limit(limit)
    with read_from(engine) as connection:
        events = [rows.event_of(row) for row in connection.execute(query)]
        ids = [event.event_id for event in events]
        sightings = reading.sightings_of(connection, ids)
        receipts = reading.receipts_of(connection, ids)
        decided = decisions.decided_of(connection, ids)
    return [
        PastEvent(
            event=event,
            sightings=sightings[event.event_id],
            receipts=[each for each in receipts if each.facts.event_id == event.event_id],
            decided=decided.get(event.event_id, UNDECIDED),
        )
        for event in events
    ]


def read_event(engine: Engine, event_id: str) -> PastEvent | None:
    """One event, open or over, with its records in order."""
    with read_from(engine) as connection:
        wanted = select(tables.event).where(tables.event.c.event_id == event_id)
        row = connection.execute(wanted).first()
        if row is None:
            return None
        receipts = reading.receipts_of(connection, [event_id])
        query = select(*_RECORD).where(tables.record.c.event_id == event_id)
        order = (tables.record.c.time, tables.record.c.received_at)
        found = connection.execute(query.order_by(*order).limit(_MOST_RECORDS))
        every, decided = decisions.history_of(connection, event_id)
        return PastEvent(
            event=rows.event_of(row),
            sightings=reading.sightings_of(connection, [event_id]).get(event_id, []),
            receipts=receipts,
            records=_records(found, receipts),
            decisions=every,
            decided=decided,
        )


def read_vm(engine: Engine, vm_id: str, limit: int) -> PastVm:
    """The last records of a VM, its gaps, and the events that it saw."""
    with read_from(engine) as connection:
        query = select(*_RECORD).where(tables.record.c.vm_id == vm_id)
        query = query.order_by(tables.record.c.time.desc()).limit(limit)
        found = connection.execute(query).all()
        gaps = connection.execute(select(tables.gap).where(tables.gap.c.vm_id == vm_id))
        seen = select(tables.sighting).where(tables.sighting.c.vm_id == vm_id)
        seen = seen.order_by(tables.sighting.c.first_at.desc()).limit(limit)
        return PastVm(
            records=_records(found, _receipts_of_vm(connection, vm_id, limit)),
            gaps=[rows.gap_of(row) for row in gaps],
            sightings=[rows.sighting_of(row) for row in connection.execute(seen)],
        )


def read_decisions(engine: Engine, ids: Iterable[str]) -> dict[str, Decision]:
    """Decisions by their ids."""
    with read_from(engine) as connection:
        return decisions.decisions_by_id(connection, ids)


def read_quarantine(engine: Engine) -> list[Quarantined]:
    """What was not a record of ours, the newest first."""
    wanted = [column for column in tables.quarantine.columns if column.name != "sample"]
    query = select(*wanted).order_by(tables.quarantine.c.last_at.desc())
    with read_from(engine) as connection:
        return [Quarantined(**row._mapping) for row in connection.execute(query)]  # noqa: SLF001  # SQLAlchemy's public name for it


def _receipts_of_vm(connection: Connection, vm_id: str, limit: int) -> list[Receipt]:
    c = tables.receipt.c
    query = select(tables.receipt).where(c.vm_id == vm_id).order_by(c.at.desc()).limit(limit)
    return [rows.receipt_of(row) for row in connection.execute(query)]


def _records(found: Iterable[Any], receipts: Iterable[Receipt]) -> list[PastRecord]:
    by_record = {receipt.record_id: receipt for receipt in receipts}
    return [
        PastRecord(
            id=row.id,
            vm_id=row.vm_id,
            type=row.type,
            time=row.time,
            received_at=row.received_at,
            sequence=row.sequence,
            event_id=row.event_id,
            receipt=by_record.get(row.id),
        )
        for row in found
    ]


def _filtered(query: Select[Any], wanted: Wanted) -> Select[Any]:
    c = tables.event.c
    if wanted.q is not None:
        query = query.where(c.words.contains(wanted.q.lower(), autoescape=True))
    if wanted.site is not None:
        query = query.where(c.sites.contains(json.dumps(wanted.site), autoescape=True))
    if wanted.type is not None:
        query = query.where(func.lower(c.event_type) == wanted.type.lower())
    return query
