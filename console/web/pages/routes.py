"""Which page is answered by what."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from console.store.errors import StoreError
from console.store.history import Wanted
from console.web.desk import Desk
from console.web.events import Events
from console.web.pages import (
    audit_page,
    decision_block,
    event_page,
    fleet_page,
    hearing,
    overview,
    vm_page,
)
from console.web.pages.bulk import Listing
from console.web.pages.decide import Decide, Forms
from console.web.pages.door import door
from console.web.pages.rendering import FILES, Renderer
from console.web.security import person_of
from console.web.vms import Vms

_OVER: Final = 5
"""Events that are over, on the first page."""
_ANY: Final = Wanted()


class Pages:
    """The pages of a running console."""

    def __init__(
        self, desk: Desk, events: Events, vms: Vms, *, decide: Decide | None = None
    ) -> None:
        self._desk = desk
        self._events = events
        self._vms = vms
        self._renderer = Renderer()
        self._chain = audit_page.Chain(desk.database)
        self._forms = Forms(
            decide or door(desk), listing=Listing(desk), show_event=self._event, show=self._still
        )

    def routes(self) -> list[Route]:
        """Their paths."""
        return [
            Route("/", self.overview),
            Route("/fleet", self.fleet),
            Route("/events/{event_id:path}", self.event),
            Route("/events/{event_id:path}", self._forms.event, methods=["POST"]),
            Route("/decide", self.decide),
            Route("/decide/confirm", self.confirm),
            Route("/decide/confirm", self._forms.several, methods=["POST"]),
            Route("/vms/{vm_id}", self.vm),
            Route("/audit", self.audit),
            Route("/static/{name}", self.file),
        ]

    async def overview(self, request: Request) -> Response:
        """What is coming, to whom, and who is silent."""
        try:
            over, _ = await self._events.page(_ANY, state="over", limit=_OVER)
        except StoreError:  # what is coming is in memory; the red bar says the rest
            over = []
        values = overview.values(self._desk, self._desk.now(), over)
        return self._answer(request, "overview.html", values)

    async def fleet(self, request: Request) -> Response:
        """Every VM, as a table or as a map."""
        chosen = fleet_page.Choice.of(request.query_params)
        look = fleet_page.look(self._desk)
        values = await asyncio.to_thread(fleet_page.values, look, chosen)
        return self._answer(request, "fleet.html", values)

    async def event(self, request: Request) -> Response:
        """One event, and the form that decides it."""
        return await self._event(request)

    async def _event(
        self, request: Request, sent: decision_block.Sent | None = None, status: int = 200
    ) -> Response:
        """An event's page; `sent`: a form that was not carried out."""
        try:
            found = await self._events.detail(request.path_params["event_id"], person_of(request))
        except StoreError as error:
            return self._unreadable(request, error)
        if found is None:
            words = "Nothing is known of an event of this id, or it is older than what is kept."
            return self._missing(request, "There is no such event", words)
        desk = self._desk
        values = event_page.values(desk.fleet, found, desk.now())
        values["decision"] = decision_block.values(
            found,
            person=person_of(request),
            settings=desk.settings,
            has_key=desk.decisions.signer is not None,
            name_of=lambda vm_id: event_page.name_of(desk.fleet, vm_id),
            sent=sent,
        )
        if sent is None:
            return self._answer(request, "event.html", values, status)
        return self._still(request, "event.html", values, status)

    async def decide(self, request: Request) -> Response:
        """The events that wait for a decision."""
        return self._answer(request, "decide.html", self._forms.list(request))

    async def confirm(self, request: Request) -> Response:
        """Several events, before they are decided at once."""
        return self._forms.confirm(request)

    async def vm(self, request: Request) -> Response:
        """One VM."""
        try:
            found = await self._vms.detail(request.path_params["vm_id"])
        except StoreError as error:
            return self._unreadable(request, error)
        if found is None:
            words = "No record of a VM of this id has come in."
            return self._missing(request, "There is no such VM", words)
        return self._answer(request, "vm.html", vm_page.values(self._desk, found, self._desk.now()))

    async def audit(self, request: Request) -> Response:
        """Who decided what."""
        desk = self._desk
        try:
            values = await audit_page.values(
                desk.database, self._chain, request.query_params, desk.now()
            )
        except StoreError as error:
            return self._unreadable(request, error)
        return self._answer(request, "audit.html", values)

    async def file(self, request: Request) -> Response:
        """Our own style and script."""
        return FILES.answer(request.path_params["name"])

    def _unreadable(self, request: Request, error: StoreError) -> Response:
        values = {"title": "The database does not answer", "words": str(error)}
        return self._answer(request, "missing.html", values, 503)

    def _missing(self, request: Request, title: str, words: str) -> Response:
        return self._answer(request, "missing.html", {"title": title, "words": words}, 404)

    def _still(
        self, request: Request, template: str, values: Mapping[str, object], status: int = 200
    ) -> Response:
        """A page that stays as it was drawn: what somebody is about to sign, or has sent."""
        return self._answer(request, template, {**values, "is_live": False}, status)

    def _answer(
        self, request: Request, template: str, values: Mapping[str, object], status: int = 200
    ) -> Response:
        desk = self._desk
        return self._renderer.answer(
            template,
            now=desk.now(),
            status=status,
            path=request.url.path,
            troubles=hearing.troubles(desk),
            person=person_of(request),
            can_log_out=desk.settings.login.mode == "oidc",
            **{"is_live": True, **values},
        )
