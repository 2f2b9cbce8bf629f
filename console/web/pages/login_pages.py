"""The page for a request without a valid login: a sentence, and a button to log in or out."""

from __future__ import annotations

import time

from starlette.responses import Response

from console.config.settings import ConsoleSettings
from console.web.pages.rendering import Renderer

_TITLES = {
    401: "Not logged in",
    403: "Not permitted",
    503: "Not now",
}


class LoginPages:
    """Draws the page for requests without a valid login."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self._renderer = Renderer()
        self._is_oidc = settings.login.mode == "oidc"

    def answer(
        self, status: int, message: str, *, title: str | None = None, login: bool = False
    ) -> Response:
        """Return the page; `login` offers to log in, otherwise it offers to log out."""
        return self._renderer.answer(
            "login.html",
            now=time.time(),
            status=status,
            title=title or _TITLES.get(status, "Refused"),
            message=message[:1].upper() + message[1:],
            may_log_in=login and self._is_oidc,
            may_log_out=not login and self._is_oidc,
        )
