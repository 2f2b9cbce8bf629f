"""The console's two cookies: that of a session, and that of a browser's pending logins."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.responses import Response

from console.access.login import SECONDS
from console.config.settings import ConsoleSettings


class Cookies:
    """Sets and reads the cookies. If people use https, no other host can set them (`__Host-`)."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self._secure = (settings.public_url or "").startswith("https://")
        prefix = "__Host-" if self._secure else ""
        self._session = f"{prefix}seb-session"
        self._login = f"{prefix}seb-login"

    def session_in(self, headers: Headers) -> str | None:
        """Return the value of the session's cookie, or None."""
        return _cookies(headers).get(self._session) or None

    def login_in(self, headers: Headers) -> str | None:
        """Return the secret of a browser's pending logins, or None."""
        return _cookies(headers).get(self._login) or None

    def set_session(self, response: Response, value: str) -> None:
        """Set the session's cookie, for as long as the browser runs."""
        self._set(response, self._session, value, None)

    def set_login(self, response: Response, secret: str) -> None:
        """Set the cookie of pending logins, for as long as a login may take."""
        self._set(response, self._login, secret, SECONDS)

    def forget_session(self, response: Response) -> None:
        """Delete the session's cookie."""
        self._set(response, self._session, "", 0)

    def _set(self, response: Response, name: str, value: str, seconds: int | None) -> None:
        response.set_cookie(
            name,
            value,
            max_age=seconds,
            path="/",
            secure=self._secure,
            httponly=True,
            samesite="lax",
        )


def _cookies(headers: Headers) -> dict[str, str]:
    return cookie_parser("; ".join(headers.getlist("cookie")))
