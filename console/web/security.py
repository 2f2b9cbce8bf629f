"""Checks every request before it reaches a route: refuses foreign hosts, cross-site requests and
strangers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from console.access.identity import Access, BadTokenError, Identity
from console.access.people import Person
from console.access.refused_attempts import UNKNOWN, attempt_at, peer_of
from console.config.settings import ConsoleSettings
from console.db.connection.errors import DatabaseFailedError
from console.web.answers import DATABASE_FAILED, answer
from console.web.login import LOGIN, OPEN
from console.web.pages.login_pages import LoginPages

_SAFE: Final = ("GET", "HEAD", "OPTIONS")
_OPEN: Final = ("/healthz", "/readyz", "/metrics", "/openapi.json")
_OF_MACHINES: Final = ("/ingest/", "/pull/")
"""Paths that check their own signatures and tokens."""
_STATIC: Final = "/static/"
_API: Final = "/api/"
_OF_EVERY_SITE: Final = ("/api/v1/audit", "/api/v1/quarantine")
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; font-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
_HEADERS: Final = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_FORWARDING: Final = ("forwarded", "via", "x-client-ip", "x-real-ip", "x-original-for")
"""Headers that proxies add, besides everything that begins with X-Forwarded-."""
_DECIDES: Final = "approver"
_ADMIN: Final = "admin"
_VMS: Final = "/vms/"
_FORBIDDEN: Final = 403
_UNAUTHORIZED: Final = 401


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refusal:
    """The reason to refuse a request; if `reason` is set, the refusal becomes a row of the
    audit.
    """

    status: int
    message: str
    reason: str | None = None
    actor: str = UNKNOWN
    challenge: str | None = None


class Admission:
    """ASGI middleware around the whole application: admits requests or refuses them."""

    def __init__(
        self, app: ASGIApp, settings: ConsoleSettings, access: Access, pages: LoginPages
    ) -> None:
        self._app = app
        self._access = access
        self._hosts = _own_hosts(settings)
        self._pages = pages
        self._serves_this_machine_only = settings.login.mode == "none"
        self._leads = access.login is not None
        self._open = OPEN if self._leads else ()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer why it is refused."""
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        sending = _with_headers(send)
        try:
            found = await self._identify(scope, headers)
        except (
            DatabaseFailedError
        ):  # the log says why; strangers need not learn the database's address
            found = _Refusal(status=503, message=DATABASE_FAILED)
        if isinstance(found, _Refusal):
            if found.reason is not None:
                attempt = attempt_at(scope, reason=found.reason, actor=found.actor)
                await self._access.refused_attempts.audit(attempt)
            await self._answer(found, scope, headers)(scope, receive, sending)
            return
        if found is not None:
            scope.setdefault("state", {})["identity"] = found
            if scope["method"] not in _SAFE:
                sending = self._with_audit(scope, found.person.name, sending)
        await self._app(scope, receive, sending)

    async def _identify(self, scope: Scope, headers: Headers) -> Identity | _Refusal | None:
        """Return who makes a request, None for a path that is open to everybody, or a refusal.
        Raises `DatabaseFailedError`.
        """
        path = scope["path"]
        if (misdirected := self._address_refusal(scope, headers)) is not None:
            return misdirected
        if path in _OPEN or path.startswith((*_OF_MACHINES, _STATIC)):
            return None
        try:
            identity = await self._access.identify(headers, peer_of(scope))
        except BadTokenError:
            return _Refusal(
                status=_UNAUTHORIZED,
                message="this token is not known, has ended, or was revoked",
                reason="bad_token",
                challenge='Bearer error="invalid_token"',
            )
        if scope["method"] not in _SAFE and not _is_same_site(headers):
            return _Refusal(
                status=_FORBIDDEN,
                message="a request from another site is refused",
                reason=None if identity is None else "cross_site",
                actor=UNKNOWN if identity is None else identity.person.name,
            )
        return None if path in self._open else _without_right(identity, scope) or identity

    def _address_refusal(self, scope: Scope, headers: Headers) -> _Refusal | None:
        """Return a refusal for a request that may not come in this way, whoever makes it; None for
        any other.
        """
        if self._serves_this_machine_only and scope["path"].startswith(_OF_MACHINES):
            return None  # VMs may come through a proxy: each proves itself by its secret
        if not self._is_own(headers.get("host", ""), scope.get("server")):
            message = "this host name is not the console's; see SEB_CONSOLE_PUBLIC_URL"
            return _Refusal(status=421, message=message)
        if not _is_storable(scope):
            return _Refusal(status=400, message="this address has a NUL, which no name has")
        if self._serves_this_machine_only and _came_through_a_proxy(scope, headers):
            return _Refusal(
                status=_FORBIDDEN,
                message="without a login the console serves its own machine only, and this request "
                "came through a proxy; set SEB_CONSOLE_LOGIN__MODE to proxy or oidc",
                reason="through_proxy",
            )
        return None

    def _answer(self, found: _Refusal, scope: Scope, headers: Headers) -> Response:
        """Return JSON for programs, a page for people, and a redirect to the login for a person
        without one.
        """
        is_stranger = found.status == _UNAUTHORIZED and found.reason is None
        is_page = not scope["path"].startswith(_API) and scope["method"] in _SAFE
        # A fetch by a page's script cannot follow a redirect to another host.
        is_shown = headers.get("sec-fetch-dest", "document") == "document"
        if is_stranger and self._leads and is_page and is_shown:
            query = scope.get("query_string", b"").decode("latin-1")
            leads_to = scope["path"] + (f"?{query}" if query else "")
            address = f"{LOGIN}?leads_to={quote(leads_to, safe='')}"
            return RedirectResponse(address, 302, {"Cache-Control": "no-store"})
        if "text/html" in headers.get("accept", "") and not scope["path"].startswith(_API):
            return self._pages.answer(found.status, found.message, login=is_stranger)
        refused = answer({"error": found.message}, found.status)
        if found.challenge is not None:
            refused.headers["WWW-Authenticate"] = found.challenge
        return refused

    def _with_audit(self, scope: Scope, actor: str, send: Send) -> Send:
        """Return a `send` that writes a route's refusal for lack of a role to the audit before it
        is answered.
        """

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == _FORBIDDEN:
                attempt = attempt_at(scope, reason="not_allowed", actor=actor)
                await self._access.refused_attempts.audit(attempt)
            await send(message)

        return sending

    def _is_own(self, host: str, server: Any) -> bool:
        name = _name_of(host)
        if name is None:
            return False
        # Or the address that the connection came to: DNS rebinding cannot change an address.
        return name in self._hosts or (server is not None and name == str(server[0]))


def _without_right(identity: Identity | None, scope: Scope) -> _Refusal | None:
    """Return a refusal if the person may not see this path or send this form, or None."""
    if identity is None:
        return _Refusal(status=_UNAUTHORIZED, message="not logged in", challenge="Bearer")
    person = identity.person
    path = scope["path"]
    reason = "no_role"
    if not person.roles:
        message = f"there is no role for {person.name}; see SEB_CONSOLE_ROLES"
    elif person.site is not None and (path in _OF_EVERY_SITE or not path.startswith(_API)):
        message = "a token of one site reads the API only, and not what is of every site"
    elif _is_form(scope) and not _may_send(scope, person):
        message = "this needs the role approver; see SEB_CONSOLE_ROLES"
        reason = "not_allowed"
    else:
        return None
    return _Refusal(status=_FORBIDDEN, message=message, reason=reason, actor=person.name)


def _is_form(scope: Scope) -> bool:
    """Check whether a request is a form of the pages."""
    return scope["method"] not in _SAFE and not scope["path"].startswith(_API)


def _may_send(scope: Scope, person: Person) -> bool:
    """Check whether the person may send a form. All forms are decisions about events, except those
    of a VM's page, which an admin may send too.
    """
    is_of_vm = scope["path"].startswith(_VMS)
    return _DECIDES in person.roles or (is_of_vm and _ADMIN in person.roles)


def _came_through_a_proxy(scope: Scope, headers: Headers) -> bool:
    """Check whether a request shows that it came through a proxy."""
    # No browser, and no client of ours, speaks HTTP/1.0; nginx does unless it is told otherwise.
    if scope.get("http_version") == "1.0":
        return True
    return any(name.startswith("x-forwarded") or name in _FORWARDING for name in headers)


def _is_storable(scope: Scope) -> bool:
    """Check whether a database can search for the names in an address. The API checks its
    parameters itself.
    """
    query = b"" if scope["path"].startswith(_API) else scope.get("query_string", b"")
    return "\0" not in scope["path"] and b"%00" not in query


def _own_hosts(settings: ConsoleSettings) -> frozenset[str]:
    hosts = {settings.address[0].lower()}
    if settings.is_loopback:
        hosts |= {"localhost", "127.0.0.1", "::1"}
    if settings.public_url is not None:
        hosts.add((urlsplit(settings.public_url).hostname or "").lower())
    return frozenset(hosts)


def _name_of(host: str) -> str | None:
    """Return the host's name or address in a Host header; None if it has neither."""
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port
    except ValueError:
        return None
    good = parts.netloc == host and "@" not in host
    return parts.hostname if good else None


def _is_same_site(headers: Headers) -> bool:
    """Check that a request which changes something was not caused by another site. A browser always
    sends Sec-Fetch-Site; a program sends neither of the two headers.
    """
    site = headers.get("sec-fetch-site")
    origin = headers.get("origin")
    if site is not None:
        return site == "same-origin"
    return origin is None


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", []), *_HEADERS]
        await send(message)

    return sending
