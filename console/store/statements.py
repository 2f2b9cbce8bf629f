"""Statements compiled once: SQLAlchemy's own way to run them costs more than the database does.

The tables stay the only place that names columns; what comes out is SQL in the driver's spelling.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, Final

from pydantic_core import to_json
from sqlalchemy import Connection, CursorResult, Dialect, LargeBinary, Table, text
from sqlalchemy.dialects import postgresql, sqlite

Pair = tuple[str, str]
Values = tuple[Any, ...]
"""Of a row, in the order of the table's columns."""
_SQLITE: Final = "sqlite"
_ROWS: Final = "rows"


def insert_new(connection: Connection, table: Table, values: Iterable[Values]) -> None:
    """Insert rows; one whose key is there already stays as it is."""
    if many := list(values):
        _run(connection, _inserting(connection.dialect, table), table, many)


def upsert(connection: Connection, table: Table, values: Iterable[Values]) -> None:
    """Insert rows, or put them in the place of those with the same key; each key once."""
    if many := list(values):
        _run(connection, _upserting(connection.dialect, table), table, many)


def select_in(
    connection: Connection, table: Table, column: str, values: Iterable[str]
) -> Sequence[Any]:
    """The rows of a table whose column is one of some texts."""
    if not (wanted := sorted(values)):
        return ()
    query = f'{_selecting(connection.dialect, table)} WHERE "{column}" '  # a name of ours
    return _among(connection, query, wanted).all()


def known_in(
    connection: Connection, table: Table, column: str, values: Iterable[str]
) -> Sequence[str]:
    """Those of some texts that a column of a table has."""
    if not (wanted := sorted(values)):
        return ()
    query = f'SELECT "{column}" FROM "{table.name}" WHERE "{column}" '  # noqa: S608  # ours
    return _among(connection, query, wanted).scalars().all()


def select_pairs(
    connection: Connection, table: Table, columns: Pair, pairs: Iterable[Pair]
) -> Sequence[Any]:
    """The rows of a table whose two columns are one of some pairs of texts."""
    if not (wanted := sorted(pairs)):
        return ()
    if connection.dialect.name == _SQLITE:
        of_json = "json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?)"
        given: tuple[Any, ...] = (json.dumps(wanted),)
    else:
        of_json = "* FROM unnest(%s::text[], %s::text[])"
        given = tuple(map(list, zip(*wanted, strict=True)))
    names = f'("{columns[0]}", "{columns[1]}")'  # of ours
    query = f"{_selecting(connection.dialect, table)} WHERE {names} IN (SELECT {of_json})"
    return connection.exec_driver_sql(query, given).all()


def _among(connection: Connection, query: str, wanted: list[str]) -> CursorResult[Any]:
    if connection.dialect.name == _SQLITE:
        query += " IN (SELECT value FROM json_each(?))"
        return connection.exec_driver_sql(query, (json.dumps(wanted),))
    return connection.exec_driver_sql(query + " = ANY(%s)", (wanted,))


def select_newer(connection: Connection, table: Table, number: int) -> Sequence[Any]:
    """The rows of a table that changed after the transaction of that number."""
    mark = "?" if connection.dialect.name == _SQLITE else "%s"
    query = f'{_selecting(connection.dialect, table)} WHERE "changed" > {mark}'  # a name of ours
    return connection.exec_driver_sql(query, (number,)).all()


def upsert_of(dialect: str, table: Table) -> Any:
    """The dialect's insert, which knows conflicts."""
    return sqlite.insert(table) if dialect == _SQLITE else postgresql.insert(table)


def _run(connection: Connection, query: str, table: Table, many: list[Values]) -> None:
    if connection.dialect.name == _SQLITE:
        connection.exec_driver_sql(query, many)
        return
    names = [str(column.name) for column in table.columns]  # not its own kind of text: JSON is slow
    objects = [dict(zip(names, row, strict=True)) for row in many]
    for name in (each.name for each in table.columns if isinstance(each.type, LargeBinary)):
        for each in objects:
            each[name] = "\\x" + each[name].hex()
    connection.exec_driver_sql(query, {_ROWS: to_json(objects).decode()})


def _into(dialect: Dialect, table: Table) -> Any:
    """An insert of many rows: on PostgreSQL in one statement, from one parameter.

    A statement for each row costs psycopg several times what it costs the server.
    """
    statement = upsert_of(dialect.name, table)
    if dialect.name == _SQLITE:
        return statement
    names = ", ".join(f'"{column.name}"' for column in table.columns)
    types = ", ".join(f'"{each.name}" {each.type.compile(dialect)}' for each in table.columns)
    source = f"json_to_recordset(CAST(:{_ROWS} AS json)) AS given ({types})"
    chosen = text(f"SELECT {names} FROM {source}").columns(*table.columns)  # noqa: S608  # ours
    return statement.from_select([column.name for column in table.columns], chosen)


@cache
def _inserting(dialect: Dialect, table: Table) -> str:
    statement = _into(dialect, table).on_conflict_do_nothing()
    return _compiled(dialect, table, statement)


@cache
def _upserting(dialect: Dialect, table: Table) -> str:
    statement = _into(dialect, table)
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
