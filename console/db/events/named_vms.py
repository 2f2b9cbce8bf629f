"""The VMs that events name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, Subquery, and_, func, or_, select

from console.db import rows
from console.db.bulk import rows_in
from console.db.schema.tables import event, preparation
from console.db.vms.bearers import BEARER, bearers_query
from console.db.vms.contact import contact_of
from console.db.vms.grouping import columns_of, keys_of
from console.fleet.candidates import PULL_SECONDS
from console.fleet.contact import Listening
from console.fleet.preparations import OF_THE_EVENT
from console.fleet.values.event import NamedVm
from console.fleet.values.keys import EventKey
from console.turns.groups import Grouping


def named_vms(
    connection: Connection,
    conditions: Iterable[ColumnElement[bool]],
    now: float,
    listening: Listening,
    grouping: Grouping,
) -> dict[EventKey, dict[str, NamedVm]]:
    """Return the VMs that events name, by event and by the key of their name. Only events are read
    for which one of these conditions holds.
    """
    contact = contact_of(BEARER, now, listening)
    seen = [
        column.label(f"seen_{number}") for number, column in enumerate(columns_of(grouping, BEARER))
    ]
    found: dict[EventKey, dict[str, NamedVm]] = {}
    for condition in conditions:
        names = (
            bearers_query(contact.label("contact"), *seen, heard=contact == "heard")
            .where(condition)
            .subquery()
        )
        for row in connection.execute(_with_failures(names)):
            keys = keys_of(grouping, row[len(row) - len(seen) :])
            found.setdefault(rows.key_of(row), {})[row.name_key] = NamedVm(
                name_key=row.name_key,
                vm_id=row.vm_id,
                contact=row.contact,
                heard_at=row.heard_at,
                command_source=row.command_source,
                pulled_at=row.pulled_at,
                content_hash=row.content_hash,
                is_over=bool(row.over),
                name_since=row.name_since,
                site=row.site,
                prepares=bool(row.prepares),
                gave_up_on=row.gave_up_on,
                is_grouped=bool(keys) and row.contact != "retired",
            )
    return found


def named_vm_ids(connection: Connection, event_ids: Iterable[str]) -> set[str]:
    """Return the vmIds of the VMs that these events name, open or over."""
    names = bearers_query().subquery()
    query = select(names.c.vm_id).where(names.c.rank == 1)
    found = rows_in(connection, query, names.c.event_id, event_ids)
    return {row.vm_id for row in found}


def keys_of_askable(connection: Connection, now: float, listening: Listening) -> set[EventKey]:
    """Return the keys of the scheduled events about which a VM can be asked: one that is heard, is
    named by the event, has reported it, and takes commands.
    """
    contact = contact_of(BEARER, now, listening)
    names = (
        bearers_query(contact.label("contact"), heard=contact == "heard")
        .where(event.c.state == "scheduled", event.c.is_news == 0)
        .subquery()
    )
    polls = func.coalesce(names.c.pulled_at, 0) > now - PULL_SECONDS
    query = select(names.c.event_id, names.c.scope).where(
        names.c.rank == 1,
        names.c.contact == "heard",
        names.c.content_hash.is_not(None),
        or_(names.c.command_source.is_not(None), polls),
    )
    return {rows.key_of(row) for row in connection.execute(query)}


def _with_failures(names: Subquery) -> Select[Any]:
    """Return the VMs that count, and for which state of its event each one's program gave up."""
    its_failure = and_(
        preparation.c.event_id == names.c.event_id,
        preparation.c.scope == names.c.scope,
        preparation.c.vm_id == names.c.vm_id,
        preparation.c.state == "failed",
        func.coalesce(preparation.c.reason, "").not_in(OF_THE_EVENT),
    )
    return (
        select(preparation.c.fingerprint.label("gave_up_on"), names)
        .outerjoin_from(names, preparation, its_failure)
        .where(names.c.rank == 1)
    )
