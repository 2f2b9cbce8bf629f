"""An approval from a control plane: what a VM shows as pending, and the receipts that answer.

It decides nothing: it reads what the VM's bridge reports.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bridge.strictjson import JsonError, load_json
from sinks.base import CommandSender
from sinks.record import APPROVAL, RecordError, read_record

FIELDS: Final = ("jti", "evt", "state", "reason", "actor", "issuer", "resources")
"""The fields of a receipt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """A receipt's data, and when it was written (RFC 3339)."""

    time: str
    data: Mapping[str, Any]

    @property
    def state(self) -> str:
        """How far the command has come."""
        return str(self.data.get("state"))

    @property
    def reason(self) -> str | None:
        """Why it came no further; None while nothing is wrong."""
        reason = self.data.get("reason")
        return None if reason is None else str(reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The state that a VM publishes: its name, and its pending events."""

    vm: str | None
    events: tuple[Mapping[str, Any], ...]


def pending(sender: CommandSender, *, seconds: float) -> Shown | None:
    """The VM's state; None if there is none within so many seconds.

    Raises as `CommandSender.state`.
    """
    text = sender.state(seconds)
    try:
        state = load_json(text or b"{}")
        events, vm = state["events"], state.get("vm")
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
    """The event of that id among them. Azure: the case of an EventId differs between its APIs."""
    for event in events:
        if str(event.get("eventId")).casefold() == event_id.casefold():
            return event
    return None


def receipts(
    sender: CommandSender,
    jti: str,
    *,
    seconds: float,
    monotonic: Callable[[], float] = time.monotonic,
) -> Iterator[Receipt]:
    """The receipts of one command as they come, for so many seconds in all.

    Raises as `CommandSender.receipt`.
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
            yield Receipt(time=record.time, data={name: record.data.get(name) for name in FIELDS})
