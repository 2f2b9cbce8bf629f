"""Retention: old rows go, a few at a time; what is open or present stays."""

from __future__ import annotations

from sqlalchemy import Connection, Table, case, delete, exists, func, select, tuple_

from console.db import tables
from console.db.decision_tables import command, decision, notice, turn


def delete_before(connection: Connection, moment: float, limit: int) -> bool:
    """Delete up to `limit` old rows of each kind; whether there may be more.

    Records and receipts by the time at which they came in; events that are over by the time of
    their end, with what was observed, and not before their records, because the clock of a VM may
    be far behind; gaps by the time at which they were found; decisions by the
    time of their end; notices by their own, but for those about an event that is open, which would
    be told again, and for the newest, whose number the next one follows.
    """
    e, r = tables.event.c, tables.record.c
    is_recent = exists().where(r.event_id == e.event_id, r.received_at >= moment)
    over = select(e.event_id, e.scope).where(e.state == "ended", e.shown_at < moment, ~is_recent)
    gone = [(row.event_id, row.scope) for row in connection.execute(over.limit(limit))]
    of_events = (tables.report, tables.resource, tables.event_place, tables.preparation)
    for table in (*of_events, turn, tables.event):
        same = tuple_(table.c.event_id, table.c.scope).in_(gone)
        connection.execute(delete(table).where(same))
    c = command.c
    of_turns = (tuple_(c.event_id, c.scope).in_(gone), c.act == "prepare")
    connection.execute(delete(command).where(*of_turns))
    old = select(r.id).where(r.received_at < moment).limit(limit)
    ids = list(connection.execute(old).scalars())
    connection.execute(delete(tables.record).where(r.id.in_(ids)))
    connection.execute(delete(tables.receipt).where(tables.receipt.c.record_id.in_(ids)))
    n = notice.c
    newest = select(func.max(n.number)).scalar_subquery()
    is_open = exists().where(e.event_id == n.subject, e.state.in_(("scheduled", "started")))
    old_notices = select(n.number).where(n.at < moment, n.number < newest, ~is_open).limit(limit)
    connection.execute(
        delete(notice).where(n.number.in_(list(connection.execute(old_notices).scalars())))
    )
    found = max(_old_gaps(connection, moment, limit), _old_decisions(connection, moment, limit))
    return max(len(gone), len(ids), found) >= limit


def _old_decisions(connection: Connection, moment: float, limit: int) -> int:
    """Decisions that are over, with their commands. The audit's rows stay."""
    c = decision.c
    over = select(c.id).where(c.state == "over", c.over_at < moment).limit(limit)
    ids = list(connection.execute(over).scalars())
    connection.execute(delete(command).where(command.c.decision_id.in_(ids)))
    connection.execute(delete(decision).where(c.id.in_(ids)))
    return len(ids)


def _old_gaps(connection: Connection, moment: float, limit: int) -> int:
    """Gaps that will not be filled any more; their VMs' counts shrink with them."""
    table: Table = tables.gap
    c = table.c
    old = connection.execute(select(table).where(c.found_at < moment).limit(limit)).all()
    for row in old:
        same = (c.vm_id == row.vm_id, c.stream == row.stream, c.first == row.first)
        connection.execute(delete(table).where(*same))
        v = tables.vm
        size = row.last - row.first + 1
        connection.execute(
            v.update()
            .where(v.c.vm_id == row.vm_id)
            .values(missing=case((v.c.missing > size, v.c.missing - size), else_=0))
        )
    return len(old)
