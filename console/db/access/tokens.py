"""The rows of bearer tokens: their hashes, never the tokens themselves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Row, insert, select, update

from console.db.bulk import rows_in
from console.db.schema.access_tables import token

ACTOR_PREFIX: Final = "token:"
"""Prefix of a token's name where it stands in the place of a person's."""
_MAY_NOT_APPROVE: Final = "may not approve any more"


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

    def why_bad(self, now: float) -> str | None:
        """Return why nothing is approved in its name at that time, as the end of a sentence, or
        None.
        """
        if self.is_good(now):
            return None if self.role == "approver" else _MAY_NOT_APPROVE
        return "has expired" if self.revoked_at is None else "was revoked"


def read_tokens(connection: Connection) -> list[TokenRow]:
    """Return every token, by name. Raises SQLAlchemy's errors."""
    return [_row(each) for each in connection.execute(select(token).order_by(token.c.name))]


def read_token(connection: Connection, name: str) -> TokenRow | None:
    """Return the token of that name, or None. Raises SQLAlchemy's errors."""
    found = connection.execute(select(token).where(token.c.name == name)).first()
    return None if found is None else _row(found)


def bad_tokens(connection: Connection, actors: Iterable[str | None], now: float) -> dict[str, str]:
    """Return those of these actors that are tokens in whose name nothing is approved any more, each
    with the reason, as the end of a sentence. Raises SQLAlchemy's errors.
    """
    tokens = [each for each in actors if each is not None and each.startswith(ACTOR_PREFIX)]
    names = {each.removeprefix(ACTOR_PREFIX) for each in tokens}
    rows = rows_in(connection, select(token), token.c.name, names)
    known = {row.name: _row(row).why_bad(now) for row in rows}
    reasons = {ACTOR_PREFIX + name: known.get(name, _MAY_NOT_APPROVE) for name in names}
    return {actor: reason for actor, reason in reasons.items() if reason is not None}


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
