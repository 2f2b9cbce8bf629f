"""`POST /ingest/v1/records`: one signed record per request, answered once it is committed."""

from __future__ import annotations

import asyncio
import queue
from typing import Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from console.intake.delivery import Delivery
from console.records.parse import MAX_BYTES, NotOurs, parse_record
from console.sources.enrolment import webhook_secret
from console.sources.signature import NotSigned, verify
from console.web.desk import Desk

_COMMIT_SECONDS: Final = 15.0
_RETRY_SECONDS: Final = "5"


class Ingest:
    """The webhook source's side of the server."""

    def __init__(self, desk: Desk, source: str) -> None:
        self._desk = desk
        self._source = source

    async def post(self, request: Request) -> Response:
        """204 after the commit, 400 not a record, 401 not signed, 413 too large, 503 not now."""
        body = await _body(request)
        if body is None:
            return _told(413, f"a record has at most {MAX_BYTES} bytes")
        now = self._desk.now()
        try:
            record = parse_record(body, source=self._source, received_at=now)
        except NotOurs as error:
            self._desk.writer.progress.quarantined[(self._source, error.reason)] += 1
            return _told(400, f"not a record: {error}")
        key = self._desk.enroll_key
        if key is None:
            return _told(503, "SEB_CONSOLE_ENROLL_KEY_FILE is not set: no VM is enrolled")
        try:
            secret = webhook_secret(key, record.place.vm_id)
            verify(request.headers, body, secret=secret, now=now)
        except NotSigned as error:
            return _told(401, str(error))
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[bool] = loop.create_future()

        def done(stored: bool) -> None:  # noqa: FBT001  # as Delivery.done
            loop.call_soon_threadsafe(_answer, answer, stored)

        try:
            delivery = Delivery(source=self._source, items=[record], done=done)
            self._desk.writer.put(delivery, timeout=0)
            stored = await asyncio.wait_for(answer, _COMMIT_SECONDS)
        except (queue.Full, TimeoutError):
            stored = False
        if not stored:
            return _told(503, "the database does not take records now", retry=True)
        return Response(status_code=204)


def _answer(answer: asyncio.Future[bool], stored: bool) -> None:  # noqa: FBT001
    if not answer.done():
        answer.set_result(stored)


async def _body(request: Request) -> bytes | None:
    """The body; None if it is too large, which is found before all of it is read."""
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > MAX_BYTES:
        return None
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_BYTES:
            return None
    return bytes(body)


def _told(status: int, text: str, *, retry: bool = False) -> Response:
    headers = {"Retry-After": _RETRY_SECONDS} if retry else None
    return PlainTextResponse(text + "\n", status, headers)
