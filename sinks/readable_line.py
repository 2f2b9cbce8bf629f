"""The readable line of a record; no control character reaches a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sinks.shared.text import escaped, listed
from wire.event import is_news
from wire.record import APPROVAL, EVENT_ENDED, Record

_RESET: Final = "\x1b[0m"
# By what a person must do: yellow for new events, red for now, green for over, dim for the rest.
_COLOURS: Final = {
    "scheduled": "\x1b[33m",
    "updated": "\x1b[33m",
    "started": "\x1b[31m",
    "ended": "\x1b[32m",
    "confirmed": "\x1b[32m",
    "rejected": "\x1b[31m",
    "failed": "\x1b[31m",
    "accepted": "\x1b[33m",
    "posted": "\x1b[33m",
    "bridge heartbeat": "\x1b[2m",
    "bridge gap": "\x1b[33m",
    "bridge store-reset": "\x1b[31m",
    "bridge dead-letter": "\x1b[31m",
}
_MIN_DESCRIPTION: Final = 12
_NAMED: Final = 3
"""How many VMs an approval names at most; the rest are only counted."""


def readable_line(
    record: Record, *, now: datetime, width: int | None = None, colour: bool = False
) -> str:
    """Return one line for a person; `now` is for the countdown, `width` in columns or None."""
    word = record.type.split(".")[2] if record.type.count(".") > 1 else record.type
    event = record.data.get("event")
    description = ""
    tint = word
    if isinstance(event, Mapping):
        facts = _event_facts(record, event, now)
        description = event.get("description") or ""
    elif record.type == APPROVAL:
        facts = _approval_facts(record.data)
        word = "approval"
        tint = str(record.data.get("state"))
    else:
        facts = _bridge_facts(record, word)
        word = f"bridge {word}"
        tint = word
    label = escaped(f"{word:<9}")
    start = f"{_clock(record.time)} {label}"
    line = escaped("  ".join([start, *(fact for fact in facts if fact)]))
    line += _shortened(escaped(description), None if width is None else width - len(line) - 2)
    sign = _COLOURS.get(tint) if colour else None
    return line.replace(label, f"{sign}{label}{_RESET}", 1) if sign else line


def _event_facts(record: Record, event: Mapping[str, Any], now: datetime) -> list[str]:
    changed = record.data.get("changed")
    nothing_is_due = record.type == EVENT_ENDED or is_news(event.get("eventStatus"))
    return [
        f"{event.get('eventType') or 'unknown type'} {event.get('eventStatus')}",
        _whom(record, event.get("resources") or []),
        _when(event.get("notBefore"), None if nothing_is_due else now),
        _impact(record.data.get("impact"), event.get("durationInSeconds")),
        f"changed: {', '.join(changed)}" if changed else "",
        _measured(record.data.get("observation") or {}),
    ]


def _whom(record: Record, resources: list[Any]) -> str:
    if record.affects_this_vm:
        others = len(resources) - 1
        return "this VM" + (f" and {others} more" if others > 0 else "")
    if not resources:
        return "no VM named"
    return str(resources[0]) if len(resources) == 1 else f"{len(resources)} other VMs"


def _approval_facts(data: Mapping[str, Any]) -> list[str]:
    """Return state, event, actor and VMs of an approval, and the approver's reason."""
    reason = data.get("reason")
    event = data.get("evt")
    issuer = data.get("issuer")
    names = [str(name) for name in data.get("resources") or ()]
    return [
        f"{data.get('state')}: {reason}" if reason else str(data.get("state")),
        f"event {event}" if event else "ping",
        f"by {data.get('actor')} ({issuer})" if issuer else f"by {data.get('actor')}",
        f"releases {listed(names, _NAMED)}" if names else "",
        f"because: {data['rsn']}" if data.get("rsn") else "",
    ]


def _when(not_before: object, now: datetime | None) -> str:
    """Return the earliest start and the time left. Without `now` it is only the start."""
    if not isinstance(not_before, str):
        return ""
    try:
        moment = datetime.fromisoformat(not_before)
    except ValueError:
        return f"not before {not_before}"
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    if now is None:
        return f"not before {_clock(not_before)}"
    left = moment - now
    clock = _clock(not_before) if left < timedelta(hours=20) else not_before
    seconds = int(left.total_seconds())
    due = f"in {compact_span(seconds)}" if seconds >= 1 else "now due"
    return f"not before {clock} ({due})"


def compact_span(seconds: int) -> str:
    """Return a number of seconds in words, in its two largest units."""
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d {hours}h"
    if hours:
        return f"{hours}h {minutes:02}m"
    return f"{minutes}m {seconds:02}s" if minutes else f"{seconds}s"


def _impact(impact: object, duration: object) -> str:
    if impact is None:
        return "impact unknown"
    expected = f" of {duration} s" if isinstance(duration, int) and duration > 0 else ""
    return "no impact" if impact == "none" else f"{impact}{expected}"


def _measured(observation: Mapping[str, Any]) -> str:
    seen = []
    if observation.get("pauseSeconds"):
        seen.append(f"paused {observation['pauseSeconds']:.1f} s")
    if observation.get("restarted"):
        seen.append("restarted")
    if observation.get("downtimeSeconds"):
        seen.append(f"down {observation['downtimeSeconds']:.0f} s")
    facts = [f"measured: {', '.join(seen)}"] if seen else []
    if observation.get("goesOnWithoutThisVm"):
        facts.append("goes on without this VM")
    return "  ".join(facts)


def _bridge_facts(record: Record, word: str) -> list[str]:
    """Return the fields of a record about the bridge, as `name=value`; nested ones are left out."""
    fields = {
        name: value
        for body in (value for key, value in record.data.items() if key not in _AROUND)
        if isinstance(body, Mapping)
        for name, value in body.items()
    }
    if word == "heartbeat":
        return [
            f"alive, {fields.get('pendingEvents')} pending, last poll {fields.get('lastPollTime')}"
        ]
    plain = (str, int, float)
    return [
        f"{name}={','.join(map(str, value)) if isinstance(value, list) else value}"
        for name, value in fields.items()
        if isinstance(value, (*plain, list))
    ] or [record.subject]


_AROUND: Final = ("vm", "node", "bridge")


def _clock(time: str) -> str:
    return f"{time[11:19]}Z" if len(time) > len("2026-03-01T12:00:00") else time


def _shortened(description: str, room: int | None) -> str:
    """Return the description, cut to the remaining width; empty if the width is too small."""
    if not description:
        return ""
    if room is None or len(description) <= room:
        return f"  {description}"
    return f"  {description[: room - 1]}\u2026" if room >= _MIN_DESCRIPTION else ""
