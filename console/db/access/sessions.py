"""The rows of sessions and of successful logins; times are seconds since 1970."""

from __future__ import annotations

import json
from dataclasses import dataclass

from sqlalchemy import Connection, delete, insert, or_, select, update

from console.db.schema.access_tables import login, session


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRow:
    """One session as it is stored."""

    hash: str
    """SHA-256 of the cookie's value, in hexadecimal."""
    name: str
    groups: tuple[str, ...]
    started_at: float
    seen_at: float
    ends_at: float


def read_session(connection: Connection, hashed: str) -> SessionRow | None:
    """Return the session with this hash, or None. Raises SQLAlchemy's errors."""
    found = connection.execute(select(session).where(session.c.hash == hashed)).first()
    if found is None:
        return None
    return SessionRow(
        hash=found.hash,
        name=found.name,
        groups=tuple(json.loads(found.groups)),
        started_at=found.started_at,
        seen_at=found.seen_at,
        ends_at=found.ends_at,
    )


def valid_sessions(
    connection: Connection, hashes: list[str], *, now: float, seen_before: float
) -> set[str]:
    """Return those of these sessions that were neither deleted nor have expired. Raises
    SQLAlchemy's errors.
    """
    c = session.c
    good = (c.hash.in_(hashes), c.ends_at > now, c.seen_at > seen_before)
    return set(connection.execute(select(c.hash).where(*good)).scalars())


def insert_session(connection: Connection, row: SessionRow) -> None:
    """Insert a new session. Raises SQLAlchemy's errors."""
    connection.execute(
        insert(session).values(
            hash=row.hash,
            name=row.name,
            groups=json.dumps(row.groups),
            started_at=row.started_at,
            seen_at=row.seen_at,
            ends_at=row.ends_at,
        )
    )


def touch_session(connection: Connection, hashed: str, *, seen_at: float) -> None:
    """Note when the last request of the session came. Raises SQLAlchemy's errors."""
    connection.execute(update(session).where(session.c.hash == hashed).values(seen_at=seen_at))


def delete_session(connection: Connection, hashed: str) -> bool:
    """End a session; return whether there was one. Raises SQLAlchemy's errors."""
    return connection.execute(delete(session).where(session.c.hash == hashed)).rowcount > 0


def delete_past_sessions(connection: Connection, *, now: float, seen_before: float) -> None:
    """Delete expired sessions and logins. Raises SQLAlchemy's errors."""
    over = or_(session.c.ends_at <= now, session.c.seen_at <= seen_before)
    connection.execute(delete(session).where(over))
    connection.execute(delete(login).where(login.c.ends_at <= now))


def use_login(connection: Connection, hashed: str, *, ends_at: float) -> bool:
    """Note that a login has succeeded; return False if it had succeeded before. Raises SQLAlchemy's
    errors.
    """
    if connection.execute(select(login.c.hash).where(login.c.hash == hashed)).first() is not None:
        return False
    connection.execute(insert(login).values(hash=hashed, ends_at=ends_at))
    return True
