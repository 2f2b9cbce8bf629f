"""The rows that say which generation of its secrets a VM has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sqlalchemy import Connection, func, select

from console.db.access_tables import enrolment
from console.db.upsert import portions, upsert


def read_generations(connection: Connection, vm_ids: Iterable[str]) -> dict[str, int]:
    """The generations of some VMs, as far as they have a row. Raises SQLAlchemy's errors."""
    found: dict[str, int] = {}
    for few in portions(vm_ids):
        wanted = select(enrolment).where(enrolment.c.vm_id.in_(few))
        found |= {row.vm_id: row.generation for row in connection.execute(wanted)}
    return found


def newest_generation(connection: Connection) -> int:
    """The highest generation of any VM; the first one needs no row."""
    newest: int | None = connection.execute(select(func.max(enrolment.c.generation))).scalar()
    return newest or 1


def write_generations(
    connection: Connection,
    generations: Mapping[str, int],
    number: int,
    *,
    revoked_at: float | None,
) -> None:
    """Put VMs into a generation; `revoked_at` in seconds since 1970, None if they are enrolled."""
    upsert(
        connection,
        enrolment,
        [
            {
                "vm_id": vm_id,
                "generation": generation,
                "revoked_at": revoked_at,
                "changed": number,
            }
            for vm_id, generation in generations.items()
        ],
    )


def generations_since(connection: Connection, number: int) -> dict[str, int]:
    """The generations that a later transaction has changed, by vmId."""
    rows = connection.execute(select(enrolment).where(enrolment.c.changed > number))
    return {row.vm_id: row.generation for row in rows}
