"""The rows of enrolment: the generation of each VM's secrets, and what an admin gave with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, func, or_, select

from console.db.bulk import rows_in, upsert
from console.db.schema.access_tables import enrolment


def read_generations(connection: Connection, vm_ids: Iterable[str]) -> dict[str, int]:
    """Return the generations of these VMs, if they have a row. Raises SQLAlchemy's errors."""
    found = rows_in(connection, select(enrolment), enrolment.c.vm_id, vm_ids)
    return {row.vm_id: row.generation for row in found}


def read_enrolled(connection: Connection, vm_ids: Iterable[str]) -> dict[str, Any]:
    """Return the rows of those of these VMs whose resource id, site or tags an admin has given."""
    c = enrolment.c
    given = or_(c.resource_id.is_not(None), c.site.is_not(None), c.tags.is_not(None))
    query = select(enrolment).where(given)
    return {row.vm_id: row for row in rows_in(connection, query, c.vm_id, vm_ids)}


def newest_generation(connection: Connection) -> int:
    """Return the highest generation of any VM. Generation 1 has no row."""
    newest: int | None = connection.execute(select(func.max(enrolment.c.generation))).scalar()
    return newest or 1


def write_generations(
    connection: Connection,
    generations: Mapping[str, int],
    change_number: int,
    *,
    revoked_at: float | None,
    given: Mapping[str, Mapping[str, Any]] | None = None,
) -> None:
    """Write the generation of VMs. `revoked_at` in seconds since 1970; None if they are enrolled.
    `given`: the columns that an admin gave, by vmId; the columns of other VMs stay.
    """
    names = ("resource_id", "site", "enrolled_at", "tags")
    before = {
        vm_id: {name: getattr(row, name) for name in names}
        for vm_id, row in read_enrolled(connection, generations).items()
    }
    nothing = dict.fromkeys(names)
    given = given or {}
    upsert(
        connection,
        enrolment,
        [
            {
                **nothing,
                **before.get(vm_id, {}),
                **given.get(vm_id, {}),
                "vm_id": vm_id,
                "generation": generation,
                "revoked_at": revoked_at,
                "change_number": change_number,
            }
            for vm_id, generation in generations.items()
        ],
    )


def generations_since(connection: Connection, since: int) -> dict[str, int]:
    """Return the generations that a later transaction has changed, by vmId."""
    rows = connection.execute(select(enrolment).where(enrolment.c.change_number > since))
    return {row.vm_id: row.generation for row in rows}
