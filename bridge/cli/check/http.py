"""The step of `seb check` for the HTTP server: whether its address is free. It asks only a bridge
that runs here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from bridge.api.http_client import Viewer
from bridge.config.address import parsed
from bridge.errors import SebError
from sinks.base import Check


def look_at_server(listen: str) -> Iterator[Check]:
    """Whether a server can listen at that `SEB_HTTP__LISTEN`; nothing if it is turned off."""
    if not listen:
        return
    from bridge.api.server import bound  # noqa: PLC0415  # only where there is a server

    try:
        bound(*parsed(listen)).close()
    except OSError as error:
        if _is_bridge(listen):
            yield Check(level="ok", text=f"the running bridge serves {listen}")
            return
        yield Check(
            level="warn",
            text=str(error.strerror or error),
            remedy="the bridge works without it; or set SEB_HTTP__LISTEN to a free address",
        )
        return
    yield Check(level="ok", text=f"{listen} is free for health, metrics and the page")


def _is_bridge(listen: str) -> bool:
    try:
        status, body = Viewer(listen).get("/api/v1/status")
        return "instanceId" in json.loads(body) and bool(status)
    except (SebError, ValueError, TypeError):
        return False
