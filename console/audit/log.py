"""Writes to the audit and reads it. Who decides something appends in the same transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from sqlalchemy import Connection, Engine

from console.audit.chain import Fact, Fault, Head, head_of, sealed, verify
from console.db import audit
from console.db.audit import AuditRow
from console.db.transactions import read_from

_AT_ONCE: Final = 1000
_BEFORE_ALL: Final = -(2**63)
"""Below every number that a row can be given."""


def append(
    connection: Connection,
    *,
    at: float,
    actor: str,
    action: str,
    event_id: str | None = None,
    jti: str | None = None,
    **facts: Fact,
) -> AuditRow:
    """Append a row within the caller's transaction, which must have called `next_number` before:
    that makes writers take turns.

    `at` in seconds since 1970; `not_before="…"` becomes the JSON name `notBefore`; None is left
    out. Raises SQLAlchemy's errors; the caller's transaction then has no effect at all.
    """
    row = sealed(
        head_of(audit.last_row(connection)),
        at=at,
        actor=actor,
        action=action,
        event_id=event_id,
        jti=jti,
        facts={_json_name(name): value for name, value in facts.items()},
    )
    audit.insert_row(connection, row)
    return row


def head(connection: Connection) -> Head:
    """The number and the hash of the newest row."""
    return head_of(audit.last_row(connection))


def newest_head(engine: Engine) -> Head:
    """As `head`, in a transaction of its own. Raises `StoreError`."""
    with read_from(engine) as connection:
        return head(connection)


def read(
    engine: Engine, *, after: int = 0, limit: int = 100, event_id: str | None = None
) -> list[AuditRow]:
    """Up to `limit` rows after a number, oldest first. Raises `StoreError`."""
    with read_from(engine) as connection:
        return audit.rows_after(connection, after, limit, event_id=event_id)


def newest(
    connection: Connection,
    limit: int,
    *,
    before: int | None = None,
    equal: Mapping[str, str] | None = None,
) -> tuple[list[AuditRow], list[str]]:
    """Up to `limit` rows before a number, the newest first, and the actions that there are.

    `equal` has the values of some columns.
    """
    rows = audit.newest_rows(connection, limit, before=before, equal=equal)
    return rows, audit.actions(connection)


def everything(engine: Engine) -> Iterator[AuditRow]:
    """All rows, oldest first, a thousand at a time. Raises `StoreError`."""
    after = _BEFORE_ALL
    while some := read(engine, after=after, limit=_AT_ONCE):
        yield from some
        after = some[-1].number


def faults(engine: Engine, known: Iterable[Head] = ()) -> Iterator[Fault]:
    """What is wrong with the whole audit; `known` are heads that were kept elsewhere.

    Raises `StoreError`.
    """
    yield from verify(everything(engine), known=known)


def _json_name(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
