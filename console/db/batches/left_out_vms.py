"""Marks the preparations of VMs that an event has left out, as other VMs report it.

What a VM has prepared for an event does not count any more once the event has left the VM out,
even if the event comes back as it was: the VM recovers meanwhile. Its own records say so, but they
may come later than those of the others.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection, select, tuple_, update

from console.db import rows
from console.db.bulk import rows_in
from console.db.schema.tables import preparation, vm
from console.fleet.values.keys import EventKey, folded
from console.fleet.values.report import LatestReport
from wire.preparation import RECOVERED

_KEY = tuple_(preparation.c.event_id, preparation.c.scope)


def mark_left_out_vms(
    connection: Connection, reports: Iterable[LatestReport], number: int, *, now: float
) -> None:
    """Write when another VM has reported that an event is over or does not name a VM that has
    prepared for it. The mark lasts until the VM reports something newer of its preparation.
    """
    reports_of: dict[EventKey, list[LatestReport]] = {}
    for each in reports:
        reports_of.setdefault(each.key, []).append(each)
    c = preparation.c
    prepared = (
        select(c.event_id, c.scope, c.vm_id, vm.c.name)
        .join(vm, vm.c.vm_id == c.vm_id)
        .where(c.state != RECOVERED)
    )
    for row in list(rows_in(connection, prepared, _KEY, reports_of)):
        key = rows.key_of(row)
        others = (each for each in reports_of[key] if each.vm_id != row.vm_id)
        if any(_leaves_out(each, row.name) for each in others):
            same = (c.event_id == key.event_id, c.scope == key.scope, c.vm_id == row.vm_id)
            marked = update(preparation).where(*same)
            connection.execute(marked.values(left_out_at=now, change_number=number))


def _leaves_out(report: LatestReport, name: str) -> bool:
    names = map(folded, report.report.event.resources)
    return report.report.state == "ended" or folded(name) not in names
