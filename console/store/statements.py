"""Statements compiled once: SQLAlchemy's own way to run them costs more than the database does.

The tables stay the only place that names columns; what comes out is SQL in the driver's spelling.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, Final

from sqlalchemy import Connection, Dialect, Table
from sqlalchemy.dialects import postgresql, sqlite

Values = dict[str, Any]
_SQLITE: Final = "sqlite"


def insert_new(connection: Connection, table: Table, values: Iterable[Values]) -> None:
    """Insert rows; one whose key is there already stays as it is."""
    if many := list(values):
        _run(connection, _inserting(connection.dialect, table), table, many)


def upsert(connection: Connection, table: Table, values: Iterable[Values]) -> None:
    """Insert rows, or put them in the place of those with the same key."""
    if many := list(values):
        _run(connection, _upserting(connection.dialect, table), table, many)


def select_in(
    connection: Connection, table: Table, column: str, values: Iterable[str]
) -> Sequence[Any]:
    """The rows of a table whose column is one of some texts."""
    wanted = sorted(values)
    if not wanted:
        return ()
    if connection.dialect.name == _SQLITE:
        among = "IN (SELECT value FROM json_each(?))"
        given: tuple[Any, ...] = (json.dumps(wanted),)
    else:
        among, given = "= ANY(%s)", (wanted,)
    text = f'{_selecting(connection.dialect, table)} WHERE "{column}" {among}'  # a name of ours
    return connection.exec_driver_sql(text, given).all()


def upsert_of(dialect: str, table: Table) -> Any:
    """The dialect's insert, which knows conflicts."""
    return sqlite.insert(table) if dialect == _SQLITE else postgresql.insert(table)


def _run(connection: Connection, text: str, table: Table, many: list[Values]) -> None:
    if connection.dialect.name == _SQLITE:
        names = [column.name for column in table.columns]
        connection.exec_driver_sql(text, [tuple(row[name] for name in names) for row in many])
    else:
        connection.exec_driver_sql(text, many)


@cache
def _inserting(dialect: Dialect, table: Table) -> str:
    statement = upsert_of(dialect.name, table).on_conflict_do_nothing()
    return _compiled(dialect, table, statement)


@cache
def _upserting(dialect: Dialect, table: Table) -> str:
    statement = upsert_of(dialect.name, table)
    keys = [column.name for column in table.primary_key]
    rest = {
        column.name: statement.excluded[column.name]
        for column in table.columns
        if column.name not in keys
    }
    return _compiled(
        dialect, table, statement.on_conflict_do_update(index_elements=keys, set_=rest)
    )


@cache
def _selecting(dialect: Dialect, table: Table) -> str:
    return str(table.select().compile(dialect=dialect))


def _compiled(dialect: Dialect, table: Table, statement: Any) -> str:
    names = [column.name for column in table.columns]
    return str(statement.compile(dialect=dialect, column_keys=names))
