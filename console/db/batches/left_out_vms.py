"""Marks the preparations of VMs that an event has left out, as other VMs report it.

What a VM has prepared for an event does not count any more once the event has left the VM out,
even if the event comes back as it was: the VM recovers meanwhile. Its own records say so, but they
may come later than those of the others.

Not everybody's word counts, since a VM that said so again and again would hold up the event: only
that of VMs which can hold it up anyway.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from sqlalchemy import Connection, select, tuple_, update

from console.db import rows
from console.db.bulk import rows_in
from console.db.events.named_vms import named_vm_ids
from console.db.schema.tables import event, preparation, vm
from console.db.vms.grouping import keys_among
from console.fleet.values.keys import EventKey, name_key
from console.fleet.values.report import LatestReport
from console.turns.groups import Grouping
from wire.preparation import RECOVERED

_KEY = tuple_(preparation.c.event_id, preparation.c.scope)


def mark_left_out_vms(
    connection: Connection,
    reports: Iterable[LatestReport],
    change_number: int,
    *,
    now: float,
    grouping: Grouping,
) -> None:
    """Write when another VM has reported that an event is over or does not name a VM that has
    prepared for it. The mark lasts until the VM reports something newer of its preparation.

    The other VM is of one group with it, or the event is shown by its report or names it too.
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
        others = [each for each in reports_of[key] if each.vm_id != row.vm_id]
        leave_out = {each.vm_id for each in others if _leaves_out(each, row.name)}
        if leave_out and not leave_out.isdisjoint(
            _heeded_vms(connection, key, row.vm_id, leave_out, grouping)
        ):
            same = (c.event_id == key.event_id, c.scope == key.scope, c.vm_id == row.vm_id)
            marked = update(preparation).where(*same)
            connection.execute(marked.values(left_out_at=now, change_number=change_number))


def _heeded_vms(
    connection: Connection,
    key: EventKey,
    vm_id: str,
    reporters: Collection[str],
    grouping: Grouping,
) -> set[str]:
    """Return the VMs whose word counts about whether an event still names a VM that has prepared
    for it; only of these `reporters` it is found whether they are of one group with it.
    """
    shown_by = select(event.c.shown_by).where(
        event.c.event_id == key.event_id, event.c.scope == key.scope
    )
    heeded = set(connection.execute(shown_by).scalars())
    heeded |= named_vm_ids(connection, [key.event_id])
    groups = keys_among(connection, grouping, [vm_id, *reporters])
    own = groups.get(vm_id, frozenset())
    return heeded | {each for each in reporters if not own.isdisjoint(groups.get(each, ()))}


def _leaves_out(report: LatestReport, name: str) -> bool:
    names = map(name_key, report.report.event.resources)
    return report.report.state == "ended" or name_key(name) not in names
