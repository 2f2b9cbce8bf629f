"""The line of a sink in a list, as the HTTP API, the control socket and the commands show it."""

from __future__ import annotations

from math import isfinite
from typing import Any

from bridge.delivery.health import Health
from bridge.store.outbox import Backlog
from sinks.record import rfc3339


def sink_line(
    name: str,
    *,
    kind: str | None,
    configured: bool,
    health: Health | None,
    backlog: Backlog | None,
    now: float,
) -> dict[str, Any]:
    """The line, for JSON. `health` is None if no bridge runs the sink, `backlog` if the store
    cannot be read; `now` is monotonic seconds.
    """
    due = health.next_try_at if health else None
    return {
        "name": name,
        "kind": kind,
        "configured": configured,
        "state": health.state if health else None,
        "reason": health.reason if health else None,
        "backlog": backlog.records if backlog else None,
        "oldestPendingAt": backlog.oldest if backlog else None,
        "dead": backlog.dead if backlog else None,
        "delivered": health.delivered if health else None,
        "lastDeliveredAt": (
            rfc3339(health.delivered_at) if health and health.delivered_at else None
        ),
        "lagSeconds": round(health.lag, 3) if health and health.lag is not None else None,
        "nextTrySeconds": (
            None if due is None or not isfinite(due) else round(max(0.0, due - now), 1)
        ),
    }
