"""Takes one record out of a request, and answers once it is committed."""

from __future__ import annotations

import asyncio
import queue
from typing import Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response

from console.intake.delivery import Delivery
from console.records.incoming import IncomingRecord
from console.records.parse import MAX_BYTES
from console.web.desk import Desk

BODY_SECONDS: Final = 20.0
_COMMIT_SECONDS: Final = 15.0
_RETRY_SECONDS: Final = 5


class NotTaken(Exception):
    """The request ends with this answer."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


def require_loaded(desk: Desk) -> None:
    """Raise `NotTaken` until the console knows whose secrets were revoked."""
    if not desk.loaded:
        raise NotTaken(503, "the console is reading its database")


async def read_body(request: Request) -> bytes:
    """The whole body. Raises `NotTaken` if it is too large, comes too slowly, or never ends."""
    length = request.headers.get("content-length", "")
    too_large = NotTaken(413, f"a record has at most {MAX_BYTES} bytes")
    if length.isdecimal() and int(length[:20]) > MAX_BYTES:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                body += part
                if len(body) > MAX_BYTES:
                    raise too_large
    except TimeoutError:
        raise NotTaken(408, f"the body did not come within {BODY_SECONDS:g} s") from None
    except ClientDisconnect:
        raise NotTaken(400, "the client has gone") from None
    return bytes(body)


async def commit(desk: Desk, record: IncomingRecord) -> None:
    """Return once the record is in the database. Raises `NotTaken` if that takes too long."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[bool] = loop.create_future()

    def done(stored: bool) -> None:  # noqa: FBT001  # as Delivery.done
        loop.call_soon_threadsafe(_answer, answer, stored)

    try:
        delivery = Delivery(source=record.source, items=[record], done=done, size=len(record.body))
        desk.writer.put(delivery, timeout=0)
        stored = await asyncio.wait_for(answer, _COMMIT_SECONDS)
    except (queue.Full, TimeoutError):
        stored = False
    if not stored:
        raise NotTaken(503, "the database does not take records now")


def refused(why: NotTaken) -> Response:
    """The answer that it names, in words for the log of a bridge."""
    headers = {"Retry-After": str(_RETRY_SECONDS)} if why.status == 503 else {}  # noqa: PLR2004
    if why.status == 408:  # noqa: PLR2004
        headers["Connection"] = "close"
    return PlainTextResponse(f"{why}\n", why.status, headers)


def _answer(answer: asyncio.Future[bool], stored: bool) -> None:  # noqa: FBT001
    if not answer.done():
        answer.set_result(stored)
