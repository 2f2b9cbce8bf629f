"""Reads and writes many rows with few statements, in the same way on SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from typing import Any, Final, TypeVar

from sqlalchemy import ColumnElement, Connection, Select, Table, Tuple
from sqlalchemy.dialects import postgresql, sqlite

T = TypeVar("T")
Values = Mapping[str, Any]
AT_ONCE: Final = 5000
"""How many parameters one statement gets; SQLite takes 32,766, PostgreSQL 65,535."""
PAIRS_AT_ONCE: Final = 1000
"""How many pairs one statement gets."""


def insert_new(connection: Connection, table: Table, rows: Iterable[Values]) -> None:
    """Insert rows; a row whose key exists stays as it is."""
    if many := list(rows):
        connection.execute(_insert_statement(connection.dialect.name, table), many)


def upsert(connection: Connection, table: Table, rows: Iterable[Values]) -> None:
    """Insert rows, or replace those with the same key; each key once."""
    if many := list(rows):
        connection.execute(_upsert_statement(connection.dialect.name, table), many)


def insert_of(dialect: str, table: Table) -> Any:
    """Return the dialect's own insert, which supports conflicts."""
    return sqlite.insert(table) if dialect == "sqlite" else postgresql.insert(table)


def portions(values: Iterable[T], size: int = AT_ONCE) -> Iterator[Sequence[T]]:
    """Yield the values in portions that one statement takes."""
    rest = iter(values)
    while some := list(islice(rest, size)):
        yield some


def rows_in(
    connection: Connection, query: Select[Any], column: ColumnElement[Any], values: Iterable[Any]
) -> Iterator[Any]:
    """Yield the rows of a query whose column, or pair of columns, has one of these values."""
    size = PAIRS_AT_ONCE if isinstance(column, Tuple) else AT_ONCE
    for portion in portions(values, size):
        yield from connection.execute(query.where(column.in_(portion)))


@cache
def _insert_statement(dialect: str, table: Table) -> Any:
    return insert_of(dialect, table).on_conflict_do_nothing()


@cache
def _upsert_statement(dialect: str, table: Table) -> Any:
    statement = insert_of(dialect, table)
    keys = [column.name for column in table.primary_key]
    rest = {
        column.name: statement.excluded[column.name]
        for column in table.columns
        if column.name not in keys
    }
    return statement.on_conflict_do_update(index_elements=keys, set_=rest)
