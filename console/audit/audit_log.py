"""Writes the audit and reads it. Code that decides something appends in the same transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from sqlalchemy import Connection, Engine

from console.audit.chain import START, AuditValue, ChainFault, Head, head_of, sealed, verify
from console.db import audit
from console.db.audit import AuditRow, WantedRows
from console.db.connection.transactions import read_from

_ROWS_AT_ONCE: Final = 1000
_BEFORE_ALL: Final = -(2**63)
"""Below every number that a row can have."""


def append(
    connection: Connection,
    *,
    at: float,
    actor: str,
    action: str,
    event_id: str | None = None,
    jti: str | None = None,
    **details: AuditValue,
) -> AuditRow:
    """Append a row within the caller's transaction, which must have called `next_number` before:
    that makes writers take turns.

    `at` in seconds since 1970; `not_before="…"` becomes the JSON name `notBefore`; None is left
    out. Raises SQLAlchemy's errors; the caller's transaction then has no effect at all.
    """
    row = sealed(
        head(connection),
        at=at,
        actor=actor,
        action=action,
        event_id=event_id,
        jti=jti,
        details={_json_name(name): value for name, value in details.items()},
    )
    audit.insert_row(connection, row)
    audit.write_head(connection, row)
    return row


def head(connection: Connection) -> Head:
    """Return number and hash of the newest row that was ever written, even if it was deleted since:
    the next row follows it.
    """
    last = head_of(audit.last_row(connection))
    kept = kept_head(connection)
    return last if kept is None or kept.number <= last.number else kept


def kept_head(connection: Connection) -> Head | None:
    """Return the head that is kept beside the rows, as `audit.kept_head` does."""
    kept = audit.kept_head(connection)
    return None if kept is None else Head(number=kept[0], hash=kept[1])


def read_rows(
    engine: Engine, *, after: int = 0, limit: int = 100, event_id: str | None = None
) -> list[AuditRow]:
    """Return up to `limit` rows after a number, the oldest first. Raises `DatabaseFailedError`."""
    with read_from(engine) as connection:
        return audit.rows_after(connection, after, limit, event_id=event_id)


def find_rows(
    connection: Connection, wanted: WantedRows, *, limit: int, page: int
) -> tuple[list[AuditRow], int]:
    """Return the rows of a page, whose number counts from 1, and how many rows match in all."""
    count = audit.count_rows(connection, wanted)
    return audit.found_rows(connection, wanted, limit=limit, skip=(page - 1) * limit), count


def all_rows(engine: Engine) -> Iterator[AuditRow]:
    """Yield all rows, the oldest first, read a thousand at a time. Raises `DatabaseFailedError`."""
    after = _BEFORE_ALL
    while some := read_rows(engine, after=after, limit=_ROWS_AT_ONCE):
        yield from some
        after = some[-1].number


def check(engine: Engine, known: Iterable[Head] = ()) -> tuple[Head, ChainFault | None]:
    """Return the head of the whole audit, and its first fault, or None. `known` are heads that were
    kept elsewhere, besides the one that is kept beside the rows. Raises `DatabaseFailedError`.
    """
    with read_from(engine) as connection:  # before the rows, of which there may be more meanwhile
        kept = kept_head(connection)
    last = START

    def rows() -> Iterator[AuditRow]:
        nonlocal last
        for row in all_rows(engine):
            last = head_of(row)
            yield row

    heads = [*known, *([] if kept is None else [kept])]
    fault = next(verify(rows(), known=heads), None)
    if fault is None and kept is not None and not kept.hash:
        fault = ChainFault(
            number=last.number, message="the head that is kept beside the rows is missing"
        )
    return last, fault


def _json_name(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
