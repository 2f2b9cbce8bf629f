"""What the page calls things: Azure's types of events, and the states of VMs and decisions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from console.web.pages.text import MINUTE


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
    }
)
UNKNOWN_TYPE: Final = EventType(
    effect="effect unknown", meaning="The console does not know this type of event.", notice=None
)

ASKED_BY: Final[Mapping[str, str]] = MappingProxyType(
    {"Platform": "Azure (Platform)", "User": "a person or a program of yours (User)"}
)

CONTACT_MEANINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "heard": "Its bridge reports as expected.",
        "late": "More than half of the silent time has passed since its last message.",
        "silent": "Its bridge does not report any more, or its connection was lost.",
        "stopped": "Its bridge said that it stops.",
        "learning": "Known from before; this console has not heard it since it started to listen.",
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

COMMAND_STATES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "approve": "approved",
        "leave": "left until its time",
        "sent": "sent to the VM",
        "accepted": "accepted by the VM",
        "posted": "given to Azure",
        "confirmed": "confirmed, the event starts",
        "failed": "failed",
        "rejected": "rejected by the VM",
        "unanswered": "no answer from the VM",
    }
)
# Why a bridge refused a command or failed with it (docs/control-plane.md).
REASONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "too_large": "The command was larger than a bridge takes.",
        "retained": "The broker had kept the command; only a new one counts.",
        "malformed": "The command was not a valid token.",
        "unknown_key": "The VM does not know the key that signed the command.",
        "bad_signature": "The signature of the command is wrong.",
        "wrong_audience": "The command was for another VM.",
        "expired": "The command came too late. Compare the clocks of console and VM.",
        "not_yet_valid": "The command is from the future. Compare the clocks of console and VM.",
        "lifetime_too_long": "The command was valid for longer than a bridge allows.",
        "not_allowed": "The settings of the VM do not allow it.",
        "replayed": "The same command had come before.",
        "unknown_event": "The VM does not see this event any more.",
        "event_changed": "The event has changed since it was decided.",
        "already_started": "The event had started already.",
        "rate_limited": "The VM had taken too many commands in this minute.",
        "imds_refused": "Azure's metadata service refused the approval.",
        "imds_unreachable": "Azure's metadata service did not answer the VM.",
    }
)


def event_type(name: str | None) -> EventType:
    """What is known of a type; Azure may invent new ones."""
    return TYPES.get((name or "").lower(), UNKNOWN_TYPE)
