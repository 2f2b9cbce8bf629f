"""`/api/v1/vms`: every VM that a record has come from, by name."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from console.access.scope import sees_vm
from console.fleet import view
from console.fleet.contact import CONTACTS, contact
from console.fleet.timeline import gap_item, history_item, timeline_item
from console.fleet.values import Vm
from console.fleet.witnesses import channel_of
from console.store import history
from console.web.answers import (
    Json,
    answer,
    choice_of,
    cursor,
    cursor_of,
    limit_of,
    refuse,
    word_of,
)
from console.web.desk import Desk
from console.web.security import person_of

_EQUAL: Final = {"site": "site", "location": "location", "zone": "zone", "scaleSet": "scale_set"}
_RECORDS: Final = 200


class Vms:
    """Answers about VMs."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def listed(self, request: Request) -> Response:
        """A page of VMs."""
        wanted: dict[str, str | None] = {name: word_of(request, name) for name in ("q", *_EQUAL)}
        site = person_of(request).site
        if site is not None and wanted["site"] not in (None, site):
            return answer({"items": [], "next": None})
        wanted["site"] = site or wanted["site"]
        wanted["contact"] = choice_of(request, "contact", CONTACTS)
        wanted["condition"] = choice_of(request, "condition", view.CONDITIONS)
        items, following = self.page(
            wanted, limit=limit_of(request), after=cursor_of(request, str, str)
        )
        return answer({"items": items, "next": following})

    def page(
        self, wanted: Mapping[str, str | None], *, limit: int, after: list[Any] | None = None
    ) -> tuple[list[Json], str | None]:
        """Items and the cursor of the next page; `wanted` has the names of the API's parameters."""
        desk = self._desk
        now, ears = desk.now(), desk.ears()
        ordered = desk.fleet.ordered
        start = 0 if after is None else bisect_right(ordered, (after[0], after[1]))
        found: list[Vm] = []
        equal = [(field, wanted[name]) for name, field in _EQUAL.items() if wanted.get(name)]
        q = (wanted.get("q") or "").lower()
        heard, condition = wanted.get("contact"), wanted.get("condition")
        for place in ordered[start:]:
            vm = desk.fleet.vms[place[1]]
            if q and q not in vm.name.lower() and q not in vm.vm_id.lower():
                continue
            if any(getattr(vm, field) != value for field, value in equal):
                continue
            if condition and desk.fleet.condition(vm.vm_id)[0] != condition:
                continue
            if heard and contact(vm, now, ears) != heard:
                continue
            found.append(vm)
            if len(found) > limit:
                break
        items = [view.vm_item(desk.fleet, vm, now, ears) for vm in found[:limit]]
        last = found[limit - 1] if len(found) > limit else None
        return items, None if last is None else cursor(last.name.lower(), last.vm_id)

    async def one(self, request: Request) -> Response:
        """One VM, with its records, its gaps and the events that named it."""
        vm_id = request.path_params["vmId"]
        vm = self._desk.fleet.vms.get(vm_id)
        found = None
        if vm is not None and sees_vm(person_of(request), vm):
            found = await self.detail(vm_id)
        if found is None:
            raise refuse(404, "no record of such a VM has come in")
        return answer(found)

    async def detail(self, vm_id: str) -> Json | None:
        """One VM with its history; None if nothing has come in from it."""
        desk = self._desk
        vm = desk.fleet.vms.get(vm_id)
        if vm is None:
            return None
        past = await asyncio.to_thread(history.read_vm, desk.database.reading, vm_id, _RECORDS)
        now, ears = desk.now(), desk.ears()
        item = view.vm_item(desk.fleet, vm, now, ears)
        return item | {
            "subscriptionId": vm.subscription_id,
            "resourceGroup": vm.resource_group,
            "tags": dict(vm.tags),
            "takesCommands": channel_of(desk.fleet, vm, now, ears) is not None,
            "retiredBy": vm.retired_by,
            "missing": [gap_item(gap) for gap in past.gaps],
            "history": [history_item(sighting) for sighting in past.sightings],
            "timeline": [timeline_item(each) for each in past.records],
        }
