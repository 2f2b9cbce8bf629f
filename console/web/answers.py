"""Answers of the API: JSON, errors as sentences, and cursors."""

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
DATABASE_FAILED: Final = "the database failed; the console's log says why. Try again"
"""The text of an answer 503. Only the log has the address of the database."""
Json = dict[str, Any]


def answer(content: BaseModel | Any, status: int = 200) -> Response:
    """Return a JSON answer that is not cached, from a model or from plain values."""
    if isinstance(content, BaseModel):
        body = content.model_dump_json(by_alias=True).encode()
    else:
        body = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
    return Response(body, status, {"Cache-Control": "no-store"}, "application/json")


def as_json(model: BaseModel) -> Json:
    """Return the JSON value of a model: names in camelCase, times as text."""
    return model.model_dump(by_alias=True)


def refuse(status: int, words: str) -> HTTPException:
    """Return the exception that answers with a status and a sentence."""
    return HTTPException(status, words)


async def on_error(_request: Request, error: Exception) -> Response:
    """Answer `{"error": …}` to a refusal."""
    assert isinstance(error, HTTPException)  # noqa: S101  # it is registered for nothing else
    refused = answer({"error": error.detail}, error.status_code)
    refused.headers.update(error.headers or {})
    return refused


async def on_store_error(_request: Request, error: Exception) -> Response:
    """Answer 503: the database cannot be read now. Only the log has its address."""
    _LOG.warning("%s", error, extra={"action": "request_without_database"})
    return answer({"error": DATABASE_FAILED}, 503)


def place_in(text: str | None, *kinds: type) -> list[Any] | None:
    """Return where a listing continues, from a text that `cursor` made; it must have values of
    these types.
    """
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
    """Check whether a database can store a value from JSON, which allows more."""
    if isinstance(value, str):
        return is_text(value)
    return -_FARTHEST <= value <= _FARTHEST


def is_text(value: str) -> bool:
    """Check whether both databases can store a text: without NUL and without half a
    surrogate pair.
    """
    return "\0" not in value and not any("\ud800" <= sign <= "\udfff" for sign in value)


def cursor(*values: object) -> str:
    """Return these values as text for the field `next` of a listing."""
    return base64.urlsafe_b64encode(json.dumps(values).encode()).decode().rstrip("=")
