"""Retention: deletes old rows, a few at a time; rows of what is open stay."""

from __future__ import annotations

from sqlalchemy import (
    ColumnElement,
    Connection,
    Table,
    case,
    delete,
    exists,
    func,
    select,
    tuple_,
    update,
)

from console.db.schema import tables
from console.db.schema.decision_tables import command, decision, notice, turn
from console.fleet.values.event import OPEN
from console.turns.transitions import HOLDING
from wire.preparation import RECOVERED


def delete_before(connection: Connection, moment: float, limit: int) -> bool:
    """Delete up to `limit` old rows of each kind; return whether there may be more.

    - Records and receipts, by the time at which they came in.
    - Ended events with their reports, by the time of their end, but not before their records: the
      clock of a VM may be far behind; and not while their VMs count as away by a turn or a
      preparation.
    - Gaps, by the time at which they were found.
    - Decisions, by the time of their end.
    - Notices, by their time; not those about an open event, which would be sent again, and not the
      newest one, whose number the next one follows.
    """
    e = tables.event.c
    r = tables.record.c
    is_recent = exists().where(r.event_id == e.event_id, r.received_at >= moment)
    over = select(e.event_id, e.scope).where(
        e.state == "ended", e.shown_at < moment, ~is_recent, ~_holds_a_turn(), ~_left_prepared()
    )
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
    is_open = exists().where(e.event_id == n.subject, e.state.in_(OPEN))
    old_notices = select(n.number).where(n.at < moment, n.number < newest, ~is_open).limit(limit)
    connection.execute(
        delete(notice).where(n.number.in_(list(connection.execute(old_notices).scalars())))
    )
    found = max(
        _delete_old_gaps(connection, moment, limit),
        _delete_old_decisions(connection, moment, limit),
    )
    return max(len(gone), len(ids), found) >= limit


def _holds_a_turn() -> ColumnElement[bool]:
    """Return the SQL for whether the turn of an event is held."""
    t, e = turn.c, tables.event.c
    same = (t.event_id == e.event_id, t.scope == e.scope)
    return exists().where(*same, t.state.in_(HOLDING))


def _left_prepared() -> ColumnElement[bool]:
    """Return the SQL for whether a VM has prepared for an event and has not recovered."""
    p, e, v = tables.preparation.c, tables.event.c, tables.vm.c
    same = (p.event_id == e.event_id, p.scope == e.scope)
    is_member = (v.vm_id == p.vm_id, v.retired_at.is_(None))
    return exists().where(*same, p.state != RECOVERED, *is_member)


def _delete_old_decisions(connection: Connection, moment: float, limit: int) -> int:
    """Delete old ended decisions with their commands; return how many. The audit's rows stay."""
    c = decision.c
    over = select(c.id).where(c.state == "over", c.over_at < moment).limit(limit)
    ids = list(connection.execute(over).scalars())
    connection.execute(delete(command).where(command.c.decision_id.in_(ids)))
    connection.execute(delete(decision).where(c.id.in_(ids)))
    return len(ids)


def _delete_old_gaps(connection: Connection, moment: float, limit: int) -> int:
    """Delete old gaps, and reduce the counts of missing records of their VMs; return how many."""
    table: Table = tables.gap
    c = table.c
    old = connection.execute(select(table).where(c.found_at < moment).limit(limit)).all()
    for row in old:
        same = (c.vm_id == row.vm_id, c.stream == row.stream, c.first == row.first)
        connection.execute(delete(table).where(*same))
        v = tables.vm.c
        size = row.last - row.first + 1
        connection.execute(
            update(tables.vm)
            .where(v.vm_id == row.vm_id)
            .values(
                missing_records=case((v.missing_records > size, v.missing_records - size), else_=0)
            )
        )
    return len(old)
