"""Identifies the caller of a request: by its token, its session or a proxy's header, never by two
of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from starlette.datastructures import Headers

from console.access.cookies import Cookies
from console.access.login import Login
from console.access.people import Person, local_person, proxied_person, roles_of
from console.access.refused_attempts import RefusedAttempts
from console.access.sessions import Sessions
from console.access.tokens import Tokens, token_hash
from console.config.settings import ConsoleSettings
from console.db.connection.opening import Database

CALLBACK = "/login/callback"
"""The path to which the provider sends people back; it is registered at the provider."""


class BadTokenError(Exception):
    """The bearer token is unknown, has ended, or was revoked; the error does not say which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A person, with the hash of the token or the session that proves it, if there is one."""

    person: Person
    token: str | None = None
    session: str | None = None


class Access:
    """Identifies the callers of a running console; used on the event loop."""

    def __init__(
        self, settings: ConsoleSettings, database: Database, clock: Callable[[], float] = time.time
    ) -> None:
        self._settings = settings
        self._local = local_person()
        self.tokens = Tokens(database, clock)
        self.refused_attempts = RefusedAttempts(database, clock)
        self.sessions = Sessions(database, settings.login, clock)
        self.cookies = Cookies(settings)
        self.login: Login | None = None
        if settings.login.mode == "oidc":
            self.login = Login(settings.login, redirect_uri=callback_of(settings), clock=clock)

    async def identify(self, headers: Headers, peer: str) -> Identity | None:
        """Return who makes a request; None if it has no valid session or header. `peer` is the
        address of the connection. If there is a bearer token, only that is checked. Raises
        `BadTokenError`, and `DatabaseFailedError` if the database does not answer.
        """
        if (text := _bearer(headers)) is not None:
            person = await self.tokens.person(text)
            if person is None:
                raise BadTokenError
            return Identity(person=person, token=token_hash(text))
        login = self._settings.login
        if login.mode == "none":
            return Identity(person=self._local)
        if login.mode == "proxy":
            proxied = proxied_person(login, self._settings.roles, peer=peer, headers=headers)
            return None if proxied is None else Identity(person=proxied)
        return await self._from_session(self.cookies.session_in(headers))

    async def _from_session(self, value: str | None) -> Identity | None:
        """Return whose session a cookie opens; the roles are those of the current settings."""
        session = None if value is None else await self.sessions.find(value)
        if session is None:
            return None
        roles = roles_of(self._settings.roles, user=session.name, groups=session.groups)
        return Identity(person=Person(name=session.name, roles=roles), session=session.hash)

    async def ended(self, identities: Iterable[Identity]) -> set[Identity]:
        """Return those of these identities whose token or session is no longer valid. Raises
        `DatabaseFailedError`.
        """
        over = set()
        several = list(identities)
        for each in several:
            if each.token is not None and await self.tokens.row(each.token) is None:
                over.add(each)
        sessions = {each.session for each in several if each.session is not None}
        gone = await self.sessions.ended(sessions)
        return over | {each for each in several if each.session in gone}


def callback_of(settings: ConsoleSettings) -> str:
    """Return the redirect URI that has to be registered at the provider."""
    return (settings.public_url or f"http://{settings.listen}") + CALLBACK


def _bearer(headers: Headers) -> str | None:
    """Return the bearer token of a request, or None. Raises `BadTokenError` for two."""
    given = headers.getlist("authorization")
    tokens = [each for each in given if each[:7].lower() == "bearer "]
    if not tokens:
        return None
    if len(given) > 1:
        raise BadTokenError
    return tokens[0][7:].strip()
