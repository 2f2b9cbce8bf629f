"""The rows of the audit: read, and put at the end; there is no way here to change one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Row, insert, inspect, select

from console.db import decision_tables
from console.db.upsert import upsert

_TABLE: Final = decision_tables.audit
_HEAD: Final = decision_tables.audit_head


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRow:
    """One row as it is stored; `at` is in seconds since 1970."""

    number: int
    at: float
    actor: str
    action: str
    event_id: str | None = None
    jti: str | None = None
    body: str
    """Canonical JSON of the whole row without its hash."""
    hash: str
    """SHA-256 of `body`, in hexadecimal."""


def insert_row(connection: Connection, row: AuditRow) -> None:
    """Put a row at the end. Raises SQLAlchemy's `IntegrityError` if its number is taken."""
    values = {name: getattr(row, name) for name in AuditRow.__slots__}
    connection.execute(insert(_TABLE).values(values))


def write_head(connection: Connection, row: AuditRow) -> None:
    """Keep number and hash of the newest row beside the audit. Raises SQLAlchemy's errors."""
    upsert(connection, _HEAD, [{"id": 1, "number": row.number, "hash": row.hash}])


def kept_head(connection: Connection) -> tuple[int, str] | None:
    """Number and hash of the newest row that was written; no hash if they were taken away, and
    None if the database is of a version that kept none.
    """
    if not inspect(connection).has_table(_HEAD.name):
        return None
    found = connection.execute(select(_HEAD.c.number, _HEAD.c.hash)).first()
    return (0, "") if found is None else (found.number, found.hash)


def last_row(connection: Connection) -> AuditRow | None:
    """The newest row; None if there is none."""
    found = connection.execute(select(_TABLE).order_by(_TABLE.c.number.desc()).limit(1)).first()
    return None if found is None else _row(found)


def rows_after(
    connection: Connection, number: int, limit: int, *, event_id: str | None = None
) -> list[AuditRow]:
    """Up to `limit` rows after a number, oldest first; of one event, if it is named."""
    query = select(_TABLE).where(_TABLE.c.number > number)
    if event_id is not None:
        query = query.where(_TABLE.c.event_id == event_id)
    found = connection.execute(query.order_by(_TABLE.c.number).limit(limit))
    return [_row(each) for each in found]


def newest_rows(
    connection: Connection,
    limit: int,
    *,
    before: int | None = None,
    equal: Mapping[str, str] | None = None,
) -> list[AuditRow]:
    """Up to `limit` rows, the newest first; `equal` has the values of some columns."""
    query = select(_TABLE).order_by(_TABLE.c.number.desc()).limit(limit)
    if before is not None:
        query = query.where(_TABLE.c.number < before)
    for name, value in (equal or {}).items():
        query = query.where(_TABLE.c[name] == value)
    return [_row(each) for each in connection.execute(query)]


def actions(connection: Connection) -> list[str]:
    """Every action that has been written."""
    query = select(_TABLE.c.action).distinct().order_by(_TABLE.c.action)
    return list(connection.scalars(query))


def _row(found: Row[Any]) -> AuditRow:
    return AuditRow(**{name: getattr(found, name) for name in AuditRow.__slots__})
