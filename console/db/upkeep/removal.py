"""Removes everything that one VM has sent."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, and_, delete, select, tuple_

from console.db import rows
from console.db.events.shown_events import write_events
from console.db.schema import tables
from console.fleet.contact import Listening

_ROWS_AT_ONCE: Final = 500
_EVENTS_AT_ONCE: Final = 200


def is_known(connection: Connection, vm_id: str) -> bool:
    """Check whether a VM has sent anything."""
    known = select(tables.vm.c.vm_id).where(tables.vm.c.vm_id == vm_id)
    return connection.execute(known).first() is not None


def delete_past_reports(
    connection: Connection, vm_id: str, change_number: int, *, now: float, listening: Listening
) -> bool:
    """Remove some of a VM's reports of ended events; return whether there were any."""
    r = tables.report.c
    e = tables.event.c
    same = and_(e.event_id == r.event_id, e.scope == r.scope)
    reported = select(r.event_id, r.scope).join(tables.event, same)
    reported = reported.where(r.vm_id == vm_id, e.state == "ended").limit(_EVENTS_AT_ONCE)
    keys = [rows.key_of(row) for row in connection.execute(reported)]
    these = tuple_(r.event_id, r.scope).in_(keys)
    connection.execute(delete(tables.report).where(r.vm_id == vm_id, these))
    write_events(connection, keys, {}, now=now, listening=listening, change_number=change_number)
    return bool(keys)


def delete_vm(
    connection: Connection, vm_id: str, change_number: int, *, now: float, listening: Listening
) -> None:
    """Remove a VM's row and its reports. An event that other VMs report is then shown by them; one
    that no other VM has reported is removed.
    """
    r = tables.report.c
    reported = select(r.event_id, r.scope).where(r.vm_id == vm_id)
    keys = [rows.key_of(row) for row in connection.execute(reported)]
    for table in (tables.report, tables.preparation, tables.gap, tables.stream, tables.vm):
        connection.execute(delete(table).where(table.c.vm_id == vm_id))
    write_events(connection, keys, {}, now=now, listening=listening, change_number=change_number)


def delete_some_records(connection: Connection, vm_id: str, before: float) -> int:
    """Remove some of a VM's records and receipts that came in before a moment, in seconds since
    1970; return how many records.
    """
    r = tables.record.c
    a = tables.receipt.c
    old = select(r.id).where(r.vm_id == vm_id, r.received_at <= before).limit(_ROWS_AT_ONCE)
    ids = list(connection.execute(old).scalars())
    connection.execute(delete(tables.record).where(r.id.in_(ids)))
    connection.execute(delete(tables.receipt).where(a.vm_id == vm_id, a.at <= before))
    return len(ids)
