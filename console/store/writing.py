"""One transaction of the writer: what a batch needs to know, and what it changes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from sqlalchemy import Connection, delete, func, select

from console.fleet.fold import Changes, Known, is_deletion
from console.records.incoming import Incoming, IncomingRecord, IncomingState
from console.store import rows, tables
from console.store.statements import (
    insert_new,
    known_in,
    select_in,
    select_pairs,
    upsert,
    upsert_of,
)

_NEXT: Final = 'UPDATE "change" SET "number" = "number" + 1 WHERE "id" = 1 RETURNING "number"'
_IN: Final = 500
"""Parameters in one statement; SQLite takes 32,766, PostgreSQL 65,535."""


def next_number(connection: Connection) -> int:
    """Take the transaction's number; on PostgreSQL, wait until other writers are done."""
    number: int = connection.exec_driver_sql(_NEXT).scalar_one()
    return number


def load(connection: Connection, batch: Sequence[Incoming]) -> Known:
    """What the database holds of the VMs, streams, records and events of a batch."""
    known = Known()
    vm_ids = {_vm_id(each) for each in batch}
    records = [each for each in batch if isinstance(each, IncomingRecord)]
    for row in select_in(connection, tables.vm, "vm_id", vm_ids):
        known.vms[row.vm_id] = rows.vm_of(row)
    for row in select_in(connection, tables.stream, "vm_id", vm_ids & set(known.vms)):
        known.streams[(row.vm_id, row.stream)] = rows.stream_of(row)
    with_gaps = {vm.vm_id for vm in known.vms.values() if vm.missing}
    for row in select_in(connection, tables.gap, "vm_id", with_gaps):
        known.gaps.setdefault((row.vm_id, row.stream), []).append(rows.gap_of(row))
    known.records |= _stored(connection, known, records)
    _load_events(connection, known, batch)
    _load_deleted(connection, known, records)
    return known


def write(connection: Connection, changes: Changes, number: int) -> None:
    """Carry out what a batch changes."""
    insert_new(connection, tables.record, map(rows.record_row, changes.records.values()))
    upsert(connection, tables.vm, (rows.vm_row(vm, number) for vm in changes.vms.values()))
    upsert(connection, tables.stream, map(rows.stream_row, changes.streams.values()))
    upsert(
        connection,
        tables.sighting,
        (rows.sighting_row(each, number) for each in changes.sightings.values()),
    )
    upsert(
        connection,
        tables.event,
        (rows.event_row(each, number) for each in changes.events.values()),
    )
    insert_new(
        connection,
        tables.receipt,
        (rows.receipt_row(each, number) for each in changes.receipts),
    )
    for (vm_id, stream), gaps in changes.gaps.items():
        connection.execute(
            delete(tables.gap).where(tables.gap.c.vm_id == vm_id, tables.gap.c.stream == stream)
        )
        insert_new(connection, tables.gap, map(rows.gap_row, gaps))


def quarantine(
    connection: Connection, *, source: str, reason: str, message: str, sample: bytes, at: float
) -> None:
    """Count what was not a record of ours; the last one of each kind is kept, cut short."""
    values = {
        "source": source,
        "reason": reason,
        "count": 1,
        "first_at": at,
        "last_at": at,
        "message": message[:500],
        "sample": sample[:2000],
    }
    statement = upsert_of(connection.dialect.name, tables.quarantine).values(values)
    connection.execute(
        statement.on_conflict_do_update(
            index_elements=["source", "reason"],
            set_={
                "count": tables.quarantine.c.count + 1,
                "last_at": statement.excluded.last_at,
                "message": statement.excluded.message,
                "sample": statement.excluded.sample,
            },
        )
    )


def _stored(connection: Connection, known: Known, records: Iterable[IncomingRecord]) -> set[str]:
    """The ids of a batch that are in the store. One that is next in its stream cannot be."""
    doubtful = set()
    for each in records:
        stream = known.streams.get((each.place.vm_id, each.stream))
        if each.kind != "heartbeat" and (stream is None or each.sequence <= stream.high):
            doubtful.add(each.id)
    return set(known_in(connection, tables.record, "id", doubtful))


def _vm_id(each: Incoming) -> str:
    return each.place.vm_id if isinstance(each, IncomingRecord) else each.vm_id


def _load_events(connection: Connection, known: Known, batch: Sequence[Incoming]) -> None:
    pairs = {
        (each.event.event_id, each.place.vm_id)
        for each in batch
        if isinstance(each, IncomingRecord) and each.event is not None
    }
    states = [each for each in batch if isinstance(each, IncomingState)]
    pairs |= {(event.event_id, each.vm_id) for each in states for _, event in each.events}
    event_ids = {event_id for event_id, _ in pairs}
    c = tables.sighting.c
    if states:
        pending = select(tables.sighting).where(
            c.over == 0, c.vm_id.in_({each.vm_id for each in states})
        )
        for row in connection.execute(pending):
            known.sightings[(row.event_id, row.vm_id)] = rows.sighting_of(row)
            event_ids.add(row.event_id)
    for row in select_in(connection, tables.event, "event_id", event_ids):
        known.events[row.event_id] = rows.event_of(row)
    # Of the witnesses in the batch alone: an event may have thousands of others.
    mine = {pair for pair in pairs if pair[0] in known.events}
    for row in select_pairs(connection, tables.sighting, ("event_id", "vm_id"), mine):
        known.sightings[(row.event_id, row.vm_id)] = rows.sighting_of(row)


def _load_deleted(connection: Connection, known: Known, records: Iterable[IncomingRecord]) -> None:
    """The VMs of the names whose deletion a record reports; the fold looks at their scope."""
    names = {
        name.lower()
        for record in records
        if record.event is not None and is_deletion(record.event)
        for name in record.event.resources
    }
    for some in _chunks(names):
        found = select(tables.vm).where(func.lower(tables.vm.c.name).in_(some))
        for row in connection.execute(found):
            known.vms.setdefault(row.vm_id, rows.vm_of(row))


def _chunks(values: Iterable[str]) -> Iterable[list[str]]:
    everything = sorted(values)
    for start in range(0, len(everything), _IN):
        yield everything[start : start + _IN]
