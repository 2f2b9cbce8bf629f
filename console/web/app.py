"""The web application: which path is answered by what."""

from __future__ import annotations

from collections.abc import Iterator

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import BaseRoute, Route

from console.store.errors import StoreError
from console.web.answers import on_error, on_store_error
from console.web.audit import Audit
from console.web.decide import Deciding
from console.web.desk import Desk
from console.web.enrolments import Enrolments
from console.web.events import Events
from console.web.ingest import Ingest
from console.web.login import LoginRoutes
from console.web.metrics import Metrics
from console.web.openapi import described
from console.web.overview import Overview
from console.web.pages.entrance import EntrancePages
from console.web.pages.routes import Pages
from console.web.pull import Pull
from console.web.receipts import Receipts
from console.web.security import Door
from console.web.stream import Stream
from console.web.vms import Vms


def application(desk: Desk, stream: Stream) -> Starlette:
    """The ASGI application of a console."""
    events, vms, overview = Events(desk), Vms(desk), Overview(desk)
    deciding = Deciding(desk, events)
    routes: list[BaseRoute] = [
        *_of_machines(desk),  # first: they are asked most, and routes are tried in their order
        Route("/api/v1/overview", overview.shown),
        Route("/api/v1/events", events.listed),
        Route("/api/v1/events/{eventId}", events.one),
        Route("/api/v1/events/{eventId}/approve", deciding.approve, methods=["POST"]),
        Route("/api/v1/events/{eventId}/leave", deciding.leave, methods=["POST"]),
        Route("/api/v1/commands/{jti}", deciding.command),
        Route("/api/v1/vms", vms.listed),
        Route("/api/v1/vms/{vmId}", vms.one),
        Route("/api/v1/audit", Audit(desk).listed),
        Route("/api/v1/quarantine", overview.quarantine),
        Route("/api/v1/stream", stream.listen),
        Route("/api/v1/enrolments", Enrolments(desk).post, methods=["POST"]),
        Route("/healthz", overview.healthy),
        Route("/readyz", overview.ready),
        Route("/metrics", Metrics(desk).scraped),
        Route("/openapi.json", described),
        *Pages(desk, events, vms).routes(),
    ]
    pages = EntrancePages(desk.settings)
    if desk.access.login is not None:
        routes += LoginRoutes(desk, desk.access.login, pages).routes()
    door = Middleware(Door, settings=desk.settings, access=desk.access, pages=pages)
    return Starlette(
        routes=routes,
        middleware=[door],
        exception_handlers={HTTPException: on_error, StoreError: on_store_error},
    )


def _of_machines(desk: Desk) -> Iterator[BaseRoute]:
    webhook = next((state.name for state in desk.sources.values() if state.kind == "webhook"), None)
    if webhook is not None:
        yield Route("/ingest/v1/records", Ingest(desk, webhook), methods=["POST"])
    if desk.settings.pull:
        yield Route("/pull/v1/commands", Pull(desk), methods=["GET"])
        yield Route("/pull/v1/commands/receipts", Receipts(desk), methods=["POST"])
