"""Changes of VMs that no batch makes: they are retired, or poll the HTTPS channel."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from pydantic_core import from_json
from sqlalchemy import Connection, bindparam, func, select, tuple_, update

from console.db.bulk import rows_in
from console.db.schema import tables
from console.db.schema.tables import event, report, vm
from console.db.vms.bearers import BEARER, bearers_query
from console.db.vms.contact import contact_of
from console.fleet.candidates import PULL_SECONDS
from console.fleet.contact import Listening
from console.fleet.values.keys import EventKey
from wire.event import IMPACT_OF

_DELETING: Final = tuple(word for word, impact in IMPACT_OF.items() if impact == "delete")
"""Types of events that delete a VM, in lower case."""
_DAY_SECONDS: Final = 86_400.0


def write_polls(connection: Connection, polls: Mapping[str, float], change_number: int) -> set[str]:
    """Write when VMs last polled the HTTPS channel, in seconds since 1970; return those that are
    known. The first poll after a pause counts as a change of the VM.
    """
    table = tables.vm
    found = {row.vm_id: row for row in rows_in(connection, select(table), table.c.vm_id, polls)}
    changed = []
    for vm_id, row in found.items():
        is_back = row.pulled_at is None or polls[vm_id] - row.pulled_at >= PULL_SECONDS
        changed.append(
            {
                "key": vm_id,
                "at": polls[vm_id],
                "new": change_number if is_back else row.change_number,
            }
        )
    if changed:
        statement = (
            update(table)
            .where(table.c.vm_id == bindparam("key"))
            .values(pulled_at=bindparam("at"), change_number=bindparam("new"))
        )
        connection.execute(statement, changed)
    return set(found)


def retire_deleted(
    connection: Connection,
    *,
    now: float,
    listening: Listening,
    change_number: int,
    keys: Collection[EventKey] | None = None,
) -> int:
    """Retire the VMs that were deleted; return how many.

    A VM counts as deleted if it has reported itself that its deletion is pending, and a peer has
    reported the same event as Completed. Only events that ended within a day are looked at; with
    `keys`, only these of them. A VM that was heard since, or may still be heard, is not retired.
    """
    e = event.c
    is_deleted = func.lower(e.event_type).in_(_DELETING)
    contact = contact_of(BEARER, now, listening).label("contact")
    shown_report = report.alias("shown_report")
    shown_words = select(shown_report.c.event_report).where(
        shown_report.c.event_id == e.event_id,
        shown_report.c.scope == e.scope,
        shown_report.c.vm_id == e.shown_by,
    )
    shown = (e.shown_at, e.shown_by, shown_words.correlate(event).scalar_subquery().label("shown"))
    ended = bearers_query(contact, *shown, report.c.event_report.label("own")).where(
        e.state == "ended", e.shown_at > now - _DAY_SECONDS, is_deleted
    )
    if keys is not None:
        ended = ended.where(tuple_(e.event_id, e.scope).in_(keys))
    names = ended.subquery()
    gone = select(names).where(
        names.c.rank == 1,
        names.c.contact.not_in(("heard", "late", "retired")),
        names.c.heard_at <= names.c.shown_at,
        names.c.vm_id != names.c.shown_by,
        # Only the VM's own report counts: another VM may not say that it is deleted.
        names.c.over == 0,
    )
    retired = 0
    for row in connection.execute(gone).all():
        is_own_word = str(from_json(row.own)["event"]["event_type"]).lower() in _DELETING
        if is_own_word and from_json(row.shown)["event"]["event_status"] == "Completed":
            by = f"event {row.event_id}"
            at = float(row.shown_at)
            retired += len(
                retire_rows(connection, [row.vm_id], by=by, at=at, change_number=change_number)
            )
    return retired


def retire_rows(
    connection: Connection, vm_ids: Sequence[str], *, by: str, at: float, change_number: int
) -> list[str]:
    """Mark VMs as retired; return those that are known and were not retired before, in
    their order.
    """
    known = connection.execute(
        select(vm.c.vm_id).where(vm.c.vm_id.in_(vm_ids), vm.c.retired_at.is_(None))
    ).scalars()
    there = set(known)
    connection.execute(
        update(vm)
        .where(vm.c.vm_id.in_(there))
        .values(retired_at=at, retired_by=by, change_number=change_number)
    )
    return [each for each in vm_ids if each in there]
