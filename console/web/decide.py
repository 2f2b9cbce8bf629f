"""`POST /api/v1/events/{eventId}/approve` and `…/leave`, and what became of a command."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from console.access.people import Person
from console.access.refusals import attempt_at
from console.access.scope import sees_event, sees_vm
from console.decisions.refused import DecisionRefused, Why
from console.decisions.service import Answer
from console.web.answers import Json, answer, refuse
from console.web.desk import Desk
from console.web.events import Events
from console.web.security import person_of

STATUS: Final[dict[Why, int]] = {
    "role": 403,
    "site": 403,
    "second": 403,
    "reason": 422,
    "unknown": 404,
    "changed": 409,
    "under_way": 409,
    "no_witness": 409,
    "unproven": 409,
    "no_key": 503,
}
_MOST_BYTES: Final = 8 * 1024
_LONGEST: Final = 300
_FIELDS: Final = ("fingerprint", "reason")
Decide = Callable[[Person, str, str, str], Awaitable[Answer]]


class Deciding:
    """Answers to programs that decide."""

    def __init__(self, desk: Desk, events: Events) -> None:
        self._desk = desk
        self._events = events

    async def approve(self, request: Request) -> Response:
        """202 `{jti, state}`; 409 with the event as it is now, 403, 404, 422, 503."""
        return await self._decide(request, self._desk.decisions.approve, 202)

    async def leave(self, request: Request) -> Response:
        """200 `{jti, state}`; as `approve`."""
        return await self._decide(request, self._desk.decisions.leave, 200)

    async def command(self, request: Request) -> Response:
        """One command with its history."""
        jti = request.path_params["jti"]
        found = None
        if len(jti) <= _LONGEST and "\0" not in jti:
            found = await asyncio.to_thread(self._desk.decisions.command, jti)
        if found is None or not self._sees_command(person_of(request), found):
            raise refuse(404, "there is no such command")
        return answer(found)

    async def _decide(self, request: Request, decide: Decide, status: int) -> Response:
        person, event_id = person_of(request), request.path_params["eventId"]
        fingerprint, reason = await _body(request)
        try:
            made = await decide(person, event_id, fingerprint, reason)
        except DecisionRefused as refused:
            if refused.why == "site" and not self._sees(person, event_id):
                # It may not even learn that there is such an event; the audit does.
                attempt = attempt_at(request.scope, reason="other_site", actor=person.name)
                await self._desk.access.refusals.note(attempt)
                refused = DecisionRefused("unknown")
            return await self._refused(person, event_id, refused)
        return answer({"jti": made.jti, "state": made.state}, status)

    def _sees_command(self, person: Person, found: Json) -> bool:
        vm = self._desk.fleet.vms.get(found["vmId"])
        return person.site is None or (vm is not None and sees_vm(person, vm))

    def _sees(self, person: Person, event_id: str) -> bool:
        event = self._desk.fleet.events.get(event_id)
        return event is not None and sees_event(person, event)

    async def _refused(self, person: Person, event_id: str, refused: DecisionRefused) -> Response:
        status = STATUS[refused.why]
        told: Json = {"error": str(refused)}
        if status == STATUS["changed"]:
            told |= await self._events.detail(event_id, person) or {}
            told |= {"jti": refused.jti}
        return answer(told, status)


async def _body(request: Request) -> tuple[str, str]:
    """The fingerprint and the reason. Raises an answer of 413 or 422."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > _MOST_BYTES:
            raise refuse(413, f"a decision has at most {_MOST_BYTES} bytes")
    try:
        given: Any = json.loads(bytes(body), object_pairs_hook=_each_once)
    except (ValueError, RecursionError):
        raise refuse(422, 'send a JSON object {"fingerprint": "…", "reason": "…"}') from None
    if not isinstance(given, dict) or set(given) != set(_FIELDS):
        raise refuse(422, "a decision has just two fields: fingerprint and reason")
    for name in _FIELDS:
        text = given[name]
        if not isinstance(text, str) or not 0 < len(text) <= _LONGEST or not text.isprintable():
            raise refuse(422, f"{name} is one line of 1 to {_LONGEST} characters")
    return given["fingerprint"], given["reason"]


def _each_once(pairs: list[tuple[str, Any]]) -> Json:
    """An object in which no name stands twice: what a person has seen has one fingerprint."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice")
    return found
