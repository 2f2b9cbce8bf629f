"""The rows of bearer tokens: their hashes, never the tokens themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, insert, select, update

from console.db.schema.access_tables import token


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRow:
    """One token as it is stored; times are seconds since 1970."""

    name: str
    hash: str
    """SHA-256 of the token, in hexadecimal."""
    role: str
    site: str | None
    made_by: str
    made_at: float
    ends_at: float
    revoked_at: float | None = None

    def is_good(self, now: float) -> bool:
        """Check whether the token is valid at that time."""
        return self.revoked_at is None and now < self.ends_at


def read_tokens(connection: Connection) -> list[TokenRow]:
    """Return every token, by name. Raises SQLAlchemy's errors."""
    return [_row(each) for each in connection.execute(select(token).order_by(token.c.name))]


def read_token(connection: Connection, name: str) -> TokenRow | None:
    """Return the token of that name, or None. Raises SQLAlchemy's errors."""
    found = connection.execute(select(token).where(token.c.name == name)).first()
    return None if found is None else _row(found)


def insert_token(connection: Connection, row: TokenRow, change_number: int) -> None:
    """Insert a new token. Raises SQLAlchemy's `IntegrityError` if its name is taken."""
    values = {name: getattr(row, name) for name in TokenRow.__slots__}
    connection.execute(insert(token).values(**values, change_number=change_number))


def revoke_token(connection: Connection, name: str, *, at: float, change_number: int) -> None:
    """Revoke a token at a time, in seconds since 1970. Raises SQLAlchemy's errors."""
    statement = update(token).where(token.c.name == name)
    connection.execute(statement.values(revoked_at=at, change_number=change_number))


def _row(found: Row[Any]) -> TokenRow:
    return TokenRow(**{name: getattr(found, name) for name in TokenRow.__slots__})
