"""Which events a transaction has changed."""

from __future__ import annotations

from sqlalchemy import Connection, select, union

from console.db.decisions import assignments
from console.db.schema.decision_tables import command, decision, turn
from console.db.schema.tables import assignment, event, preparation, receipt, report


def changed_event_ids(connection: Connection, since: int) -> list[str]:
    """Return the ids of the events about which a transaction after `since` has written anything."""
    several = union(
        *(
            select(table.c.event_id).where(table.c.change_number > since)
            for table in (event, report, receipt, preparation, decision, command, turn)
        )
    )
    assigned = select(assignment.c.subject).where(
        assignment.c.change_number > since, assignment.c.kind == assignments.EVENT
    )
    found = {*connection.execute(several).scalars()}
    found |= {*connection.execute(assigned).scalars()}
    return sorted(filter(None, found))
