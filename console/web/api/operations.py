"""One operation of the API: its path, endpoint, query, body and answers. The route, the checks of a
request's parameters and body, and `/openapi.json` are made from it.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from inspect import iscoroutinefunction
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from console.web.answers import Json, refuse
from console.web.api.models import NoQuery
from sinks.shared.checked_settings import suggestion

Endpoint = Callable[..., Response] | Callable[..., Awaitable[Response]]
M = TypeVar("M", bound=BaseModel)
_UNKNOWN: Final = "extra_forbidden"
_MAX_BODY_BYTES: Final = 8 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A path with its method. `endpoint` is called with the request, and with the query if it has
    one.
    """

    path: str
    endpoint: Endpoint
    summary: str
    answers: Mapping[str, type[BaseModel] | None] = field(default_factory=dict)
    """The model of each answer by its status; None: text, or nothing with status 204."""
    query: type[BaseModel] = NoQuery
    body: type[BaseModel] | None = None
    """The model of a POST's body; a GET has none."""
    media_type: str = "application/json"

    @property
    def method(self) -> str:
        """The HTTP method: GET or POST."""
        return "GET" if self.body is None else "POST"

    def route(self) -> Route:
        """Return the route. Its endpoint gets only checked parameters."""
        return Route(self.path, checked(self.endpoint, self.query), methods=[self.method])


def checked(endpoint: Endpoint, query: type[BaseModel]) -> Endpoint:
    """Return an endpoint that checks the request's parameters before it calls this one."""

    def arguments(request: Request) -> tuple[BaseModel, ...]:
        found = query_of(request, query)
        return () if query is NoQuery else (found,)

    if iscoroutinefunction(endpoint):

        async def call(request: Request) -> Response:
            response: Response = await endpoint(request, *arguments(request))
            return response

        return call

    def call_on_a_thread(request: Request) -> Response:
        response = endpoint(request, *arguments(request))
        assert isinstance(response, Response)  # noqa: S101  # it is no coroutine function
        return response

    return call_on_a_thread


def query_of(request: Request, query: type[M]) -> M:
    """Return the parameters of a request. Raises an HTTP answer of 400 for an unknown name, 422 for
    a wrong value.
    """
    known = [each.alias or name for name, each in query.model_fields.items()]
    for name in request.query_params:
        if name not in known:
            likely = suggestion(name, known)
            raise refuse(400, f"there is no parameter {name[:100]!r} here{likely}")
    try:
        return query.model_validate(dict(request.query_params))
    except ValidationError as error:
        raise refuse(422, problem_of(error)) from None


async def body_of(request: Request, model: type[M], *, most: int = _MAX_BODY_BYTES) -> M:
    """Return the body of a JSON request as a model. Raises an HTTP answer of 413 if it has more
    than `most` bytes, or 422.
    """
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > most:
            raise refuse(413, f"the body has at most {most} bytes")
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


def problem_of(error: ValidationError) -> str:
    """Return a sentence about the first problem that does not repeat what was sent."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    name = ".".join(str(part) for part in first["loc"])
    if first["type"] == _UNKNOWN:
        return f"{name[:100]!r} is not a field"
    return f"{name}: {first['msg'][0].lower()}{first['msg'][1:]}" if name else first["msg"]


def is_storable(value: str) -> bool:
    """Check whether both databases can store a text: without NUL and without half a
    surrogate pair.
    """
    return "\0" not in value and not any("\ud800" <= sign <= "\udfff" for sign in value)
