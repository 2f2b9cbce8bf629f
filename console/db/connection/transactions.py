"""Transactions, each with its number, that raise `DatabaseFailedError` with messages without
secrets.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sqlalchemy import Connection, Engine, select, text
from sqlalchemy.exc import SQLAlchemyError

from console.db.connection.errors import DatabaseFailedError, message_of
from console.db.connection.opening import Database
from console.db.schema import tables

_NEXT: Final = text("UPDATE change SET number = number + 1 WHERE id = 1 RETURNING number")


def next_change_number(connection: Connection) -> int:
    """Return the number of this transaction; on PostgreSQL this waits until other writers
    are done.
    """
    change_number: int = connection.execute(_NEXT).scalar_one()
    return change_number


def newest_change_number(connection: Connection) -> int:
    """Return the number of the last transaction."""
    change_number: int = connection.execute(select(tables.change.c.number)).scalar_one()
    return change_number


@contextmanager
def read_from(engine: Engine) -> Iterator[Connection]:
    """Open a transaction that reads. Raises `DatabaseFailedError` if that fails."""
    try:
        with engine.begin() as connection:
            yield connection
    except SQLAlchemyError as error:
        raise DatabaseFailedError(message_of(error)) from error


@contextmanager
def write_to(database: Database) -> Iterator[tuple[Connection, int]]:
    """Open a transaction that writes, with its number; other writers wait for its end. Raises
    `DatabaseFailedError`; then nothing was written.
    """
    try:
        with begin_write(database) as (connection, change_number):
            yield connection, change_number
    except SQLAlchemyError as error:
        raise DatabaseFailedError(message_of(error)) from error


@contextmanager
def begin_write(database: Database) -> Iterator[tuple[Connection, int]]:
    """Open a transaction that writes, as `write_to` does. Raises SQLAlchemy's errors."""
    with database.writing.begin() as connection:
        change_number = next_change_number(connection)
        database.continuity.begin_write(change_number)
        yield connection, change_number
        is_kept = connection.in_transaction()  # unless the caller has rolled it back
    if is_kept:
        database.continuity.end_write(change_number)
