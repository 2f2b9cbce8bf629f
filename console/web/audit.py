"""`/api/v1/audit`: the audit's rows as JSON lines, the oldest first."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from console.audit import log
from console.audit.chain import as_json
from console.web.answers import limit_of, refuse
from console.web.desk import Desk
from sinks.record import canonical_json

_DIGITS = 18


class Audit:
    """Answers about the audit."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def listed(self, request: Request) -> Response:
        """Rows after the number `after`; the last one's number is the next `after`."""
        text = request.query_params.get("after", "") or "0"
        if not (text.isascii() and text.isdecimal() and len(text) <= _DIGITS):
            raise refuse(422, "after is the number of a row")
        rows = await asyncio.to_thread(
            log.read, self._desk.database.reading, after=int(text), limit=limit_of(request)
        )
        body = b"".join(canonical_json(as_json(row)) + b"\n" for row in rows)
        return Response(body, 200, {"Cache-Control": "no-store"}, "application/x-ndjson")
