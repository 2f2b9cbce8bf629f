"""The console's two kinds of cookie: of a session, and of a login under way."""

from __future__ import annotations

import base64
import binascii

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.responses import Response

from console.access.login import SECONDS, Begun, local_path, tag_of
from console.config.settings import Settings

_LONGEST = 4000
"""Browsers drop what is longer, without a word."""


class Cookies:
    """Sets and reads them. Where people come by https, no other host can set them (`__Host-`)."""

    def __init__(self, settings: Settings) -> None:
        self._secure = (settings.public_url or "").startswith("https://")
        prefix = "__Host-" if self._secure else ""
        self._session = f"{prefix}seb-session"
        self._login = f"{prefix}seb-login-"

    def session_in(self, headers: Headers) -> str | None:
        """The value of the session's cookie, if a request has one."""
        return _cookies(headers).get(self._session) or None

    def login_in(self, headers: Headers, state: str) -> tuple[str | None, str]:
        """The secret of the login that has a state, and where it leads to."""
        value = _cookies(headers).get(self._login + tag_of(state), "")
        secret, _, place = value.partition(".")
        try:
            leads_to = base64.urlsafe_b64decode(place).decode()
        except (ValueError, binascii.Error):
            leads_to = ""
        return secret or None, local_path(leads_to)

    def set_session(self, response: Response, value: str) -> None:
        """Until the browser ends, or the session at the console."""
        self._set(response, self._session, value, None)

    def set_login(self, response: Response, begun: Begun, leads_to: str) -> None:
        """For as long as a login may take."""
        place = base64.urlsafe_b64encode(local_path(leads_to).encode()).decode()
        value = f"{begun.secret}.{place}"
        if len(value) > _LONGEST:
            value = f"{begun.secret}."
        self._set(response, self._login + begun.tag, value, SECONDS)

    def forget_session(self, response: Response) -> None:
        """Take the session's cookie back."""
        self._set(response, self._session, "", 0)

    def forget_login(self, response: Response, state: str) -> None:
        """Take a login's cookie back."""
        self._set(response, self._login + tag_of(state), "", 0)

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
