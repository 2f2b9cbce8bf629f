"""A remote VM over its broker: its pending events, and the receipts that answer a command."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sinks.base import CommandSender
from wire.event import fingerprint
from wire.record import APPROVAL, RecordError, read_record
from wire.strictjson import JsonError, load_json

FIELDS: Final = ("jti", "evt", "state", "reason", "actor", "issuer", "resources", "rsn")
"""The fields of a receipt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The state that a VM publishes: its name, and its pending events."""

    vm: str | None
    events: tuple[Mapping[str, Any], ...]


def pending(sender: CommandSender, *, seconds: float) -> Shown | None:
    """Return the VM's state; None if none comes in time. Raises what
    `CommandSender.state` raises.
    """
    text = sender.state(seconds)
    try:
        state = load_json(text or b"{}")
        events = state["events"]
        vm = state.get("vm")
    except (JsonError, KeyError, TypeError, AttributeError):
        return None
    if not isinstance(events, list):
        return None
    name = vm.get("name") if isinstance(vm, dict) else None
    return Shown(
        vm=name if isinstance(name, str) else None,
        events=tuple(event for event in events if isinstance(event, dict)),
    )


def find(events: Sequence[Mapping[str, Any]], event_id: str) -> Mapping[str, Any] | None:
    """Return the event with that id. Azure: the case of an EventId differs between its APIs."""
    for event in events:
        if str(event.get("eventId")).casefold() == event_id.casefold():
            return event
    return None


def not_scheduled(event: Mapping[str, Any]) -> str | None:
    """Return why an event of this status cannot be approved, for a person; None if it can."""
    status = event.get("eventStatus")
    if status == "Scheduled":
        return None
    reason = "already_started" if status == "Started" else "not_approvable"
    return f"{reason}: the event is {status}"


def is_what_it_shows(event: Mapping[str, Any]) -> bool:
    """Check whether the fingerprint of an event fits what is shown: a broker could change both."""
    try:
        return bool(event["fingerprint"] == fingerprint(event))
    except (LookupError, TypeError, ValueError):
        return False


def receipts(
    sender: CommandSender,
    jti: str,
    *,
    seconds: float,
    monotonic: Callable[[], float] = time.monotonic,
) -> Iterator[Mapping[str, Any]]:
    """Yield the receipts of one command, for so many seconds. Raises what `CommandSender.receipt`
    raises.
    """
    until = monotonic() + seconds
    while (left := until - monotonic()) > 0:
        body = sender.receipt(left)
        if body is None:
            return
        try:
            record = read_record(body)
        except RecordError:
            continue
        if record.type == APPROVAL and record.data.get("jti") == jti:
            yield {name: record.data.get(name) for name in FIELDS}
