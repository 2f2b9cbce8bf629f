"""`/api/v1/overview`, and whether the console is well."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from console.fleet import view
from console.fleet.moments import moment
from console.store import history
from console.web.answers import answer
from console.web.desk import Desk
from console.web.security import person_of


class Overview:
    """Answers about the whole, and about the console itself."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def shown(self, request: Request) -> Response:
        """How many VMs are heard, what is due, and whether the sources are connected."""
        desk, site = self._desk, person_of(request).site
        found = view.overview(desk.fleet, desk.now(), desk.ears(), desk.source_items(), site=site)
        return answer(found)

    async def quarantine(self, _request: Request) -> Response:
        """What was not a record of ours: by source and reason, the newest first."""
        found = await asyncio.to_thread(history.read_quarantine, self._desk.database.reading)
        items = [
            {
                "source": each.source,
                "reason": each.reason,
                "count": each.count,
                "firstAt": moment(each.first_at),
                "lastAt": moment(each.last_at),
                "message": each.message,
            }
            for each in found
        ]
        return answer({"items": items})

    async def healthy(self, _request: Request) -> Response:
        """200 while the process answers: a restart would not help against anything else."""
        return PlainTextResponse("ok\n")

    async def ready(self, _request: Request) -> Response:
        """503 without the database; a source that is away is told, and the page still serves."""
        trouble = self._desk.trouble()
        if trouble is not None:
            return PlainTextResponse(f"{trouble}\n", 503)
        away = [
            f"source {state.name}: {state.trouble}"
            for state in self._desk.sources.values()
            if not state.connected
        ]
        return PlainTextResponse("\n".join(["ok", *away, ""]))
