"""The JSON API, reading side: what the page shows, for programs."""

from __future__ import annotations

import json
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from console.fleet import view
from console.web.desk import Desk


class Api:
    """Answers about the fleet as it is in memory."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def overview(self, _request: Request) -> Response:
        """How many VMs are heard, what is due, and whether the sources are connected."""
        desk = self._desk
        return answer(view.overview(desk.fleet, desk.now(), desk.ears(), desk.source_items()))

    async def events(self, _request: Request) -> Response:
        """The open events, by time left."""
        desk = self._desk
        now, ears = desk.now(), desk.ears()
        items = [
            view.event_item(
                desk.fleet,
                event,
                desk.fleet.sightings[event.event_id],
                desk.fleet.receipts.get(event.event_id, ()),
                now=now,
                ears=ears,
            )
            for event in desk.fleet.events.values()
        ]
        return answer({"items": items, "next": None})

    async def vms(self, _request: Request) -> Response:
        """The VMs by name."""
        desk = self._desk
        now, ears = desk.now(), desk.ears()
        named = view.conditions(desk.fleet)
        ordered = sorted(desk.fleet.vms.values(), key=lambda vm: (vm.name, vm.vm_id))
        items = [view.vm_item(vm, now, ears, named) for vm in ordered]
        return answer({"items": items, "next": None})


def answer(content: Any, status: int = 200) -> Response:
    """A JSON answer that no cache keeps."""
    body = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
    return Response(body, status, {"Cache-Control": "no-store"}, "application/json")
