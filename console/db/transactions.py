"""Transactions that raise `StoreError`, with messages without secrets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from console.db.batches import next_number
from console.db.errors import StoreError, words_of
from console.db.opening import Database


@contextmanager
def read_from(engine: Engine) -> Iterator[Connection]:
    """Open a transaction that reads. Raises `StoreError` if the database does not answer."""
    try:
        with engine.begin() as connection:
            yield connection
    except SQLAlchemyError as error:
        raise StoreError(words_of(error)) from error


@contextmanager
def write_to(database: Database) -> Iterator[tuple[Connection, int]]:
    """Open a transaction that writes, with its number; other writers wait for its end. Raises
    `StoreError`; then nothing was written.
    """
    try:
        with database.writing.begin() as connection:
            yield connection, next_number(connection)
    except SQLAlchemyError as error:
        raise StoreError(words_of(error)) from error
