"""Sessions of people: a random id in a cookie, and everything else in the database."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Collection
from typing import Final

from console.access.tokens import token_hash
from console.audit import audit_log
from console.config.login import LoginSettings
from console.db.access import sessions
from console.db.access.sessions import SessionRow
from console.db.connection.opening import Database
from console.db.connection.transactions import read_from, write_to
from sinks.shared.errors import SebError

_LOG: Final = logging.getLogger("console")
_FRESH_SECONDS: Final = 0.5
"""For how long a session that ended at another console may still be valid here."""
_MAX_REMEMBERED: Final = 1000
_TOUCHES: Final = 10
"""How many times at most the time of a session's last request is written within the idle time."""


class UsedLoginError(Exception):
    """The login has succeeded before: its answer was recorded, and is sent a second time."""


class Sessions:
    """The sessions of this database; used on the event loop."""

    def __init__(
        self, database: Database, login: LoginSettings, clock: Callable[[], float] = time.time
    ) -> None:
        self._database = database
        self._clock = clock
        self._whole = login.session_hours * 3600
        self._idle = login.idle_minutes * 60
        self._seen: dict[str, tuple[float, SessionRow]] = {}
        """Sessions by hash, with the monotonic time at which they were read."""

    async def start(self, name: str, groups: Collection[str], *, login: str, ends: str) -> str:
        """Start a session, and return the value of its cookie; the session `ends` is deleted.
        `login` is the secret of the login that led to it. Raises `UsedLoginError`,
        `DatabaseFailedError`.
        """
        value = secrets.token_urlsafe(32)
        now = self._clock()
        row = SessionRow(
            hash=token_hash(value),
            name=name,
            groups=tuple(groups),
            started_at=now,
            seen_at=now,
            ends_at=now + self._whole,
        )
        await asyncio.to_thread(self._insert, row, token_hash(login), token_hash(ends))
        self._seen.pop(token_hash(ends), None)
        return value

    async def find(self, value: str) -> SessionRow | None:
        """Return the session of a cookie's value; None if it is not valid. Raises
        `DatabaseFailedError`.
        """
        hashed = token_hash(value)
        read_at, row = self._seen.get(hashed, (float("-inf"), None))
        moment = time.monotonic()
        if moment - read_at >= _FRESH_SECONDS:
            row = await asyncio.to_thread(self._read_session, hashed)
        now = self._clock()
        if row is None or now >= row.ends_at or now - row.seen_at >= self._idle:
            self._seen.pop(hashed, None)
            return None
        if moment - read_at >= _FRESH_SECONDS:
            if now - row.seen_at >= self._idle / _TOUCHES:
                await asyncio.to_thread(self._touch, hashed, now)
            self._remember(moment, row)
        return row

    async def end(self, value: str) -> None:
        """Log out: end the session of the cookie's value. Raises `DatabaseFailedError`."""
        hashed = token_hash(value)
        await asyncio.to_thread(self._delete, hashed)
        self._seen.pop(hashed, None)

    async def ended(self, hashes: Collection[str]) -> set[str]:
        """Return those of these sessions that are no longer valid. Raises `DatabaseFailedError`."""
        if not hashes:
            return set()
        return set(hashes) - await asyncio.to_thread(self._valid, sorted(hashes))

    def _remember(self, moment: float, row: SessionRow) -> None:
        self._seen.pop(row.hash, None)
        self._seen[row.hash] = moment, row
        if len(self._seen) > _MAX_REMEMBERED:
            del self._seen[next(iter(self._seen))]

    def _insert(self, row: SessionRow, login: str, ends: str) -> None:
        with write_to(self._database) as (connection, _):
            sessions.delete_past_sessions(
                connection, now=row.started_at, seen_before=row.seen_at - self._idle
            )
            if not sessions.use_login(connection, login, ends_at=row.ends_at):
                raise UsedLoginError
            sessions.delete_session(connection, ends)
            sessions.insert_session(connection, row)
            audit_log.append(connection, at=row.started_at, actor=row.name, action="logged_in")

    def _read_session(self, hashed: str) -> SessionRow | None:
        with read_from(self._database.reading) as connection:
            return sessions.read_session(connection, hashed)

    def _valid(self, hashes: list[str]) -> set[str]:
        with read_from(self._database.reading) as connection:
            now = self._clock()
            seen_before = now - self._idle
            return sessions.valid_sessions(connection, hashes, now=now, seen_before=seen_before)

    def _touch(self, hashed: str, now: float) -> None:
        """Write the time of the last request. If that fails the session only ends earlier, so the
        request is not refused.
        """
        try:
            with write_to(self._database) as (connection, _):
                sessions.touch_session(connection, hashed, seen_at=now)
        except SebError as error:
            _LOG.warning("%s", error, extra={"action": "session_not_touched"})

    def _delete(self, hashed: str) -> None:
        with write_to(self._database) as (connection, _):
            row = sessions.read_session(connection, hashed)
            if row is not None and sessions.delete_session(connection, hashed):
                now = self._clock()
                audit_log.append(connection, at=now, actor=row.name, action="logged_out")
