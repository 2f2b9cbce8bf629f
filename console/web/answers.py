"""Answers and questions of the API: JSON, errors in words, and cursors."""

from __future__ import annotations

import base64
import binascii
import json
import logging
from typing import Any, Final

from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

_LOG: Final = logging.getLogger("console")
_FARTHEST: Final = 1e18
DATABASE_FAILED: Final = "the database did not do it; the console's log says why. Try again"
"""An answer 503. Where the database is stands in the log alone."""
Json = dict[str, Any]


def answer(content: BaseModel | Any, status: int = 200) -> Response:
    """A JSON answer that no cache keeps, from a model or from plain values."""
    if isinstance(content, BaseModel):
        body = content.model_dump_json(by_alias=True).encode()
    else:
        body = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
    return Response(body, status, {"Cache-Control": "no-store"}, "application/json")


def as_json(model: BaseModel) -> Json:
    """A model as JSON has it: names in camelCase, times as text."""
    return model.model_dump(by_alias=True)


def refuse(status: int, words: str) -> HTTPException:
    """The exception that answers with a status and a sentence."""
    return HTTPException(status, words)


async def on_error(_request: Request, error: Exception) -> Response:
    """`{"error": …}` for every refusal."""
    assert isinstance(error, HTTPException)  # noqa: S101  # it is registered for nothing else
    refused = answer({"error": error.detail}, error.status_code)
    refused.headers.update(error.headers or {})
    return refused


async def on_store_error(_request: Request, error: Exception) -> Response:
    """503: what is past cannot be read now. Where the database is stands in the log alone."""
    _LOG.warning("%s", error, extra={"action": "request_without_database"})
    return answer({"error": DATABASE_FAILED}, 503)


def place_in(text: str | None, *kinds: type) -> list[Any] | None:
    """Where a listing goes on, from what `cursor` made: values of those kinds."""
    if not text:
        return None
    try:
        found = json.loads(base64.urlsafe_b64decode(text.encode() + b"==="))
    except (ValueError, binascii.Error, RecursionError):
        found = None
    fits = isinstance(found, list) and len(found) == len(kinds)
    if not fits or not all(map(isinstance, found, kinds)) or not all(map(_is_storable, found)):
        raise refuse(422, "cursor is not one that this API gave as `next`")
    return list(found)


def _is_storable(value: str | float) -> bool:
    """Whether a database takes it; JSON can write what neither has."""
    if isinstance(value, str):
        return is_text(value)
    return -_FARTHEST <= value <= _FARTHEST


def is_text(value: str) -> bool:
    """Whether both databases can hold it: without NUL and without half a surrogate pair."""
    return "\0" not in value and not any("\ud800" <= sign <= "\udfff" for sign in value)


def cursor(*values: object) -> str:
    """What `next` holds."""
    return base64.urlsafe_b64encode(json.dumps(values).encode()).decode().rstrip("=")
