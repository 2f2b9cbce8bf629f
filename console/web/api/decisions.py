"""`POST /api/v1/events/{eventId}/approve` and `…/leave`, and the status of a command."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from http import HTTPStatus
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from console.access.people import Person
from console.access.refused_attempts import attempt_at
from console.access.site_access import sees_event, sees_vm
from console.approvals.decision_requests import DecisionRequest, What
from console.approvals.refusal_reasons import REASONS, DecisionRefusedError
from console.db.decisions import decision_rows
from console.fleet.commands import command_item
from console.fleet.decisions import DecisionStatusName
from console.fleet.event_choice import choose_event
from console.fleet.event_view import EventDetail
from console.fleet.model import Model
from console.web.answers import Json, answer, as_json, refuse
from console.web.api import models
from console.web.api.events import event_detail
from console.web.api.operations import body_of
from console.web.app_state import AppState
from console.web.caller import person_of

_NO_COMMAND: Final = "there is no such command"


class AcceptedDecision(Model):
    """An accepted decision; `jti` is null while a second person is needed."""

    jti: str | None
    state: DecisionStatusName


class RefusedDecision(EventDetail):
    """The event as it is now, and the jti if it is being approved already."""

    error: str
    jti: str | None


class DecisionRoutes:
    """Answers requests for decisions by programs."""

    def __init__(self, state: AppState) -> None:
        self._state = state

    async def approve(self, request: Request, query: models.EventQuery) -> Response:
        """Approve an event: answer 202 `{jti, state}`; 409 with the event as it is now, 403, 404,
        422, 503.
        """
        body = await body_of(request, models.ApprovalBody)
        wanted = await self._request_of("approve", request, body, query.scope)
        return await self._decide(request, replace(wanted, force=body.force), status=202)

    async def leave(self, request: Request, query: models.EventQuery) -> Response:
        """Leave an event: answer 200 `{jti, state}`, or what `approve` answers."""
        body = await body_of(request, models.DecisionBody)
        wanted = await self._request_of("leave", request, body, query.scope)
        return await self._decide(request, wanted, status=200)

    async def end_turn(self, request: Request, query: models.EventQuery) -> Response:
        """End a turn: answer 200 with the event, or 204 if the console knows only the turn; 409 if
        its VMs hold no turn, or one that is not stuck.
        """
        person = person_of(request)
        event_id = request.path_params["eventId"]
        body = await body_of(request, models.TurnEndBody)
        try:
            await self._state.decisions.end_turn(
                person, event_id, body.reason, force=body.force, scope=query.scope
            )
        except DecisionRefusedError as refused:
            return await self._not_decided(request, refused, query.scope)
        detail = await asyncio.to_thread(self._detail, event_id, person, query.scope)
        return Response(status_code=204) if detail is None else answer(detail)

    def command(self, request: Request) -> Response:
        """Answer with a command and its history."""
        jti = request.path_params["jti"]
        person = person_of(request)
        if len(jti) > models.MAX_CHARACTERS or "\0" in jti:
            raise refuse(404, _NO_COMMAND)
        with self._state.snapshots.open() as snapshot:
            command = decision_rows.read_command(snapshot.connection, jti)
            if command is None:
                raise refuse(404, _NO_COMMAND)
            heard = snapshot.vms.find_vm(command.vm_id)
            if person.site is not None and (heard is None or not sees_vm(person, heard.vm)):
                raise refuse(404, _NO_COMMAND)
            receipts = decision_rows.receipts_of(snapshot.connection, [jti])
            decision = decision_rows.read_decision(snapshot.connection, command.decision_id)
        return answer(command_item(command, receipts, decision))

    async def _request_of(
        self, what: What, request: Request, body: models.DecisionBody, scope: str | None
    ) -> DecisionRequest:
        """Return what the person asks for."""
        person = person_of(request)
        event_id = request.path_params["eventId"]
        if scope is None and person.site is not None:
            scope = await asyncio.to_thread(self._own_scope, event_id, person)
        return DecisionRequest(
            what=what,
            person=person,
            event_id=event_id,
            fingerprint=body.fingerprint,
            reason=body.reason,
            scope=scope,
        )

    async def _decide(self, request: Request, wanted: DecisionRequest, *, status: int) -> Response:
        try:
            decided = await self._state.decisions.decide(wanted)
        except DecisionRefusedError as refused:
            return await self._not_decided(request, refused, wanted.scope)
        return answer(AcceptedDecision(jti=decided.jti, state=decided.state), status)

    async def _not_decided(
        self, request: Request, refused: DecisionRefusedError, scope: str | None
    ) -> Response:
        person = person_of(request)
        event_id = request.path_params["eventId"]
        detail = await asyncio.to_thread(self._detail, event_id, person, scope)
        if refused.reason == "site" and detail is None:
            # The person may not even learn that there is such an event; the audit has the attempt.
            attempt = attempt_at(request.scope, reason="other_site", actor=person.name)
            await self._state.access.refused_attempts.audit(attempt)
            refused = DecisionRefusedError("unknown")
        return self._refusal_answer(detail, refused)

    def _own_scope(self, event_id: str, person: Person) -> str | None:
        """Return the scope of the event that the person means, if the person sees only those of one
        site.
        """
        with self._state.snapshots.open() as snapshot:
            several = snapshot.events.events_with_id(event_id)
            found = choose_event(each for each in several if sees_event(person, each.event))
        return None if found is None else found.event.scope

    def _detail(self, event_id: str, person: Person, scope: str | None) -> EventDetail | None:
        """Return the event as it is now; None if the person does not see it."""
        with self._state.snapshots.open() as snapshot:
            return event_detail(snapshot, event_id, person, scope)

    def _refusal_answer(
        self, detail: EventDetail | None, refused: DecisionRefusedError
    ) -> Response:
        status = REASONS[refused.reason].status
        body: Json = {"error": str(refused)}
        if status == HTTPStatus.CONFLICT:
            body |= {} if detail is None else as_json(detail)
            body |= {"jti": refused.jti}
        return answer(body, status)
