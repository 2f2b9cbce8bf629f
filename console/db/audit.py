"""The rows of the audit: read, and appended. Nothing here changes a row."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    case,
    func,
    insert,
    inspect,
    or_,
    select,
    text,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import GenericFunction

from console.db.bulk import upsert
from console.db.events.event_filters import ids_found
from console.db.schema import decision_tables
from console.db.search import is_pattern, tag_of

_TABLE: Final = decision_tables.audit
_HEAD: Final = decision_tables.audit_head
_HEAD_REVISION: Final = "0005"
"""The first revision of the schema that has the table of the head."""
_DECISION: Final = decision_tables.decision
_MAX_CHARACTERS: Final = 300
_ID_CHARACTERS: Final = 36
"""The length of a decision's id, in characters."""


class _PositionOf(GenericFunction[int]):
    """The SQL function for the position of one text in another, from 1; 0 if it is not there."""

    name = "instr"
    identifier = "position_of"
    inherit_cache = True


@compiles(_PositionOf, "postgresql")
def _in_postgresql(element: _PositionOf, compiler: SQLCompiler, **how: Any) -> str:
    return f"strpos{compiler.function_argspec(element, **how)}"


def _in_body(name: str, length: int) -> ColumnElement[str]:
    """Return the SQL for the beginning of a row's value of this name.

    In JSON a quotation mark within a value has a backslash, so `"name":"` is found only as a name.
    """
    mark = f'"{name}":"'
    position = _PositionOf(_TABLE.c.body, mark)
    return case((position > 0, func.substr(_TABLE.c.body, position + len(mark), length)), else_="")


def _outcome() -> ColumnElement[str]:
    """Return the SQL for how a row's decision ended, or for its state while it is open."""
    outcome = func.coalesce(_DECISION.c.outcome, _DECISION.c.state)
    found = (
        select(outcome)
        .where(_DECISION.c.id == _in_body("decision", _ID_CHARACTERS))
        .scalar_subquery()
    )
    return func.coalesce(found, "")


SORTS: Final[Mapping[str, ColumnElement[Any]]] = {
    "at": _TABLE.c.number,
    "actor": _TABLE.c.actor,
    "action": _TABLE.c.action,
    "reason": _in_body("reason", _MAX_CHARACTERS),
    "outcome": _outcome(),
}
"""The columns by which rows can be sorted."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedRows:
    """The filter and the order of a listing."""

    q: str = ""
    """A part of anything in a row, or a search for its event: see `console.db.search`."""
    equal: Mapping[str, str] = field(default_factory=dict)
    """The wanted values, by column."""
    sort: str = "-at"
    """One of `SORTS`. With a minus before it, the order is descending."""


def insert_row(connection: Connection, row: AuditRow) -> None:
    """Append a row. Raises SQLAlchemy's `IntegrityError` if its number is taken."""
    values = {name: getattr(row, name) for name in AuditRow.__slots__}
    connection.execute(insert(_TABLE).values(values))


def write_head(connection: Connection, row: AuditRow) -> None:
    """Store number and hash of the newest row beside the audit. Raises SQLAlchemy's errors."""
    upsert(connection, _HEAD, [{"id": 1, "number": row.number, "hash": row.hash}])


def kept_head(connection: Connection) -> tuple[int, str] | None:
    """Return number and hash of the newest row that was ever written. The hash is empty if they
    were removed; None if the database is of a version without them.
    """
    if not inspect(connection).has_table(_HEAD.name):
        version = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
        return None if str(version) < _HEAD_REVISION else (0, "")
    found = connection.execute(select(_HEAD.c.number, _HEAD.c.hash)).first()
    return (0, "") if found is None else (found.number, found.hash)


def last_row(connection: Connection) -> AuditRow | None:
    """Return the newest row, or None."""
    found = connection.execute(select(_TABLE).order_by(_TABLE.c.number.desc()).limit(1)).first()
    return None if found is None else _row(found)


def rows_after(
    connection: Connection, number: int, limit: int, *, event_id: str | None = None
) -> list[AuditRow]:
    """Return up to `limit` rows after a number, the oldest first. With `event_id` they are only
    those of that event.
    """
    query = select(_TABLE).where(_TABLE.c.number > number)
    if event_id is not None:
        query = query.where(_TABLE.c.event_id == event_id)
    found = connection.execute(query.order_by(_TABLE.c.number).limit(limit))
    return [_row(each) for each in found]


def found_rows(
    connection: Connection, wanted: WantedRows, *, limit: int, skip: int
) -> list[AuditRow]:
    """Return the wanted rows in their order."""
    column = SORTS[wanted.sort.removeprefix("-")]
    order = [column.desc(), _TABLE.c.number.desc()] if wanted.sort.startswith("-") else [column]
    query = _with_filters(select(_TABLE), wanted).order_by(*order, _TABLE.c.number)
    return [_row(each) for each in connection.execute(query.limit(limit).offset(skip))]


def count_rows(connection: Connection, wanted: WantedRows) -> int:
    """Return how many rows are wanted."""
    found: int = (
        connection.scalar(_with_filters(select(func.count()).select_from(_TABLE), wanted)) or 0
    )
    return found


def _with_filters(query: Select[Any], wanted: WantedRows) -> Select[Any]:
    for name, value in wanted.equal.items():
        if name == "event_id":  # in any case
            query = query.where(func.lower(_TABLE.c.event_id) == value.lower())
        else:
            query = query.where(_TABLE.c[name] == value)
    if wanted.q:
        q = json.dumps(wanted.q.lower(), ensure_ascii=False)[1:-1]
        found: list[ColumnElement[bool]] = [_TABLE.c.event_id.in_(ids_found(wanted.q))]
        if tag_of(wanted.q) is None and not is_pattern(wanted.q):
            found.append(func.lower(_TABLE.c.body).contains(q, autoescape=True))
        query = query.where(or_(*found))
    return query


def actions(connection: Connection) -> list[str]:
    """Return every action that any row of the audit has."""
    query = select(_TABLE.c.action).distinct().order_by(_TABLE.c.action)
    return list(connection.scalars(query))


def _row(found: Row[Any]) -> AuditRow:
    return AuditRow(**{name: getattr(found, name) for name in AuditRow.__slots__})
