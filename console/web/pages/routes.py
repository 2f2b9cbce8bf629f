"""The addresses of the pages, and their answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from urllib.parse import quote

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from console.access.people import Person
from console.db.connection.errors import DatabaseFailedError
from console.db.snapshot import Snapshots
from console.errors import RefusedError
from console.web.api.assignments import assign_event, assign_vm
from console.web.api.events import event_detail
from console.web.api.operations import problem_of
from console.web.api.vms import accept_as, retire_as
from console.web.app_state import AppState
from console.web.caller import person_of
from console.web.pages import (
    audit_page,
    connection_banner,
    decide_page,
    decision_block,
    event_page,
    fleet_page,
    form_fields,
    groups_page,
    history_page,
    overview_page,
    sibling_vms,
    vm_page,
)
from console.web.pages.decision_forms import DecisionForms
from console.web.pages.list_address import MAX_CHARACTERS
from console.web.pages.rendering import FILES, Renderer


class Pages:
    """The pages of a running console."""

    def __init__(self, state: AppState) -> None:
        self._state = state
        self._renderer = Renderer()
        self._chain = audit_page.Chain(state.database)
        self._forms = DecisionForms(
            state, show_event=self._event, show=self._answer_without_refresh
        )

    def routes(self) -> list[Route]:
        """Return the routes of the pages."""
        return [
            Route("/", self._page(self.overview, overview_page.PARAMETERS)),
            Route("/fleet", self._page(self.fleet, fleet_page.PARAMETERS)),
            Route("/events/{event_id:path}", self._page(self.event, ("scope",))),
            Route("/events/{event_id:path}", self._forms.decide_one, methods=["POST"]),
            Route("/decide", self._page(self.decide, decide_page.PARAMETERS)),
            Route(
                "/decide/confirm",
                self._page(self.confirm, decide_page.CONFIRM_PARAMETERS),
            ),
            Route("/decide/confirm", self._forms.decide_several, methods=["POST"]),
            Route("/vms/{vm_id}", self._page(self.vm)),
            Route("/vms/{vm_id}", self.retire, methods=["POST"]),
            Route("/vms/{vm_id}/accept", self.accept, methods=["POST"]),
            Route("/take/{kind}/{subject:path}", self.take, methods=["POST"]),
            Route("/history", self._page(self.history, history_page.PARAMETERS)),
            Route("/groups", self._page(self.groups)),
            Route("/audit", self.audit),
            Route("/static/{name}", self.file),
        ]

    def _page(
        self, draw: Callable[[Request], Response], parameters: Collection[str] = ()
    ) -> Callable[[Request], Response]:
        """Return a handler that draws a page, or answers with an error if the database does not
        answer or the address has a parameter that the page does not know. A filter with a typo must
        not show everything.
        """

        def drawn(request: Request) -> Response:
            try:
                return self._unknown_parameter_answer(request, parameters) or draw(request)
            except DatabaseFailedError as error:
                return self._unreadable(request, error)

        return drawn

    def overview(self, request: Request) -> Response:
        """Answer with the first page: pending events, their VMs, and silent VMs."""
        with self._state.snapshots.open() as snapshot:
            q = request.query_params.get("q", "").strip()[:MAX_CHARACTERS]
            values = overview_page.template_values(self._state, snapshot, q)
        return self._answer(request, "overview.html", values)

    def fleet(self, request: Request) -> Response:
        """Answer with every VM, as a table or as a map."""
        address = fleet_page.address_of(request.query_params)
        with self._state.snapshots.open() as snapshot:
            values = fleet_page.template_values(snapshot, address)
        return self._answer(request, "fleet.html", values)

    def history(self, request: Request) -> Response:
        """Answer with past events, as far as they are kept."""
        address = history_page.address_of(request.query_params)
        problem = None
        person = person_of(request)
        has_groups = bool(self._state.grouping.settings)
        with self._state.snapshots.open() as snapshot:
            try:
                values = history_page.template_values(
                    snapshot, address, person, has_groups=has_groups
                )
            except ValidationError as error:
                problem = problem_of(error)
                usual = history_page.address_of({})
                values = history_page.template_values(
                    snapshot, usual, person, has_groups=has_groups
                )
        status = 200 if problem is None else 422
        return self._answer(request, "history.html", values | {"problem": problem}, status)

    def event(self, request: Request) -> Response:
        """Answer with one event, and the form for a decision on it."""
        return self._event(request)

    def _event(
        self, request: Request, sent: decision_block.RejectedForm | None = None, status: int = 200
    ) -> Response:
        """Answer with an event's page; `sent`: a form that was not carried out."""
        state = self._state
        person = person_of(request)
        with state.snapshots.open() as snapshot:
            scope = request.query_params.get("scope")
            event = event_detail(snapshot, request.path_params["event_id"], person, scope)
            if event is None:
                message = (
                    "Nothing is known of an event of this id, or it is older than what is kept."
                )
                return self._missing_answer(request, "There is no such event", message)
            names = event_page.names_of(snapshot, event)
            (beside,) = sibling_vms.siblings(snapshot, [event], state.grouping, person)
        values = event_page.template_values(event, names, state.now()) | {"siblings": beside}
        values["decision"] = decision_block.template_values(
            event,
            person=person,
            settings=state.settings,
            has_key=state.decisions.signer is not None,
            name_of=lambda vm_id: names.get(vm_id, vm_id),
            sent=sent,
        )
        if sent is None:
            return self._answer(request, "event.html", values, status)
        return self._answer_without_refresh(request, "event.html", values, status)

    def decide(self, request: Request) -> Response:
        """Answer with the events that wait for a decision."""
        return self._answer(request, "decide.html", {**self._forms.list(request), "problem": None})

    def confirm(self, request: Request) -> Response:
        """Answer with several events, before they are decided at once."""
        return self._forms.confirm(request)

    def vm(self, request: Request) -> Response:
        """Answer with the page of one VM."""
        return self._vm(request)

    async def retire(self, request: Request) -> Response:
        """Retire a VM after the button on its page."""
        return await self._change_vm(request, form_fields.read_reason, retire_as)

    async def accept(self, request: Request) -> Response:
        """Accept what a VM in conflict reports, after the button on its page."""
        return await self._change_vm(request, form_fields.read_conflict, accept_as)

    async def _change_vm(
        self,
        request: Request,
        read: Callable[[Request], Awaitable[str]],
        change: Callable[[Snapshots, Person, str, str], tuple[int, str] | None],
    ) -> Response:
        """Carry out a form of a VM's page and redirect to that page, or show it with the reason why
        it was not carried out. `change` returns the status and the sentence of a refusal.
        """
        person = person_of(request)
        vm_id = request.path_params["vm_id"]
        try:
            given = await read(request)
        except form_fields.FormError as error:
            return await asyncio.to_thread(self._vm, request, str(error), 422)
        try:
            refused = await asyncio.to_thread(change, self._state.snapshots, person, vm_id, given)
        except (DatabaseFailedError, RefusedError) as error:
            refused = (503 if isinstance(error, DatabaseFailedError) else 404), str(error)
        if refused is not None:
            status, message = refused
            return await asyncio.to_thread(self._vm, request, f"Not done: {message}.", status)
        return RedirectResponse(f"/vms/{quote(vm_id, safe='')}", 303)

    async def take(self, request: Request) -> Response:
        """Assign an event or a VM to the person, or release it; redirect to its page."""
        person = person_of(request)
        subject = request.path_params["subject"]
        try:
            minutes = await form_fields.read_minutes(request)
        except form_fields.FormError as error:
            return self._missing_answer(request, "Nothing was taken", str(error))
        snapshots = self._state.snapshots
        address = quote(subject, safe="")
        if request.path_params["kind"] == "event":
            scope = request.query_params.get("scope")
            done = await asyncio.to_thread(assign_event, snapshots, person, subject, scope, minutes)
            address = f"/events/{address}" + (f"?scope={quote(scope, safe='')}" if scope else "")
        else:
            done = await asyncio.to_thread(assign_vm, snapshots, person, subject, minutes)
            address = f"/vms/{address}"
        if not done:
            return self._missing_answer(
                request, "Nothing was taken", "There is no such event or VM."
            )
        return RedirectResponse(address, 303)

    def _vm(self, request: Request, problem: str | None = None, status: int = 200) -> Response:
        """Answer with a VM's page; `problem`: why its form was not carried out."""
        person = person_of(request)
        with self._state.snapshots.open() as snapshot:
            heard = snapshot.vms.find_vm(request.path_params["vm_id"])
            values = None if heard is None else vm_page.template_values(snapshot, heard)
        if values is None:
            message = "No record of a VM of this id has come in."
            return self._missing_answer(request, "There is no such VM", message)
        values["problem"] = problem
        values["may_accept"] = "admin" in person.roles
        values["may_retire"] = bool(person.roles & {"approver", "admin"})
        return self._answer(request, "vm.html", values, status)

    def groups(self, request: Request) -> Response:
        """Answer with the VMs that are away in each group, and the events that wait for them."""
        state = self._state
        with state.snapshots.open() as snapshot:
            facts = state.turn_facts.facts_to_show(snapshot)
            person = person_of(request)
            values = groups_page.template_values(facts, snapshot, state.grouping, person)
        return self._answer(request, "groups.html", values)

    async def audit(self, request: Request) -> Response:
        """Answer with the audit: who decided what."""
        state = self._state
        if (refused := self._unknown_parameter_answer(request, audit_page.PARAMETERS)) is not None:
            return refused
        try:
            address = audit_page.address_of(request.query_params)
            values = await audit_page.template_values(
                state.database, self._chain, address, state.now()
            )
        except DatabaseFailedError as error:
            return self._unreadable(request, error)
        return self._answer(request, "audit.html", values)

    async def file(self, request: Request) -> Response:
        """Answer with a style sheet or script of the pages."""
        return FILES.answer(request.path_params["name"])

    def _unknown_parameter_answer(
        self, request: Request, parameters: Collection[str]
    ) -> Response | None:
        """Return the answer to an address with a parameter that this page does not know,
        or None.
        """
        name = next((each for each in request.query_params if each not in parameters), None)
        if name is None:
            return None
        values = {
            "title": "There is no such filter",
            "message": f"This page does not know the parameter {name[:100]!r} of its address.",
        }
        return self._answer(request, "missing.html", values, 400)

    def _unreadable(self, request: Request, error: DatabaseFailedError) -> Response:
        values = {"title": "The database does not answer", "message": str(error)}
        return self._answer(request, "missing.html", values, 503)

    def _missing_answer(self, request: Request, title: str, message: str) -> Response:
        return self._answer(request, "missing.html", {"title": title, "message": message}, 404)

    def _answer_without_refresh(
        self, request: Request, template: str, values: Mapping[str, object], status: int = 200
    ) -> Response:
        """Answer with a page that does not refresh itself, because a person is about to send its
        form, or has sent it.
        """
        return self._answer(request, template, {**values, "is_live": False}, status)

    def _answer(
        self, request: Request, template: str, values: Mapping[str, object], status: int = 200
    ) -> Response:
        state = self._state
        return self._renderer.answer(
            template,
            now=state.now(),
            status=status,
            path=request.url.path,
            troubles=connection_banner.troubles(state),
            person=person_of(request),
            can_log_out=state.settings.login.mode == "oidc",
            **{"is_live": True, **values},
        )
