"""Answers as JSON, and errors as sentences."""

from __future__ import annotations

import json
import logging
from typing import Any, Final

from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

_LOG: Final = logging.getLogger("console")
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


def refuse(status: int, message: str) -> HTTPException:
    """Return the exception that answers with a status and a sentence."""
    return HTTPException(status, message)


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
