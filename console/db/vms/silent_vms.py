"""The VMs that are silent: how many share a value, and what may have silenced each."""

from __future__ import annotations

from typing import Any

from sqlalchemy import and_, case, func, or_, select

from console.db import rows
from console.db.schema.tables import event, vm
from console.db.vms.bearers import BEARER, bearers_query
from console.db.vms.contact import contact_of
from console.db.vms.known_vms import KnownVms
from console.fleet.values.keys import EventKey


def count_silent_by(
    known: KnownVms, *column_names: str
) -> list[tuple[tuple[str | None, ...], int, int]]:
    """Return, for each combination of values of these columns with a silent VM, the values, the
    number of VMs that are not retired, and the number of silent ones.
    """
    columns = [vm.c[name] for name in column_names]
    silent = func.sum(case((known.contact == "silent", 1), else_=0))
    query: Any = select(*columns, func.count(), silent).where(vm.c.retired_at.is_(None))
    found = known.connection.execute(query.group_by(*columns).having(silent > 0)).all()
    return [(tuple(row[:-2]), row[-2], row[-1]) for row in found]


def events_that_silenced(known: KnownVms, since: float) -> dict[str, EventKey]:
    """Return, for each silent or stopped VM, the newest event that may be the cause: one that
    has begun, or that has ended after `since` and after the VM was heard. A VM that is shut
    down for its event often cannot report the start.
    """
    e = event.c
    begun = or_(e.state == "started", and_(e.state == "scheduled", e.not_before <= known.now))
    ended = and_(e.state == "ended", e.shown_at > since)
    contact = contact_of(BEARER, known.now, known.listening).label("contact")
    names = bearers_query(contact, e.shown_at).where(e.is_news == 0, or_(begun, ended)).subquery()
    query = select(names.c.vm_id, names.c.event_id, names.c.scope).where(
        names.c.rank == 1,
        names.c.contact.in_(("silent", "stopped")),
        or_(names.c.state != "ended", names.c.heard_at < names.c.shown_at),
    )
    query = query.order_by(names.c.shown_at)
    found = known.connection.execute(query)
    return {row.vm_id: rows.key_of(row) for row in found}
