"""`/`: the fleet as one page."""

from __future__ import annotations

from html import escape

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from console.fleet import view
from console.web.desk import Desk


class Page:
    """The page, from what the API shows."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def shown(self, _request: Request) -> Response:
        """How many VMs are heard, and their names."""
        desk = self._desk
        seen = view.overview(desk.fleet, desk.now(), desk.ears(), desk.source_items())
        rows = "".join(
            f"<tr><td>{escape(vm.name)}<td>{escape(vm.site)}" for vm in desk.fleet.vms.values()
        )
        return HTMLResponse(
            "<!doctype html><html lang=en><meta charset=utf-8><title>Fleet</title><h1>Fleet</h1>"
            f"<p>{seen['vms']['heard']} of {seen['vms']['total']} VMs are heard; "
            f"{len(desk.fleet.events)} events are open, {seen['decisionsDue']} decisions are due."
            f"<table><tr><th>VM<th>Site{rows}</table></html>"
        )
