"""Inserts of many rows that may be there already, the same on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Table
from sqlalchemy.dialects import postgresql, sqlite

T = TypeVar("T")
Values = Mapping[str, Any]
AT_ONCE: Final = 5000
"""Parameters in one statement; SQLite takes 32,766, PostgreSQL 65,535."""


def insert_new(connection: Connection, table: Table, rows: Iterable[Values]) -> None:
    """Insert rows; one whose key is there already stays as it is."""
    if many := list(rows):
        connection.execute(_inserting(connection.dialect.name, table), many)


def upsert(connection: Connection, table: Table, rows: Iterable[Values]) -> None:
    """Insert rows, or put them in the place of those with the same key; each key once."""
    if many := list(rows):
        connection.execute(_upserting(connection.dialect.name, table), many)


def insert_of(dialect: str, table: Table) -> Any:
    """The dialect's insert, which knows conflicts."""
    return sqlite.insert(table) if dialect == "sqlite" else postgresql.insert(table)


def portions(values: Iterable[T], size: int = AT_ONCE) -> Iterator[Sequence[T]]:
    """Values as often as one statement takes them."""
    rest = iter(values)
    while some := list(islice(rest, size)):
        yield some


@cache
def _inserting(dialect: str, table: Table) -> Any:
    return insert_of(dialect, table).on_conflict_do_nothing()


@cache
def _upserting(dialect: str, table: Table) -> Any:
    statement = insert_of(dialect, table)
    keys = [column.name for column in table.primary_key]
    rest = {
        column.name: statement.excluded[column.name]
        for column in table.columns
        if column.name not in keys
    }
    return statement.on_conflict_do_update(index_elements=keys, set_=rest)
