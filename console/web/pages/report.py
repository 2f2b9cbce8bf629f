"""One event as plain text, to be pasted into an incident."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from console.fleet.moments import seconds_of
from console.web.pages import words
from console.web.pages.past import Entry
from console.web.pages.text import span
from sinks.shared.text import visible

_NAMES: Final = 20


def report(item: Mapping[str, Any], entries: Sequence[Entry], now: float) -> list[str]:
    """What an event was, whom it named, what was decided, and when what happened: its lines."""
    return [visible(line) for line in _lines(item, entries, now)]


def _lines(item: Mapping[str, Any], entries: Sequence[Entry], now: float) -> Iterator[str]:
    names = [str(each["name"]) for each in item["resources"]]
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    yield f"{words.heading(item)} (event {item['eventId']})"
    yield f"Status: {item['eventStatus']}, as of {_time(now)}"
    yield f"VMs: {', '.join(names[:_NAMES]) or 'none is named'}{more}"
    if item["description"]:
        yield f"Azure says: {item['description']}"
    yield f"First seen: {_time(seconds_of(item['firstSeenAt']))}{_notice(item)}"
    for name, label in (
        ("notBefore", "Not before"),
        ("startedAt", "Started"),
        ("endedAt", "Ended"),
    ):
        if item[name]:
            yield f"{label}: {_time(seconds_of(item[name]))}"
    if item["downtimeSeconds"]:
        announced = item["durationInSeconds"]
        against = f", announced {span(announced)}" if (announced or -1) >= 0 else ""
        yield f"Away: {span(item['downtimeSeconds'])}{against}"
    yield f"Decision: {_decision(item)}"
    yield "What happened:"
    for entry in entries:
        vms = ", ".join(name for _, name in entry.vms[:3])
        rest = f" and {len(entry.vms) - 3} more" if len(entry.vms) > 3 else ""  # noqa: PLR2004
        lines = [entry.title, f"by {entry.by}" if entry.by else "", entry.reason or ""]
        lines += [f"reason: {entry.why}" if entry.why else ""]
        lines += [f"{entry.vm_word} {vms}{rest}" if vms else ""]
        yield f"  {_time(entry.at)}  {', '.join(filter(None, lines))}"


def _notice(item: Mapping[str, Any]) -> str:
    if item["noticeSeconds"] is None:
        return ""
    promised = words.event_type(item["eventType"]).notice
    against = "" if promised is None else f", {span(promised[0])} promised"
    return f" (notice {span(item['noticeSeconds'])}{against})"


def _decision(item: Mapping[str, Any]) -> str:
    decision = item["decision"]
    lines = [words.DECISIONS[decision["state"]]]
    if decision["by"]:
        lines.append(f"by {decision['by']}")
    if decision["at"]:
        lines.append(f"at {_time(seconds_of(decision['at']))}")
    if decision["reason"]:
        lines.append(f"reason: {decision['reason']}")
    return ", ".join(lines)


def _time(at: float | None) -> str:
    if at is None:
        return "unknown"
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
