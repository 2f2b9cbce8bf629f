"""How an event's id is spelled: VMs may report it in upper or lower case."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection, func, select

from console.db.bulk import rows_in
from console.db.schema.tables import event


def stored_spellings(connection: Connection, event_ids: Iterable[str]) -> dict[str, str]:
    """Return, for event ids in any case, the spelling that was stored first, or else the first of
    those given. An id that is stored exactly as given stays: a console up to version 0.2.0 stored
    each spelling as an event of its own.
    """
    given = list(dict.fromkeys(event_ids))
    known: dict[str, list[str]] = {}
    c = event.c
    query = select(c.event_id).order_by(c.first_seen_at, c.event_id)
    lower = {each.lower() for each in given}
    for row in rows_in(connection, query, func.lower(c.event_id), lower):
        known.setdefault(row.event_id.lower(), []).append(row.event_id)
    written = {}
    for each in given:
        same = known.setdefault(each.lower(), [each])
        written[each] = each if each in same else same[0]
    return written
