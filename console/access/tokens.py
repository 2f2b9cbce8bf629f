"""Bearer tokens of programs: made, revoked and checked.

A token is shown once. The database has its SHA-256 hash, which is enough for 256 random bits.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Callable
from hashlib import sha256
from typing import Final, cast

from console.access.people import Person
from console.audit import audit_log
from console.config.settings import Role
from console.db.access.tokens import (
    ACTOR_PREFIX,
    TokenRow,
    insert_token,
    read_token,
    read_tokens,
    revoke_token,
)
from console.db.connection.opening import Database
from console.db.connection.transactions import read_from, write_to
from console.errors import RefusedError
from console.fleet.moments import moment

PREFIX: Final = "sebc_"
"""The beginning of every token, so that a scanner of secrets finds one that was published."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_MAX_CHARACTERS: Final = 200
_DAY_SECONDS: Final = 86_400.0
_FRESH_SECONDS: Final = 0.5
"""For how long a token that was just revoked may still be valid."""
_UNKNOWN_SECONDS: Final = 0.1
"""An unknown token may be new: the table is read again, but not more often than this."""


def token_hash(text: str) -> str:
    """Return the hash under which the database has a token."""
    return sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def add_token(
    database: Database,
    name: str,
    *,
    role: Role,
    site: str | None,
    days: float,
    actor: str,
    now: float,
) -> str:
    """Make a token that ends after some days, and return it; it is not stored and not shown again.
    Raises `RefusedError` if the name is taken or not valid, `DatabaseFailedError`.
    """
    if _NAME.fullmatch(name) is None:
        raise RefusedError("a token's name has letters, digits, '.', '_' and '-', at most 100")
    if site is not None and (not site.isprintable() or not 0 < len(site) <= _MAX_CHARACTERS):
        raise RefusedError(f"a site's name has 1 to {_MAX_CHARACTERS} printable characters")
    text = PREFIX + secrets.token_urlsafe(32)
    row = TokenRow(
        name=name,
        hash=token_hash(text),
        role=role,
        site=site,
        made_by=actor,
        made_at=now,
        ends_at=now + days * _DAY_SECONDS,
    )
    with write_to(database) as (connection, change_number):
        if read_token(connection, name) is not None:
            raise RefusedError(
                f"there is a token called {name}, or there was one; choose another name: the audit "
                "names tokens, and each name stays one token's"
            )
        insert_token(connection, row, change_number)
        details = {"name": name, "role": role, "site": site, "ends_at": moment(row.ends_at)}
        audit_log.append(connection, at=now, actor=actor, action="token_added", **details)
    return text


def end_token(database: Database, name: str, *, actor: str, now: float) -> None:
    """Revoke a token; a token that is revoked already stays so. Raises `RefusedError` if no token
    has that name, `DatabaseFailedError`.
    """
    with write_to(database) as (connection, change_number):
        row = read_token(connection, name)
        if row is None:
            raise RefusedError(f"token {name} does not exist; see `seb console token list`")
        if row.revoked_at is None:
            revoke_token(connection, name, at=now, change_number=change_number)
            audit_log.append(connection, at=now, actor=actor, action="token_revoked", name=name)


def list_tokens(database: Database) -> list[TokenRow]:
    """Return every token that was ever made, by name. Raises `DatabaseFailedError`."""
    with read_from(database.reading) as connection:
        return read_tokens(connection)


class Tokens:
    """The valid tokens, at most half a second old; used on the event loop."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock
        self._rows: dict[str, TokenRow] = {}
        self._read_at = float("-inf")
        self._reading = asyncio.Lock()

    async def person(self, text: str) -> Person | None:
        """Return the program that a token belongs to; None if it is not valid. Raises
        `DatabaseFailedError`.
        """
        hashed = token_hash(text)
        row = await self.row(hashed)
        if row is None:
            return None
        role = cast("Role", row.role)
        name = ACTOR_PREFIX + row.name
        return Person(name=name, roles=frozenset({role}), site=row.site, is_token=True)

    async def row(self, hashed: str) -> TokenRow | None:
        """Return the valid token of a hash, or None. Raises `DatabaseFailedError`."""
        await self._refresh(_FRESH_SECONDS)
        if hashed not in self._rows:
            await self._refresh(_UNKNOWN_SECONDS)
        row = self._rows.get(hashed)
        return row if row is not None and row.is_good(self._clock()) else None

    async def _refresh(self, age: float) -> None:
        async with self._reading:
            now = time.monotonic()
            if now - self._read_at < age:
                return
            rows = await asyncio.to_thread(list_tokens, self._database)
            self._rows = {row.hash: row for row in rows}
            self._read_at = now
