"""The rows of the quarantine: messages that are not records of ours, or too many of one VM."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, select

from console.db.bulk import insert_of
from console.db.schema import tables


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineRow:
    """The messages of one source that are not records of ours, for one reason."""

    source: str
    reason: str
    count: int
    first_at: float
    last_at: float
    message: str
    """The error of the last one."""


def count_quarantined(
    connection: Connection,
    *,
    source: str,
    reason: str,
    message: str,
    sample: bytes,
    at: float,
    count: int = 1,
) -> None:
    """Count a message that is not a record of ours. The last one of each source and reason is kept,
    cut short.
    """
    values = {
        "source": source,
        "reason": reason,
        "count": count,
        "first_at": at,
        "last_at": at,
        "message": message[:500],
        "sample": sample[:2000],
    }
    statement = insert_of(connection.dialect.name, tables.quarantine).values(values)
    connection.execute(
        statement.on_conflict_do_update(
            index_elements=["source", "reason"],
            set_={
                "count": tables.quarantine.c.count + count,
                "last_at": statement.excluded.last_at,
                "message": statement.excluded.message,
                "sample": statement.excluded.sample,
            },
        )
    )


def read_quarantine(connection: Connection) -> list[QuarantineRow]:
    """Return the messages that were not records of ours, the newest first."""
    wanted = [column for column in tables.quarantine.columns if column.name != "sample"]
    query = select(*wanted).order_by(tables.quarantine.c.last_at.desc())
    return [QuarantineRow(**row._mapping) for row in connection.execute(query)]  # noqa: SLF001  # SQLAlchemy's public name for it
