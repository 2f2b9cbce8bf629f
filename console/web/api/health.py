"""`/healthz` and `/readyz`."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from console.web.app_state import AppState


class HealthRoutes:
    """Answers whether the console works."""

    def __init__(self, state: AppState) -> None:
        self._state = state

    async def alive(self, _request: Request) -> Response:
        """Answer 200 as long as the process answers: a restart helps only if it does not."""
        return PlainTextResponse("ok\n")

    async def ready(self, _request: Request) -> Response:
        """Answer 503 without the database. A source that is not connected is named, and the page
        still works. Strangers may ask, so reasons with addresses are only in the log and on the
        page.
        """
        if self._state.writer.progress.trouble is not None:
            return PlainTextResponse("the database does not answer; the log says why\n", 503)
        if not self._state.is_ready():
            return PlainTextResponse("the console is reading its database\n", 503)
        away = [
            f"source {source.name}: not connected; the log says why"
            for source in self._state.sources.values()
            if not source.is_connected
        ]
        return PlainTextResponse("\n".join(["ok", *away, ""]))
