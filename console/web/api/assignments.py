"""`POST /api/v1/events/{eventId}/take` and `…/vms/{vmId}/take`: a person says that they work on
it.
"""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from console.access.people import Person
from console.access.site_access import sees_event, sees_vm
from console.db.connection.transactions import write_to
from console.db.decisions import assignments
from console.db.snapshot import Snapshots
from console.fleet.event_choice import choose_event
from console.fleet.values.decision import Assignment
from console.web.answers import answer, refuse
from console.web.api import models
from console.web.api.events import event_detail
from console.web.api.operations import body_of
from console.web.api.vms import vm_detail
from console.web.caller import person_of

_ROLES: Final = frozenset({"approver", "admin"})
_NO_EVENT: Final = "there is no such event"
_NO_VM: Final = "no record of such a VM has come in"


class AssignmentRoutes:
    """Assigns a person to an event or a VM, or releases it."""

    def __init__(self, snapshots: Snapshots) -> None:
        self._snapshots = snapshots

    async def assign_event(self, request: Request, query: models.EventQuery) -> Response:
        """Assign a person to an event: answer 200 with the event; 403, 404."""
        body = await body_of(request, models.TakeBody)
        return await asyncio.to_thread(self._event, request, body.minutes, query.scope)

    async def assign_vm(self, request: Request) -> Response:
        """Assign a person to a VM: answer 200 with the VM; 403, 404."""
        body = await body_of(request, models.TakeBody)
        return await asyncio.to_thread(self._vm, request, body.minutes)

    def _event(self, request: Request, minutes: int, scope: str | None) -> Response:
        person = person_of(request)
        event_id = request.path_params["eventId"]
        if not assign_event(self._snapshots, person, event_id, scope, minutes):
            raise refuse(404, _NO_EVENT)
        with self._snapshots.open() as snapshot:
            found = event_detail(snapshot, event_id, person, scope)
        return answer(found)

    def _vm(self, request: Request, minutes: int) -> Response:
        person = person_of(request)
        vm_id = request.path_params["vmId"]
        if not assign_vm(self._snapshots, person, vm_id, minutes):
            raise refuse(404, _NO_VM)
        with self._snapshots.open() as snapshot:
            heard = snapshot.vms.find_vm(vm_id)
            assert heard is not None  # noqa: S101  # VMs are not deleted
            return answer(vm_detail(snapshot, heard))


def assign_event(
    snapshots: Snapshots, person: Person, event_id: str, scope: str | None, minutes: int
) -> bool:
    """Assign the person to an event for so many minutes; 0 releases it. Return False if the person
    may not see the event.
    """
    with snapshots.open() as snapshot:
        several = snapshot.events.events_with_id(event_id)
        known = choose_event([each for each in several if sees_event(person, each.event)], scope)
    if known is None:
        return False
    _assign(snapshots, person, assignments.EVENT, assignments.Subject(*known.event.key), minutes)
    return True


def assign_vm(snapshots: Snapshots, person: Person, vm_id: str, minutes: int) -> bool:
    """Assign the person to a VM for so many minutes; 0 releases it. Return False if the person may
    not see the VM.
    """
    with snapshots.open() as snapshot:
        heard = snapshot.vms.find_vm(vm_id)
    if heard is None or not sees_vm(person, heard.vm):
        return False
    _assign(snapshots, person, assignments.VM, assignments.Subject(vm_id), minutes)
    return True


def _assign(
    snapshots: Snapshots, person: Person, kind: str, subject: assignments.Subject, minutes: int
) -> None:
    if not person.roles & _ROLES:
        raise refuse(403, "this needs the role approver or admin")
    now = snapshots.clock()
    to = Assignment(actor=person.name, until=now + 60 * minutes)
    with write_to(snapshots.database) as (connection, change_number):
        assignments.upsert_assignment(
            connection, kind, subject, to=to, at=now, change_number=change_number
        )
