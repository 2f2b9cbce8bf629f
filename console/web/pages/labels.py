"""The words of the pages: for Azure's types of events, and the states of VMs and decisions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from console.fleet.event_view import EventItem
from console.web.pages.formatting import MINUTE, plural


@dataclass(frozen=True, slots=True, kw_only=True)
class EventType:
    """What a type of event does to a VM, as Azure documents it."""

    effect: str
    meaning: str
    notice: tuple[float, float] | None
    """Seconds of notice that Azure promises, at least and at most."""


_QUARTER: Final = (15.0 * MINUTE, 15.0 * MINUTE)
# Azure's overview of Scheduled Events names these times of notice.
TYPES: Final[Mapping[str, EventType]] = MappingProxyType(
    {
        "freeze": EventType(
            effect="short pause",
            meaning="The VM stands still for some seconds. Memory, open files and disks are kept.",
            notice=_QUARTER,
        ),
        "reboot": EventType(
            effect="restart",
            meaning="The operating system restarts. Memory is lost; disks are kept.",
            notice=_QUARTER,
        ),
        "redeploy": EventType(
            effect="move to other hardware",
            meaning="The VM starts again on another host. Memory and temporary disks are lost.",
            notice=(10.0 * MINUTE, 10.0 * MINUTE),
        ),
        "preempt": EventType(
            effect="eviction",
            meaning="Azure takes the spot VM back. Memory and temporary disks are lost.",
            notice=(30.0, 30.0),
        ),
        "terminate": EventType(
            effect="deletion",
            meaning="The VM is deleted. What is stored nowhere else is lost.",
            notice=(5.0 * MINUTE, 15.0 * MINUTE),
        ),
        "spotrebalancerecommendation": EventType(
            effect="advice only",
            meaning="Azure says that it may soon take this spot VM back, and recommends to move its"
            " work elsewhere. Nothing starts at a set time.",
            notice=None,
        ),
    }
)
UNKNOWN_TYPE: Final = EventType(
    effect="effect unknown", meaning="The console does not know this type of event.", notice=None
)

ASKED_BY: Final[Mapping[str, str]] = MappingProxyType(
    {"Platform": "Azure (Platform)", "User": "a person or a program of yours (User)"}
)

FIELD_LABELS: Final[Mapping[str, str]] = {
    "eventType": "Type",
    "eventStatus": "Azure's status",
    "notBefore": "Not before",
    "durationInSeconds": "Announced interruption",
    "eventSource": "Asked for by",
    "resources": "Named VMs",
    "impact": "Impact",
    "description": "Description",
}
"""The names of an event's fields in a comparison of two of its states, in the order of its lines;
see `field_label`.
"""

CONTACT_MEANINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "heard": "Its bridge reports as expected.",
        "late": "More than half of the silent time has passed since its last message.",
        "silent": "Its bridge does not report any more, or its connection was lost.",
        "stopped": "Its bridge has reported that it stopped.",
        "learning": "Not heard for its silent time, while the console or its source was away.",
        "retired": "It is not expected any more.",
    }
)
CONDITION_MEANINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "clear": "No open event names it.",
        "scheduled": "An event that names it is scheduled.",
        "started": "An event that names it has started.",
    }
)
DECISIONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "due": "Decision due",
        "second": "Waits for a second person",
        "left": "Left until its time",
        "approving": "Being approved",
        "approved": "Approved",
        "none": "No decision here",
    }
)
TURNS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "none": "no turn",
        "waiting": "waits for its turn",
        "preparing": "its VMs prepare",
        "prepared": "its VMs have prepared",
        "approving": "its turn: being approved",
        "away": "its VMs are away",
        "over": "its turn is over",
        "forced": "goes without a turn",
        "failed": "not approved: Azure starts it at its time",
        "stuck": "its turn does not end",
    }
)
COMMAND_STATES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "approve": "approved",
        "leave": "left until its time",
        "left": "left until its time",
        "made": "to be sent",
        "sent": "sent",
        "accepted": "accepted by the VM",
        "posted": "given to Azure",
        "confirmed": "confirmed, the event starts",
        "failed": "failed",
        "rejected": "rejected by the VM",
        "unanswered": "no answer",
        "overtaken": "overtaken",
    }
)


def event_type(name: str | None) -> EventType:
    """Return the words for a type of event; Azure may add new types."""
    return TYPES.get((name or "").lower(), UNKNOWN_TYPE)


def field_label(name: str) -> str:
    """Return the name of an event's field in words; one without a label is named after itself."""
    own = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).capitalize()
    return FIELD_LABELS.get(name, own)


def field_order(name: str) -> int:
    """Return the place of a field in a comparison, from 0 on; fields without a label come last."""
    labelled = list(FIELD_LABELS)
    return labelled.index(name) if name in labelled else len(labelled)


def heading(event: EventItem) -> str:
    """Return a heading such as `Reboot of db-3` or `Freeze of 3 VMs`."""
    return heading_of(event.event_type, [each.name for each in event.resources])


def heading_of(event_type: str | None, names: Sequence[str]) -> str:
    """Return the heading of an event, from its type and the names that it lists."""
    whom = names[0] if len(names) == 1 else plural(len(names), "VM") if names else "no named VM"
    return f"{event_type or 'Event'} of {whom}"


def decider(actor: str) -> str:
    """Return in words who decided, for a row: a rule or a group is called one; no person's name
    looks like that.
    """
    kind, colon, name = actor.partition(":")
    if colon and kind == "person":
        return name
    return f"the {kind} {name}" if colon and kind in ("rule", "group") else actor


def actor_label(actor: str, *, here: bool) -> str:
    """Return in words who decided, and what they are; `here`: it was decided in this console, where
    a plain name is a person's.
    """
    kind, colon, name = actor.partition(":")
    if here:
        return f"the group {name}" if colon and kind == "group" else actor
    if colon and kind == "rule":
        return f"the rule {name} of the VM"
    if colon and kind == "local":
        return f"{name} on the VM"
    if colon and kind == "person":
        return f"{name}, on the VM"
    return f"{actor}, by another program that the VM trusts"
