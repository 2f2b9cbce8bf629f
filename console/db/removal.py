"""Removes what one VM has sent."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, delete, select

from console.db import tables
from console.db.showing import show
from console.fleet.contact import Listening

_AT_ONCE: Final = 500


def remove_vm(
    connection: Connection, vm_id: str, number: int, *, now: float, listening: Listening
) -> bool:
    """Remove a VM's row, and what it says of events; whether it was known. An event that others
    report too is shown by them; what no other VM has reported is gone.
    """
    r = tables.report.c
    known = connection.execute(select(tables.vm.c.vm_id).where(tables.vm.c.vm_id == vm_id)).first()
    if known is None:
        return False
    said = select(r.event_id, r.scope).where(r.vm_id == vm_id)
    keys = [(row.event_id, row.scope) for row in connection.execute(said)]
    for table in (tables.report, tables.preparation, tables.gap, tables.stream, tables.vm):
        connection.execute(delete(table).where(table.c.vm_id == vm_id))
    show(connection, keys, {}, now=now, listening=listening, number=number)
    return True


def remove_some(connection: Connection, vm_id: str, before: float) -> int:
    """Remove some of a VM's records and receipts that came in before a moment, in seconds since
    1970; how many records.
    """
    r, a = tables.record.c, tables.receipt.c
    old = select(r.id).where(r.vm_id == vm_id, r.received_at <= before).limit(_AT_ONCE)
    ids = list(connection.execute(old).scalars())
    connection.execute(delete(tables.record).where(r.id.in_(ids)))
    connection.execute(delete(tables.receipt).where(a.vm_id == vm_id, a.at <= before))
    return len(ids)
