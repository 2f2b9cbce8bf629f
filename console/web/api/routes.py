"""Every path of the API, and those for monitoring systems."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from console.fleet import event_view, fleet_view, vm_view
from console.fleet.commands import CommandItem
from console.web.answers import answer
from console.web.api import models
from console.web.api.assignments import AssignmentRoutes
from console.web.api.audit import AuditRoutes
from console.web.api.decisions import AcceptedDecision, DecisionRoutes, RefusedDecision
from console.web.api.enrolments import EnrolledList, EnrolmentRoutes
from console.web.api.events import EventPage, EventRoutes
from console.web.api.groups import GroupList, GroupRoutes
from console.web.api.health import HealthRoutes
from console.web.api.metrics import ConsoleMetrics
from console.web.api.openapi import document
from console.web.api.operations import Endpoint, Operation, checked
from console.web.api.overview import OverviewRoutes
from console.web.api.quarantine import QuarantinedList, QuarantineRoutes
from console.web.api.stream import StreamHub
from console.web.api.vms import VmPage, VmRoutes
from console.web.app_state import AppState


def api_routes(state: AppState, stream: StreamHub) -> list[Route]:
    """Return a route for each operation, and the one that describes them."""
    described = operations(state, stream)
    shown = document(described)

    async def api_document(_request: Request) -> Response:
        return answer(shown)

    return [
        *(each.route() for each in described),
        Route("/openapi.json", checked(api_document, models.NoQuery)),
    ]


def operations(state: AppState, stream: StreamHub) -> list[Operation]:
    """Return the operations of the API, and the paths for monitoring systems."""
    return [
        *_event_operations(state),
        *_decision_operations(state),
        *_vm_operations(state),
        *_assignment_operations(state),
        *_admin_operations(state),
        Operation(
            path="/api/v1/stream",
            endpoint=stream.listen,
            summary="Server-sent events: event, vm, command, source",
            answers={"200": None},
            media_type="text/event-stream",
        ),
        *_monitoring_operations(state),
    ]


def _event_operations(state: AppState) -> list[Operation]:
    events = EventRoutes(state.snapshots)
    return [
        Operation(
            path="/api/v1/overview",
            endpoint=OverviewRoutes(state).show,
            summary="The fleet in numbers",
            answers={"200": fleet_view.Overview},
        ),
        Operation(
            path="/api/v1/events",
            endpoint=events.list_,
            summary="Events: the open ones by time left, then the others, the newest first",
            query=models.EventsQuery,
            answers={"200": EventPage},
        ),
        Operation(
            path="/api/v1/events/{eventId}",
            endpoint=events.one,
            summary="An event with its timeline",
            query=models.EventQuery,
            answers={"200": event_view.EventDetail},
        ),
    ]


def _decision_operations(state: AppState) -> list[Operation]:
    decisions = DecisionRoutes(state)
    return [
        Operation(
            path="/api/v1/events/{eventId}/approve",
            endpoint=decisions.approve,
            query=models.EventQuery,
            summary="Approve an event as it was seen",
            body=models.ApprovalBody,
            answers={"202": AcceptedDecision, "409": RefusedDecision},
        ),
        Operation(
            path="/api/v1/events/{eventId}/leave",
            endpoint=decisions.leave,
            query=models.EventQuery,
            summary="Leave an event until its notBefore",
            body=models.DecisionBody,
            answers={"200": AcceptedDecision, "409": RefusedDecision},
        ),
        Operation(
            path="/api/v1/events/{eventId}/turn/end",
            endpoint=decisions.end_turn,
            query=models.EventQuery,
            summary="End the turn of an event that is stuck",
            body=models.TurnEndBody,
            answers={"200": event_view.EventDetail, "204": None, "409": RefusedDecision},
        ),
        Operation(
            path="/api/v1/groups",
            endpoint=GroupRoutes(state).list_,
            summary="Groups: who is away and why, and who waits for whom",
            answers={"200": GroupList},
        ),
        Operation(
            path="/api/v1/commands/{jti}",
            endpoint=decisions.command,
            summary="What became of a command",
            answers={"200": CommandItem},
        ),
    ]


def _vm_operations(state: AppState) -> list[Operation]:
    vms = VmRoutes(state.snapshots)
    return [
        Operation(
            path="/api/v1/vms",
            endpoint=vms.list_,
            summary="VMs by name",
            query=models.VmsQuery,
            answers={"200": VmPage},
        ),
        Operation(
            path="/api/v1/vms/{vmId}",
            endpoint=vms.one,
            summary="A VM with its history",
            answers={"200": vm_view.VmDetail},
        ),
        Operation(
            path="/api/v1/vms/{vmId}/retire",
            endpoint=vms.retire,
            summary="Say that a VM is gone: nothing waits for it until it is heard again",
            body=models.ReasonBody,
            answers={"200": vm_view.VmDetail},
        ),
        Operation(
            path="/api/v1/vms/{vmId}/accept",
            endpoint=vms.accept,
            summary="Accept what a VM reports of itself, as an admin: its name, scope and site",
            body=models.AcceptBody,
            answers={"200": vm_view.VmDetail},
        ),
    ]


def _assignment_operations(state: AppState) -> list[Operation]:
    assignments = AssignmentRoutes(state.snapshots)
    return [
        Operation(
            path="/api/v1/events/{eventId}/take",
            endpoint=assignments.assign_event,
            summary="Say that you are on an event, for so many minutes; 0 gives it back",
            query=models.EventQuery,
            body=models.TakeBody,
            answers={"200": event_view.EventDetail},
        ),
        Operation(
            path="/api/v1/vms/{vmId}/take",
            endpoint=assignments.assign_vm,
            summary="Say that you are on a VM, for so many minutes; 0 gives it back",
            body=models.TakeBody,
            answers={"200": vm_view.VmDetail},
        ),
    ]


def _admin_operations(state: AppState) -> list[Operation]:
    return [
        Operation(
            path="/api/v1/audit",
            endpoint=AuditRoutes(state.snapshots).list_,
            summary="The audit, a JSON object a line, the oldest first",
            query=models.AuditQuery,
            answers={"200": None},
            media_type="application/x-ndjson",
        ),
        Operation(
            path="/api/v1/quarantine",
            endpoint=QuarantineRoutes(state.snapshots).list_,
            summary="Messages that are not records of ours, with the last of each kind",
            answers={"200": QuarantinedList},
        ),
        Operation(
            path="/api/v1/enrolments",
            endpoint=EnrolmentRoutes(state).post,
            summary="Enroll VMs, as an admin: the settings of their bridges",
            body=models.EnrolmentBody,
            answers={"200": EnrolledList},
        ),
    ]


def _monitoring_operations(state: AppState) -> list[Operation]:
    health = HealthRoutes(state)
    return [
        _plain("/healthz", health.alive, "200 while the process answers"),
        _plain("/readyz", health.ready, "503 without the database"),
        _plain("/metrics", ConsoleMetrics(state).scrape, "Numbers for Prometheus"),
    ]


def _plain(path: str, endpoint: Endpoint, summary: str) -> Operation:
    return Operation(
        path=path,
        endpoint=endpoint,
        summary=summary,
        answers={"200": None},
        media_type="text/plain",
    )
