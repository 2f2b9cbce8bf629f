"""The web application: the routes of bridges, of the API and of the pages."""

from __future__ import annotations

from collections.abc import Iterator

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import Route

from console.db.connection.errors import DatabaseFailedError
from console.web.answers import on_error, on_store_error
from console.web.api.routes import api_routes
from console.web.api.stream import StreamHub
from console.web.app_state import AppState
from console.web.bridges.pull import CommandPolls
from console.web.bridges.records import PulledReceipts, WebhookRecords
from console.web.login import LoginRoutes
from console.web.pages.login_pages import LoginPages
from console.web.pages.routes import Pages
from console.web.security import Admission


def application(state: AppState, stream: StreamHub) -> Starlette:
    """Return the ASGI application of a console."""
    routes = [
        *_bridge_routes(state),  # first: they have most requests, and routes are tried in order
        *api_routes(state, stream),
        *Pages(state).routes(),
    ]
    pages = LoginPages(state.settings)
    if state.access.login is not None:
        routes += LoginRoutes(state, state.access.login, pages).routes()
    admission = Middleware(Admission, settings=state.settings, access=state.access, pages=pages)
    return Starlette(
        routes=routes,
        middleware=[admission],
        exception_handlers={HTTPException: on_error, DatabaseFailedError: on_store_error},
    )


def _bridge_routes(state: AppState) -> Iterator[Route]:
    parts = state.bridges
    webhook = next((each.name for each in state.sources.values() if each.kind == "webhook"), None)
    if webhook is not None:
        records = WebhookRecords(parts, source=webhook)
        yield Route("/ingest/v1/records", records, methods=["POST"])
    if state.settings.pull:
        yield Route("/pull/v1/commands", CommandPolls(parts), methods=["GET"])
        yield Route("/pull/v1/commands/receipts", PulledReceipts(parts), methods=["POST"])
