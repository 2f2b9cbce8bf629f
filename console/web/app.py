"""The web application: which endpoint answers each path."""

from __future__ import annotations

from collections.abc import Iterator

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from console.db.errors import StoreError
from console.fleet import view
from console.fleet.commands import Command
from console.web import models
from console.web.answers import answer, on_error, on_store_error
from console.web.assigning import AssignRoutes
from console.web.audit import Audit
from console.web.decisions import DecisionRoutes
from console.web.enrolments import EnrolmentRoutes
from console.web.events import EventRoutes
from console.web.groups import Groups
from console.web.ingest import Ingest
from console.web.login import LoginRoutes
from console.web.metrics import Metrics
from console.web.models import NoQuery
from console.web.openapi import document
from console.web.operations import Endpoint, Operation, checked
from console.web.overview import OverviewRoutes
from console.web.pages.login_pages import LoginPages
from console.web.pages.routes import Pages
from console.web.pull import Pull
from console.web.receipts import Receipts
from console.web.security import Admission
from console.web.state import AppState
from console.web.stream import StreamHub
from console.web.vms import VmRoutes


def application(state: AppState, stream: StreamHub) -> Starlette:
    """Return the ASGI application of a console."""
    described = operations(state, stream)
    shown = document(described)

    async def api_document(_request: Request) -> Response:
        return answer(shown)

    routes: list[BaseRoute] = [
        *_of_machines(state),  # first: they have most requests, and routes are tried in order
        *(each.route() for each in described),
        Route("/openapi.json", checked(api_document, NoQuery)),
        *Pages(state).routes(),
    ]
    pages = LoginPages(state.settings)
    if state.access.login is not None:
        routes += LoginRoutes(state, state.access.login, pages).routes()
    admission = Middleware(Admission, settings=state.settings, access=state.access, pages=pages)
    return Starlette(
        routes=routes,
        middleware=[admission],
        exception_handlers={HTTPException: on_error, StoreError: on_store_error},
    )


def operations(state: AppState, stream: StreamHub) -> list[Operation]:
    """Return the operations of the API, and the paths for monitoring systems."""
    events = EventRoutes(state.snapshots)
    vms = VmRoutes(state.snapshots)
    overview = OverviewRoutes(state)
    takes = AssignRoutes(state.snapshots)
    decisions = DecisionRoutes(state)
    groups = Groups(state)
    return [
        Operation(
            path="/api/v1/overview",
            endpoint=overview.shown,
            summary="The fleet in numbers",
            answers={"200": view.Overview},
        ),
        Operation(
            path="/api/v1/events",
            endpoint=events.listed,
            summary="Events: the open ones by time left, then the others, the newest first",
            query=models.EventsQuery,
            answers={"200": models.EventPage},
        ),
        Operation(
            path="/api/v1/events/{eventId}",
            endpoint=events.one,
            summary="An event with its timeline",
            query=models.EventQuery,
            answers={"200": view.EventDetail},
        ),
        Operation(
            path="/api/v1/events/{eventId}/approve",
            endpoint=decisions.approve,
            query=models.EventQuery,
            summary="Approve an event as it was seen",
            body=models.ApprovalBody,
            answers={"202": models.DecisionTaken, "409": models.Conflict},
        ),
        Operation(
            path="/api/v1/events/{eventId}/leave",
            endpoint=decisions.leave,
            query=models.EventQuery,
            summary="Leave an event until its notBefore",
            body=models.DecisionBody,
            answers={"200": models.DecisionTaken, "409": models.Conflict},
        ),
        Operation(
            path="/api/v1/events/{eventId}/turn/end",
            endpoint=decisions.end_turn,
            query=models.EventQuery,
            summary="End the turn of an event that is stuck",
            body=models.TurnEndBody,
            answers={"200": view.EventDetail, "409": models.Conflict},
        ),
        Operation(
            path="/api/v1/groups",
            endpoint=groups.listed,
            summary="Groups: who is away and why, and who waits for whom",
            answers={"200": models.GroupList},
        ),
        Operation(
            path="/api/v1/commands/{jti}",
            endpoint=decisions.command,
            summary="What became of a command",
            answers={"200": Command},
        ),
        Operation(
            path="/api/v1/vms",
            endpoint=vms.listed,
            summary="VMs by name",
            query=models.VmsQuery,
            answers={"200": models.VmPage},
        ),
        Operation(
            path="/api/v1/vms/{vmId}",
            endpoint=vms.one,
            summary="A VM with its history",
            answers={"200": view.VmDetail},
        ),
        Operation(
            path="/api/v1/vms/{vmId}/retire",
            endpoint=vms.retire,
            summary="Say that a VM is gone: nothing waits for it until it is heard again",
            body=models.ReasonBody,
            answers={"200": view.VmDetail},
        ),
        Operation(
            path="/api/v1/vms/{vmId}/accept",
            endpoint=vms.accept,
            summary="Accept what a VM reports of itself, as an admin: its name, scope and site",
            body=models.AcceptBody,
            answers={"200": view.VmDetail},
        ),
        Operation(
            path="/api/v1/events/{eventId}/take",
            endpoint=takes.event,
            summary="Say that you are on an event, for so many minutes; 0 gives it back",
            query=models.EventQuery,
            body=models.TakeBody,
            answers={"200": view.EventDetail},
        ),
        Operation(
            path="/api/v1/vms/{vmId}/take",
            endpoint=takes.vm,
            summary="Say that you are on a VM, for so many minutes; 0 gives it back",
            body=models.TakeBody,
            answers={"200": view.VmDetail},
        ),
        Operation(
            path="/api/v1/audit",
            endpoint=Audit(state.snapshots).listed,
            summary="The audit, a JSON object a line, the oldest first",
            query=models.AuditQuery,
            answers={"200": None},
            media_type="application/x-ndjson",
        ),
        Operation(
            path="/api/v1/quarantine",
            endpoint=overview.quarantine,
            summary="Messages that are not records of ours, with the last of each kind",
            answers={"200": models.QuarantinedList},
        ),
        Operation(
            path="/api/v1/enrolments",
            endpoint=EnrolmentRoutes(state).post,
            summary="Enroll VMs, as an admin: the settings of their bridges",
            body=models.EnrolmentBody,
            answers={"200": models.EnrolledList},
        ),
        Operation(
            path="/api/v1/stream",
            endpoint=stream.listen,
            summary="Server-sent events: event, vm, command, source",
            answers={"200": None},
            media_type="text/event-stream",
        ),
        _plain("/healthz", overview.healthy, "200 while the process answers"),
        _plain("/readyz", overview.ready, "503 without the database"),
        _plain("/metrics", Metrics(state).scraped, "Numbers for Prometheus"),
    ]


def _plain(path: str, endpoint: Endpoint, summary: str) -> Operation:
    return Operation(
        path=path,
        endpoint=endpoint,
        summary=summary,
        answers={"200": None},
        media_type="text/plain",
    )


def _of_machines(state: AppState) -> Iterator[BaseRoute]:
    webhook = next((each.name for each in state.sources.values() if each.kind == "webhook"), None)
    if webhook is not None:
        yield Route("/ingest/v1/records", Ingest(state, webhook), methods=["POST"])
    if state.settings.pull:
        yield Route("/pull/v1/commands", Pull(state), methods=["GET"])
        yield Route("/pull/v1/commands/receipts", Receipts(state), methods=["POST"])
