"""The latest reports about an event: one of each reporter."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection, select, tuple_

from console.db import rows
from console.db.bulk import rows_in
from console.db.schema.tables import report
from console.fleet.values.keys import EventKey
from console.fleet.values.report import LatestReport


def latest_reports(connection: Connection, key: EventKey) -> list[LatestReport]:
    """Return the latest report of every reporter of an event, the oldest first."""
    c = report.c
    wanted = select(report).where(c.event_id == key.event_id, c.scope == key.scope)
    wanted = wanted.order_by(c.time, c.vm_id)
    return [rows.report_of(row) for row in connection.execute(wanted)]


def reports_of_named_vms(
    connection: Connection, keys: Iterable[EventKey]
) -> dict[EventKey, list[LatestReport]]:
    """Return, by event, the latest reports of the VMs that the event names."""
    c = report.c
    found: dict[EventKey, list[LatestReport]] = {}
    query = select(report).where(c.is_own == 1)
    for row in rows_in(connection, query, tuple_(c.event_id, c.scope), keys):
        found.setdefault(rows.key_of(row), []).append(rows.report_of(row))
    return found
