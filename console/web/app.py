"""The web application: which path is answered by what."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from html import escape

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from console.fleet import view
from console.web.api import Api
from console.web.desk import Desk
from console.web.ingest import Ingest


def application(desk: Desk) -> Starlette:
    """The ASGI application of a console."""
    api = Api(desk)
    webhook = next((state.name for state in desk.sources.values() if state.kind == "webhook"), None)
    routes = [
        Route("/", _page(desk)),
        Route("/api/v1/overview", api.overview),
        Route("/api/v1/events", api.events),
        Route("/api/v1/vms", api.vms),
        Route("/healthz", _healthy),
        Route("/readyz", _ready(desk)),
    ]
    if webhook is not None:
        routes.append(Route("/ingest/v1/records", Ingest(desk, webhook).post, methods=["POST"]))
    return Starlette(routes=routes)


async def _healthy(_request: Request) -> Response:
    return PlainTextResponse("ok\n")


def _ready(desk: Desk) -> Callable[[Request], Awaitable[Response]]:
    async def ready(_request: Request) -> Response:
        trouble = desk.writer.progress.trouble
        if trouble is not None or not desk.loaded:
            return PlainTextResponse(f"{trouble or 'the fleet is being loaded'}\n", 503)
        return PlainTextResponse("ok\n")

    return ready


def _page(desk: Desk) -> Callable[[Request], Awaitable[Response]]:
    async def page(_request: Request) -> Response:
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

    return page
