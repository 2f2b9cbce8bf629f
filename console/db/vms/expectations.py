"""What is coming to VMs: the open events that name them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, Select, case, func, select

from console.db.bulk import rows_in
from console.db.schema.tables import event
from console.db.vms.bearers import bearers_query
from console.fleet.values.event import OPEN
from console.fleet.values.vm import CLEAR, Expectation


def expectations_of(connection: Connection, vm_ids: Iterable[str]) -> dict[str, Expectation]:
    """Return what is coming to these VMs, by vmId; those that no open event names are
    left out.
    """
    found: dict[str, list[tuple[str, str]]] = {}
    state = case((event.c.is_news == 1, CLEAR), else_=event.c.state).label("brings")
    names = bearers_query(state).where(event.c.state.in_(OPEN)).subquery()
    query = select(names.c.vm_id, names.c.event_id, names.c.brings)
    query = query.where(names.c.rank == 1).distinct()
    for row in rows_in(connection, query, names.c.vm_id, vm_ids):
        found.setdefault(row.vm_id, []).append((row.event_id, row.brings))
    return {vm_id: _expectation(several) for vm_id, several in found.items()}


def conditions_query() -> Select[Any]:
    """Return a query of the VMs that open events name, each with its condition."""
    names = bearers_query().where(event.c.state.in_(OPEN), event.c.is_news == 0).subquery()
    started = func.max(case((names.c.state == "started", 1), else_=0))
    condition = case((started == 1, "started"), else_="scheduled").label("condition")
    return select(names.c.vm_id, condition).where(names.c.rank == 1).group_by(names.c.vm_id)


def _expectation(events: Sequence[tuple[str, str]]) -> Expectation:
    brought = {state for _, state in events}
    worst = next(word for word in ("started", "scheduled", CLEAR) if word in brought)
    return Expectation(
        condition=worst,
        events=tuple(sorted(event_id for event_id, _ in events)),
    )
