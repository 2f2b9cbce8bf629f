"""`/api/v1/vms`: every VM that has sent a record, by name."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from console.access.people import Person
from console.access.site_access import sees_vm
from console.approvals.decision_requests import is_reason
from console.db.decisions import assignments
from console.db.events.past_records import past_of_vm
from console.db.snapshot import Snapshot, Snapshots
from console.db.vms.expectations import expectations_of
from console.db.vms.vm_lists import WantedVms, position_of
from console.fleet import vm_view
from console.fleet.candidates import channel_of
from console.fleet.model import Model
from console.fleet.timeline import gap_item, history_item, timeline_item
from console.fleet.values.vm import Expectation, HeardVm
from console.fleet.vm_view import VmDetail, VmItem
from console.vms.acceptance import accept
from console.vms.retirement import retire
from console.web.answers import answer, refuse
from console.web.api.cursors import cursor, position_in
from console.web.api.models import AcceptBody, ReasonBody, VmsQuery
from console.web.api.operations import body_of
from console.web.caller import person_of

_EQUAL: Final = ("site", "location", "zone", "scale_set")
_RECORDS: Final = 200


class VmPage(Model):
    """One page of VMs; `next` is the cursor of the following one."""

    items: list[VmItem]
    next: str | None


class VmRoutes:
    """Answers requests for VMs."""

    def __init__(self, snapshots: Snapshots) -> None:
        self._snapshots = snapshots

    def list_(self, request: Request, query: VmsQuery) -> Response:
        """Answer with a page of VMs."""
        own = person_of(request).site
        if own is not None and query.site not in (None, own):
            return answer(VmPage(items=[], next=None))
        equal = {name: getattr(query, name) for name in _EQUAL} | {"site": own or query.site}
        wanted = WantedVms(
            q=query.q or "",
            contact=query.contact or "",
            condition=query.condition or "",
            equal={name: value for name, value in equal.items() if value},
        )
        after = position_in(query.cursor, str, str)
        with self._snapshots.open() as snapshot:
            items, following = vms_page(snapshot, wanted, limit=query.items, after=after)
        return answer(VmPage(items=items, next=following))

    def one(self, request: Request) -> Response:
        """Answer with a VM, its records, its gaps and the events that named it."""
        with self._snapshots.open() as snapshot:
            heard = snapshot.vms.find_vm(request.path_params["vmId"])
            if heard is None or not sees_vm(person_of(request), heard.vm):
                raise refuse(404, "no record of such a VM has come in")
            return answer(vm_detail(snapshot, heard))

    async def retire(self, request: Request) -> Response:
        """Retire a VM: answer 200 with it; 403 without the role approver or admin, 404, 409 if it
        is retired already.
        """
        person = person_of(request)
        vm_id = request.path_params["vmId"]
        body = await body_of(request, ReasonBody)
        detail = await asyncio.to_thread(self._retire, person, vm_id, body.reason)
        return answer(detail)

    async def accept(self, request: Request) -> Response:
        """Accept what a VM reports: answer 200 with it; 403 without the role admin, 404, 409 if it
        is in no such conflict.
        """
        person = person_of(request)
        vm_id = request.path_params["vmId"]
        body = await body_of(request, AcceptBody)
        detail = await asyncio.to_thread(self._accept, person, vm_id, body.conflict)
        return answer(detail)

    def _accept(self, person: Person, vm_id: str, conflict_id: str | None) -> VmDetail:
        self._require(person, vm_id)
        problem = accept_as(self._snapshots, person, vm_id, conflict_id)
        return self._after(vm_id, problem)

    def _retire(self, person: Person, vm_id: str, reason: str) -> VmDetail:
        self._require(person, vm_id)
        return self._after(vm_id, retire_as(self._snapshots, person, vm_id, reason))

    def _require(self, person: Person, vm_id: str) -> None:
        """Raise an answer of 404 for a VM that the person does not see."""
        with self._snapshots.open() as snapshot:
            heard = snapshot.vms.find_vm(vm_id)
        if heard is None or not sees_vm(person, heard.vm):
            raise refuse(404, "no record of such a VM has come in")

    def _after(self, vm_id: str, problem: tuple[int, str] | None) -> VmDetail:
        """Return the VM after the change. Raises the HTTP answer if the change was refused."""
        if problem is not None:
            raise refuse(*problem)
        with self._snapshots.open() as snapshot:
            after = snapshot.vms.find_vm(vm_id)
            if after is None:
                raise refuse(
                    404,
                    "this VM is not known any more: everything that it had sent was removed",
                )
            return vm_detail(snapshot, after)


def retire_as(
    snapshots: Snapshots, person: Person, vm_id: str, reason: str
) -> tuple[int, str] | None:
    """Retire a VM as a person; return the status and the sentence of a refusal, or None."""
    if not person.roles & {"approver", "admin"}:
        return 403, "this needs the role approver or admin"
    if not is_reason(reason.strip()):
        return 422, "the reason is one line of up to 300 characters"
    now = snapshots.clock()
    done = retire(snapshots.database, [vm_id], actor=person.name, reason=reason.strip(), now=now)
    return None if done else (409, "the VM is retired already")


def accept_as(
    snapshots: Snapshots, person: Person, vm_id: str, conflict_id: str | None
) -> tuple[int, str] | None:
    """Accept what a VM reports of itself, as a person; return the status and the sentence of a
    refusal, or None. `conflict_id` is the id of the conflict that the person saw, if it was given.
    """
    if "admin" not in person.roles:
        return 403, "this needs the role admin"
    if person.site is not None:  # its name may be that of a VM of any site
        return 403, f"a token for the site {person.site} alone cannot accept VMs"
    done = accept(
        snapshots.database,
        [vm_id],
        actor=person.name,
        now=snapshots.clock(),
        silent_time=snapshots.silent_time,
        conflicts={} if conflict_id is None else {vm_id: conflict_id},
    )
    return None if done else (409, "the VM is in no such conflict now")


def vms_page(
    snapshot: Snapshot, wanted: WantedVms, *, limit: int, after: list[Any] | None = None
) -> tuple[list[VmItem], str | None]:
    """Return items and the cursor of the next page."""
    position = None if after is None else (str(after[0]), str(after[1]))
    found = snapshot.vm_lists.page_of_vms(wanted, limit=limit + 1, after=position)
    following = cursor(*position_of(found[limit - 1].vm)) if len(found) > limit else None
    return vm_items(snapshot, found[:limit]), following


def vm_items(snapshot: Snapshot, several: list[HeardVm]) -> list[VmItem]:
    """Return VMs as the API lists them."""
    vm_ids = [each.vm.vm_id for each in several]
    expected = expectations_of(snapshot.connection, vm_ids)
    by = assignments.assignments_of(snapshot.connection, assignments.VM, vm_ids, snapshot.now)
    return [
        vm_view.vm_item(
            each,
            expected.get(each.vm.vm_id, Expectation()),
            by.get(assignments.Subject(each.vm.vm_id)),
        )
        for each in several
    ]


def vm_detail(snapshot: Snapshot, heard: HeardVm) -> VmDetail:
    """Return a VM with its history."""
    vm = heard.vm
    past = past_of_vm(snapshot.connection, vm.vm_id, _RECORDS)
    channel = channel_of(vm.command_source, vm.pulled_at, snapshot.now, snapshot.listening)
    (listed,) = vm_items(snapshot, [heard])
    return VmDetail(
        **dict(listed),
        subscription_id=vm.subscription_id,
        resource_group=vm.resource_group,
        tags=dict(vm.tags),
        takes_commands=channel is not None,
        retired_by=vm.retired_by,
        missing=[gap_item(gap) for gap in past.gaps],
        history=[history_item(latest) for latest in past.reports],
        timeline=[timeline_item(each) for each in past.records],
    )
