"""Answers and questions of the API: JSON, errors in words, cursors, and checked parameters."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

DEFAULT_LIMIT: Final = 100
MOST: Final = 1000
_LONGEST: Final = 300
_FARTHEST: Final = 1e18
Json = dict[str, Any]


def answer(content: Any, status: int = 200) -> Response:
    """A JSON answer that no cache keeps."""
    body = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
    return Response(body, status, {"Cache-Control": "no-store"}, "application/json")


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
    """503: what is past cannot be read now."""
    return answer({"error": str(error)}, 503)


def limit_of(request: Request) -> int:
    """How many items are wanted."""
    text = request.query_params.get("limit", "")
    if not text:
        return DEFAULT_LIMIT
    if not (text.isascii() and text.isdecimal()) or not 1 <= int(text[:9]) <= MOST:
        raise refuse(422, f"limit is a whole number from 1 to {MOST}")
    return int(text)


def word_of(request: Request, name: str) -> str | None:
    """A parameter's text; None if it is not given or empty."""
    text = request.query_params.get(name, "").strip()
    if len(text) > _LONGEST or "\0" in text:
        raise refuse(422, f"{name} is longer than {_LONGEST} characters, or not text")
    return text or None


def choice_of(request: Request, name: str, choices: tuple[str, ...]) -> str | None:
    """A parameter that is one of some words."""
    text = word_of(request, name)
    if text is not None and text not in choices:
        raise refuse(422, f"{name} is one of {', '.join(choices)}")
    return text


def cursor_of(request: Request, *kinds: type) -> list[Any] | None:
    """Where a listing goes on, as `cursor` made it: values of those kinds."""
    text = request.query_params.get("cursor", "")
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
