"""Receives the bodies of records: complete, in time, and not too many large ones at once."""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.datastructures import Headers
from starlette.types import Receive

from console.records.parse import MAX_BYTES

BODY_SECONDS: Final = 20.0
_SMALL_BYTES: Final = 8 * 1024
"""More than most records have."""
_MAX_LARGE_BYTES: Final = 32 * 1024 * 1024


class RequestError(Exception):
    """Ends a request; its status and sentence are the answer."""

    def __init__(self, status: int, message: str, *, retry_after: float | None = None) -> None:
        """`retry_after`: the seconds after which another try may succeed."""
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after


class RecordBodies:
    """The bodies that are being received; used on the event loop. Only a complete body shows who
    sent it, so strangers can send some too: all large ones together have one limit.
    """

    def __init__(self) -> None:
        self._large = 0
        """The bytes of incomplete bodies, without the part that each may have in any case."""

    async def read(self, headers: Headers, receive: Receive) -> bytes:
        """Return the complete body. Raises `RequestError` if it is too large, too slow, one of too
        many, or not complete.
        """
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length[:20]) > MAX_BYTES:
            raise _too_large()
        body = bytearray()
        more = True
        counted = 0
        try:
            async with asyncio.timeout(BODY_SECONDS):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise RequestError(400, "the client has gone")
                    body += message.get("body", b"")
                    more = message.get("more_body", False)
                    if len(body) > MAX_BYTES:
                        raise _too_large()
                    large = max(0, len(body) - _SMALL_BYTES)
                    self._large += large - counted
                    counted = large
                    if counted and self._large > _MAX_LARGE_BYTES:
                        raise RequestError(503, "too many large bodies come in at once")
        except TimeoutError:
            raise RequestError(408, f"the body did not come within {BODY_SECONDS:g} s") from None
        finally:
            self._large -= counted
        return bytes(body)


def _too_large() -> RequestError:
    return RequestError(413, f"a record has at most {MAX_BYTES} bytes")
