"""The login at the OpenID provider, the return from it, and the logout."""

from __future__ import annotations

import logging
from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from console.access.identity import CALLBACK, Access
from console.access.login import Login, LoginError
from console.access.refused_attempts import attempt_at
from console.access.sessions import UsedLoginError
from console.audit.limiter import AuditLimiter
from console.db.connection.errors import DatabaseFailedError
from console.web.app_state import AppState
from console.web.pages.login_pages import LoginPages

LOGIN: Final = "/login"
LOGGED_OUT: Final = "/logged-out"
LOGOUT: Final = "/logout"
OPEN: Final = (LOGIN, CALLBACK, LOGOUT, LOGGED_OUT)
"""The paths that people use before they are logged in."""
_LOG: Final = logging.getLogger("console")
_SEE_OTHER: Final = 303
_FOUND: Final = 302


class LoginRoutes:
    """The endpoints for the login, if the login mode is oidc."""

    def __init__(self, state: AppState, login: Login, pages: LoginPages) -> None:
        self._access: Access = state.access
        self._login = login
        self._pages = pages
        self._logged = AuditLimiter()
        """A limit for the log: strangers may begin logins that fail."""

    def routes(self) -> list[Route]:
        """Return the routes for the login."""
        return [
            Route(LOGIN, self.begin),
            Route(CALLBACK, self.finish),
            Route(LOGOUT, self.end, methods=["POST"]),
            Route(LOGGED_OUT, self.ended),
        ]

    async def begin(self, request: Request) -> Response:
        """Redirect the browser to the provider."""
        cookies = self._access.cookies
        try:
            begun = await self._login.begin(
                cookies.login_in(request.headers), request.query_params.get("leads_to", "")
            )
        except LoginError as error:
            return await self._refuse(request, error)
        response = _redirect(begun.address, _FOUND)
        cookies.set_login(response, begun.secret)
        return response

    async def finish(self, request: Request) -> Response:
        """Start a session for the person who comes back from the provider."""
        cookies = self._access.cookies
        secret = cookies.login_in(request.headers)
        try:
            found = await self._login.finish(request.query_params, secret)
            value = await self._access.sessions.start(
                found.name,
                found.groups,
                login=found.login,
                ends=cookies.session_in(request.headers) or "",
            )
        except UsedLoginError:
            message = "this login has been used already; log in again"
            response = await self._refuse(request, LoginError(message, reason="replayed"))
        except DatabaseFailedError:
            response = self._pages.answer(
                503, "logging in does not work now: the database does not answer"
            )
        except LoginError as error:
            response = await self._refuse(request, error)
        else:
            response = _redirect(found.leads_to, _SEE_OTHER)
            cookies.set_session(response, value)
        return response

    async def end(self, request: Request) -> Response:
        """Log out, and redirect to the page that says so."""
        value = self._access.cookies.session_in(request.headers)
        if value is not None:
            await self._access.sessions.end(value)
        response = _redirect(LOGGED_OUT, _SEE_OTHER)
        self._access.cookies.forget_session(response)
        return response

    async def ended(self, _request: Request) -> Response:
        """Answer with the page for a person who has just logged out."""
        message = "You are logged out of the console. The login provider may still know you."
        return self._pages.answer(200, message, title="Logged out", login=True)

    async def _refuse(self, request: Request, error: LoginError) -> Response:
        unwritten = self._logged.passes(error.reason)
        if unwritten is not None:
            fields = {"action": "login_refused", "reason": error.reason}
            _LOG.warning("%s", error, extra={**fields, "unwritten": unwritten or None})
        if error.status < 500:  # noqa: PLR2004  # what the provider or the console cannot do now
            attempt = attempt_at(request.scope, reason=f"login_{error.reason}")
            await self._access.refused_attempts.audit(attempt)
        return self._pages.answer(error.status, str(error), login=True)


def _redirect(address: str, status: int) -> Response:
    return RedirectResponse(address, status, {"Cache-Control": "no-store"})
