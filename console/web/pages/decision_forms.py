"""Answers the forms with which people decide on the pages: each event is decided as in the API.

They sign nothing themselves, and never decide an event that is not as the person saw it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from console.access.people import Person
from console.approvals.decision_requests import DecisionRequest
from console.approvals.refusal_reasons import REASONS, DecisionRefusedError
from console.db.connection.errors import DatabaseFailedError
from console.web.app_state import AppState
from console.web.caller import person_of
from console.web.pages import decide_page, form_fields
from console.web.pages.decision_block import RejectedForm
from console.web.pages.formatting import plural
from console.web.pages.labels import heading_of

_GONE_ON: Final = ("sent", "second", "left", "already")
"""Outcomes after which the event's page shows the result."""
_CHANGED: Final = "The event has changed since you saw it. Nothing is signed and nothing is sent."
_NOT_TICKED: Final = "Tick at least one event: none is ticked beforehand."
_ALREADY: Final = "It is being approved already. Nothing more is sent."


@dataclass(frozen=True, slots=True, kw_only=True)
class FormResult:
    """The result of a decision on one event, with its word: sent, second, left, already, changed or
    refused.
    """

    kind: str
    message: str
    status: int = 409
    """The HTTP status if it was refused."""


_DONE: Final[Mapping[str, FormResult]] = {
    "approving": FormResult(kind="sent", message="Approved: a VM is being asked."),
    "approved": FormResult(kind="sent", message="Approved."),
    "second": FormResult(
        kind="second", message="Your approval is noted. A second person is needed."
    ),
    "left": FormResult(kind="left", message="Left until its time."),
}
ShowEvent = Callable[..., Response]
ShowPage = Callable[..., Response]


class DecisionForms:
    """Answers the POSTs of the pages; `show_event` draws an event's page, `show` a template."""

    def __init__(self, state: AppState, *, show_event: ShowEvent, show: ShowPage) -> None:
        self._decisions = state.decisions
        self._listing = decide_page.EventsToDecide(state)
        self._show_event = show_event
        self._show = show

    async def decide_one(self, request: Request) -> Response:
        """Carry out the form of an event's page and redirect to it, or show why it was not carried
        out.
        """
        event_id = request.path_params["event_id"]
        try:
            form = await form_fields.read(request)
        except form_fields.FormError as error:
            return await self._show_again(request, RejectedForm(problem=str(error)))
        if len(form.seen) != 1 or form.seen[0].event_id.lower() != event_id.lower():
            message = "The form is not of this event. Open the page again, and use its buttons."
            return await self._show_again(request, RejectedForm(problem=message))
        person = person_of(request)
        problem = self._reason_problem(form, person)
        if problem is not None:
            return await self._show_again(
                request, RejectedForm(problem=problem, reason=form.reason)
            )
        seen = form.seen[0]
        result = await self._decide(person, form.action, seen, form.reason)
        if result.kind in _GONE_ON:
            query = "" if seen.scope is None else f"?scope={quote(seen.scope, safe='')}"
            return RedirectResponse(f"/events/{quote(event_id, safe='')}{query}#decision", 303)
        changed = seen if result.kind == "changed" else None
        sent = RejectedForm(problem=result.message, reason=form.reason, seen=changed)
        return await self._show_again(request, sent, result.status)

    async def _show_again(
        self, request: Request, sent: RejectedForm, status: int = 422
    ) -> Response:
        return await asyncio.to_thread(self._show_event, request, sent, status)

    async def decide_several(self, request: Request) -> Response:
        """Carry out the form for several events: each is decided by itself, and each result is
        shown.

        Sending it again has no effect: an event that is being approved already stays as it is.
        """
        person = person_of(request)
        try:
            form = await form_fields.read(request)
        except form_fields.FormError as error:
            return await asyncio.to_thread(self._confirm, request, str(error))
        problem = problem_of(form.seen) or self._reason_problem(form, person)
        if problem is not None:
            return await asyncio.to_thread(self._confirm, request, problem, form.reason)
        results = [
            (seen, await self._decide(person, form.action, seen, form.reason)) for seen in form.seen
        ]
        return self._show(request, "decided.html", _results(form.action, results))

    async def _decide(
        self, person: Person, action: str, seen: form_fields.SeenEvent, reason: str
    ) -> FormResult:
        """Carry out one decision on an event as the person saw it."""
        try:
            if action == "end_turn":
                await self._decisions.end_turn(person, seen.event_id, reason, scope=seen.scope)
                return FormResult(kind="sent", message="Its turn has ended.")
            wanted = DecisionRequest(
                what="leave" if action == "leave" else "approve",
                person=person,
                event_id=seen.event_id,
                fingerprint=seen.fingerprint,
                reason=reason,
                scope=seen.scope,
                force=action == form_fields.FORCE,
            )
            decided = await self._decisions.decide(wanted)
        except DecisionRefusedError as refused:
            return _refusal_result(refused)
        except DatabaseFailedError as error:
            message = f"Nothing is signed, because the audit cannot be written: {error}"
            return FormResult(kind="refused", message=message, status=503)
        return _DONE[decided.state]

    def _reason_problem(self, form: form_fields.Form, person: Person) -> str | None:
        problem = form_fields.reason_problem(form.reason)
        # Somebody who may not decide is refused as one who may not, and the audit has a row of it.
        if problem is None and "approver" in person.roles:
            pattern = self._listing.change_pattern
            problem = form_fields.change_problem(form.action, form.reason, pattern)
        return problem

    def list(self, request: Request) -> Mapping[str, Any]:
        """Answer with the events that a filter finds, and how many, before they are decided."""
        return self._listing.template_values(request.query_params, person_of(request))

    def confirm(self, request: Request) -> Response:
        """Answer with the confirmation page: each event with its VMs and its fingerprint, one
        reason, two buttons.
        """
        return self._confirm(request, None)

    def _confirm(self, request: Request, problem: str | None, reason: str = "") -> Response:
        ticked = request.query_params.getlist(decide_page.TICKED)
        if len(ticked) > decide_page.MAX_EVENTS:
            problem = problem or f"At most {decide_page.MAX_EVENTS} events can be decided at once."
        values = self._listing.template_values(
            request.query_params, person_of(request), ticked[: decide_page.MAX_EVENTS]
        )
        if not ticked:
            values["problem"] = problem or _NOT_TICKED
            return self._show(request, "decide.html", values, 422)
        more = {"problem": problem, "typed": reason}
        return self._show(request, "confirm.html", values | more, 422 if problem else 200)


def _refusal_result(refused: DecisionRefusedError) -> FormResult:
    if refused.reason == "changed":
        return FormResult(kind="changed", message=_CHANGED)
    if refused.reason == "under_way":
        return FormResult(kind="already", message=_ALREADY)
    message = str(refused)
    return FormResult(
        kind="refused",
        message=f"{message[:1].upper()}{message[1:]}.",
        status=REASONS[refused.reason].status,
    )


def problem_of(seen: Sequence[form_fields.SeenEvent]) -> str | None:
    """Return why these events cannot be decided at once; None if they can."""
    if not seen:
        return _NOT_TICKED
    if len(seen) > decide_page.MAX_EVENTS:
        return f"At most {decide_page.MAX_EVENTS} events can be decided at once."
    if max(Counter((each.event_id, each.scope) for each in seen).values()) > 1:
        return "An event occurs twice in the form. Open the page again, and use its buttons."
    return None


def _results(
    action: str, results: Sequence[tuple[form_fields.SeenEvent, FormResult]]
) -> dict[str, Any]:
    """Return the values of the page with the results: a sentence, and a line for each event."""
    done = sum(result.kind in ("sent", "second", "left") for _, result in results)
    verb = "left until its time" if action == "leave" else "approved"
    if action == "leave" and done != 1:
        verb = "left until their times"
    return {
        "title": f"{done} of {plural(len(results), 'event')} {verb}",
        "is_left": action == "leave",
        "lines": [
            {
                "seen": seen,
                "heading": heading_of(seen.event_type, seen.names),
                "result": result,
            }
            for seen, result in results
        ],
    }
