"""The table of sinks that `seb status` and `seb outbox list` print."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from sinks.readable_line import compact_span

HELD_SECONDS: Final = 60.0
"""How long a record may wait for a sink that does not fail: a delivery may take its time."""


def sink_table(sinks: list[dict[str, Any]], now: datetime) -> list[str]:
    """Return the table: a head, a line for each sink, and below it the reason of its trouble."""
    width = max([4, *(len(sink["name"]) for sink in sinks)])
    lines = [f"{'SINK':<{width}}  {'STATE':<14}  TO DELIVER  DEAD  {'OLDEST':<13}  LAST DELIVERED"]
    for sink in sinks:
        state = sink["state"] or ("not running" if sink["configured"] else "not configured")
        backlog, dead = ("?" if sink[each] is None else sink[each] for each in ("backlog", "dead"))
        oldest = sink["oldestPendingAt"]
        lines.append(
            f"{sink['name']:<{width}}  {state:<14}  {backlog:>10}  {dead:>4}  "
            f"{ago(oldest, now) if oldest else '-':<13}  "
            f"{'-' if sink['state'] is None else ago(sink['lastDeliveredAt'], now)}"
        )
        if sink["reason"]:
            lines.append(f"    {sink['reason']}")
    return lines


def holds_backlog(sink: dict[str, Any], now: datetime) -> bool:
    """Check whether a sink's oldest record has waited for more than `HELD_SECONDS`."""
    oldest = sink["oldestPendingAt"]
    if oldest is None:
        return False
    return (now - datetime.fromisoformat(oldest)).total_seconds() > HELD_SECONDS


def refuses(sink: dict[str, Any]) -> bool:
    """Check whether a sink has refused the last record, and that record is still dead."""
    return sink["state"] == "idle" and sink["reason"] is not None and bool(sink["dead"])


def ago(moment: str | None, now: datetime) -> str:
    """Return in words how long ago a moment (RFC 3339) was; `never` for None."""
    if moment is None:
        return "never"
    seconds = (now - datetime.fromisoformat(moment)).total_seconds()
    return f"{max(0.0, seconds):.1f} s ago" if seconds < 10 else f"{compact_span(int(seconds))} ago"  # noqa: PLR2004
