"""One event as plain text that can be pasted into an incident."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from console.fleet.event_view import EventItem
from console.web.pages import labels
from console.web.pages.formatting import span
from console.web.pages.timeline_lines import TimelineLine
from sinks.shared.text import listed, visible

_NAMES_SHOWN: Final = 20
_NAMES_IN_A_LINE: Final = 3
"""The same in each line of the timeline."""


def lines_of(event: EventItem, timeline: Sequence[TimelineLine], now: float) -> list[str]:
    """Return the lines about an event: its type and time, the VMs that it named, the decision, and
    its timeline.
    """
    return [visible(line) for line in _lines(event, timeline, now)]


def _lines(event: EventItem, timeline: Sequence[TimelineLine], now: float) -> Iterator[str]:
    names = [each.name for each in event.resources]
    yield f"{labels.heading(event)} (event {event.event_id})"
    yield f"Status: {event.event_status}, as of {_time(now)}"
    yield f"VMs: {listed(names, _NAMES_SHOWN) or 'none is named'}"
    if event.description:
        yield f"Azure says: {event.description}"
    yield f"First seen: {_time(event.first_seen_at)}{_notice(event)}"
    for at, label in (
        (event.start, "Not before"),
        (event.started_at, "Started"),
        (event.ended_at, "Ended"),
    ):
        if at is not None:
            yield f"{label}: {_time(at)}"
    if event.downtime_seconds:
        announced = event.duration_in_seconds
        against = f", announced {span(announced)}" if announced and announced > 0 else ""
        yield f"Away: {span(event.downtime_seconds)}{against}"
    yield f"Decision: {_decision(event)}"
    yield "What happened:"
    for line in timeline:
        vms = listed([name for _, name in line.vms], _NAMES_IN_A_LINE)
        parts = [line.title, f"by {line.by}" if line.by else "", line.reason or ""]
        parts += [f"reason: {line.person_reason}" if line.person_reason else ""]
        parts += [f"{line.vm_word} {vms}" if vms else ""]
        yield f"  {_time(line.at)}  {', '.join(filter(None, parts))}"


def _notice(event: EventItem) -> str:
    if event.notice_seconds is None:
        return ""
    promised = labels.event_type(event.event_type).notice
    against = "" if promised is None else f", {span(promised[0])} promised"
    return f" (notice {span(event.notice_seconds)}{against})"


def _decision(event: EventItem) -> str:
    decision = event.decision
    parts = [labels.DECISIONS[decision.state]]
    if decision.by:
        parts.append(f"by {decision.by}")
    if decision.at:
        parts.append(f"at {_time(decision.at)}")
    if decision.reason:
        parts.append(f"reason: {decision.reason}")
    return ", ".join(parts)


def _time(at: float | None) -> str:
    if at is None:
        return "unknown"
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
