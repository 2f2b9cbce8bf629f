"""Errors of the database, in words without secrets."""

from __future__ import annotations

from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from sinks.shared.errors import UnreachableError


class StoreError(UnreachableError):
    """The database did not do what it was asked; the same may work later."""


def words_of(error: SQLAlchemyError) -> str:
    """The database's own words: no statement, no parameters, no password."""
    original = error.orig if isinstance(error, DBAPIError) else None
    first = str(original or error).strip().splitlines()
    return f"database: {first[0] if first else type(error).__name__}"
