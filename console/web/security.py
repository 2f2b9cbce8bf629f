"""The door: foreign hosts, cross-site requests and strangers end here, before any route."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from console.config.settings import Settings
from console.web.answers import answer
from console.web.people import Person, local_person, proxied_person

_SAFE: Final = ("GET", "HEAD", "OPTIONS")
_OPEN: Final = ("/healthz", "/readyz", "/metrics", "/openapi.json")
_OF_MACHINES: Final = ("/ingest/", "/pull/")
"""Paths that look at their own signatures and tokens."""
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; font-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
_HEADERS: Final = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)


def person_of(request: Request) -> Person:
    """Who makes a request that has come through the door."""
    person: Person = request.scope["state"]["person"]
    return person


class Door:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._settings = settings
        self._local = local_person()
        self._hosts = _own_hosts(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or answer why not."""
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        refusal = self._refusal(scope, headers)
        if refusal is None:
            await self._app(scope, receive, _with_headers(send))
        else:
            status, words = refusal
            await answer({"error": words}, status)(scope, receive, _with_headers(send))

    def _refusal(self, scope: Scope, headers: Headers) -> tuple[int, str] | None:
        if not self._is_own(headers.get("host", ""), scope.get("server")):
            return 421, "this host name is not the console's; see SEB_CONSOLE_PUBLIC_URL"
        path, method = scope["path"], scope["method"]
        if path in _OPEN or path.startswith(_OF_MACHINES):
            return None
        if method not in _SAFE and not _is_same_site(headers):
            return 403, "a request from another site is refused"
        person = self._person(scope, headers)
        if person is None:
            return 401, "not logged in"
        if not person.roles:
            return 403, f"{person.name} has no role here; see SEB_CONSOLE_ROLES"
        scope.setdefault("state", {})["person"] = person
        return None

    def _person(self, scope: Scope, headers: Mapping[str, str]) -> Person | None:
        login = self._settings.login
        if login.mode == "none":
            return self._local
        if login.mode == "proxy":
            peer = (scope.get("client") or ("", 0))[0]
            return proxied_person(login, self._settings.roles, peer=peer, headers=headers)
        return None

    def _is_own(self, host: str, server: Any) -> bool:
        name = _name_of(host)
        if name is None:
            return False
        # The address that the connection came to: an address cannot be rebound to another.
        return name in self._hosts or (server is not None and name == str(server[0]))


def _own_hosts(settings: Settings) -> frozenset[str]:
    hosts = {settings.address[0].lower()}
    if settings.is_loopback:
        hosts |= {"localhost", "127.0.0.1", "::1"}
    if settings.public_url is not None:
        hosts.add((urlsplit(settings.public_url).hostname or "").lower())
    return frozenset(hosts)


def _name_of(host: str) -> str | None:
    """The host's name or address in a Host header; None if it is none."""
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port
    except ValueError:
        return None
    good = parts.netloc == host and "@" not in host
    return parts.hostname if good else None


def _is_same_site(headers: Headers) -> bool:
    """Whether a request that changes something is not another site's doing.

    A browser always sends Sec-Fetch-Site; a program sends neither of the two headers.
    """
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None:
        return site == "same-origin"
    return origin is None


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", []), *_HEADERS]
        await send(message)

    return sending
