"""The rows that say when a VM last asked the HTTPS channel for commands."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection, select

from console.store.decision_tables import asked
from console.store.statements import upsert


def write_asked(connection: Connection, times: Mapping[str, float], number: int) -> None:
    """Write when each VM asked, in seconds since 1970. Raises SQLAlchemy's errors."""
    upsert(connection, asked, ((vm_id, at, number) for vm_id, at in times.items()))


def asked_since(connection: Connection, number: int) -> dict[str, float]:
    """When each VM asked whose row a later transaction has changed, by vmId."""
    rows = connection.execute(select(asked).where(asked.c.changed > number))
    return {row.vm_id: row.at for row in rows}
