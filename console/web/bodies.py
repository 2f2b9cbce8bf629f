"""Receives the bodies of requests: complete, in time, and not too many large ones at once."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import Receive

from console.records.parse import MAX_BYTES
from console.web.answers import Json, refuse
from console.web.operations import problem_of

BODY_SECONDS: Final = 20.0
_SMALL_BYTES: Final = 8 * 1024
"""More than most records have."""
_MAX_LARGE_BYTES: Final = 32 * 1024 * 1024
_MAX_JSON_BYTES: Final = 8 * 1024
M = TypeVar("M", bound=BaseModel)


class RequestError(Exception):
    """Ends a request; its status and sentence are the answer."""

    def __init__(self, status: int, words: str, *, retry_after: float | None = None) -> None:
        """`retry_after`: the seconds after which another try may succeed."""
        super().__init__(words)
        self.status = status
        self.retry_after = retry_after


class Bodies:
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


async def body_of(request: Request, model: type[M]) -> M:
    """Return the body of a JSON request as a model. Raises an HTTP answer of 413 or 422."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > _MAX_JSON_BYTES:
            raise refuse(413, f"a decision has at most {_MAX_JSON_BYTES} bytes")
    try:
        given: Any = json.loads(bytes(body), object_pairs_hook=_each_once)
    except (ValueError, RecursionError):
        fields = ", ".join(f'"{name}": …' for name in model.model_fields)
        raise refuse(422, f"send a JSON object {{{fields}}}") from None
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise refuse(422, f"the body: {problem_of(error)}") from None


def _each_once(pairs: list[tuple[str, Any]]) -> Json:
    """Return a JSON object in which no name occurs twice: the fingerprint must not be ambiguous."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name occurs twice")
    return found
