"""Errors of the database, in messages without secrets."""

from __future__ import annotations

from typing import Final

from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from sinks.shared.errors import UnreachableError


class DatabaseFailedError(UnreachableError):
    """The database did not do what it was asked; the same request may succeed later."""


def message_of(error: SQLAlchemyError) -> str:
    """Return the database's own message: no statement, no parameters, no password."""
    original = error.orig if isinstance(error, DBAPIError) else None
    first = str(original or error).strip().splitlines()
    return f"database: {first[0] if first else type(error).__name__}"


# Parts of messages of PostgreSQL or its client, and the remedy; the first that matches is used. The
# last is for all other messages, and for a server with another language.
_REMEDIES: Final = (
    (
        ("connection refused", "resolve host", "timeout", "timed out", "no such file", "no route"),
        "see that the server runs and that SEB_CONSOLE_DATABASE has its host and port",
    ),
    (
        ("pg_hba.conf",),
        "let this machine, user and database in there; or add ?sslmode=verify-full to the address",
    ),
    (
        ("password authentication", "no password", 'role "'),
        "put the user and the password right in SEB_CONSOLE_DATABASE (%40 in it stands for @)",
    ),
    (
        ('database "',),
        "make it with CREATE DATABASE … OWNER …, or put its name right in SEB_CONSOLE_DATABASE",
    ),
    (
        ("permission denied",),
        "give the database to the user as a superuser of the server: ALTER DATABASE … OWNER TO …",
    ),
    (
        (" ssl", "certificate"),
        "see sslmode and sslrootcert in SEB_CONSOLE_DATABASE, and whether the server has TLS",
    ),
    (("",), "see whether SEB_CONSOLE_DATABASE is right: host, port, database, user, password"),
)


def remedy_of(message: str) -> str:
    """Return what a person should do about a message of PostgreSQL, as `message_of` returns it."""
    lowered = message.lower()
    return next(remedy for signs, remedy in _REMEDIES if any(each in lowered for each in signs))
