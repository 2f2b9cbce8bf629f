"""Scenarios of a VM, as tables. Times are seconds since the start, at speed 1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from types import MappingProxyType
from typing import Final


class UnknownScenarioError(LookupError):
    """No scenario has this name; the message suggests the nearest ones, or lists all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventKind:
    """A kind of event, in Azure's words. `duration` is seconds, -1 unknown."""

    event_type: str
    source: str = "Platform"
    duration: int = -1
    description: str = ""
    status: str = "Scheduled"
    """Its first EventStatus, if it is announced with notice."""


@dataclass(frozen=True, slots=True)
class Announce:
    """An event appears; `notice`: seconds, None if Started; `vms`: distances from this VM."""

    at: float
    event: str
    kind: EventKind
    notice: float | None
    vms: tuple[int, ...] = (0,)


@dataclass(frozen=True, slots=True)
class Start:
    """The event becomes Started; earlier if it is approved."""

    at: float
    event: str


@dataclass(frozen=True, slots=True)
class End:
    """The event leaves the document."""

    at: float
    event: str


@dataclass(frozen=True, slots=True)
class Reschedule:
    """NotBefore becomes so many seconds after the event's announcement."""

    at: float
    event: str
    notice: float


@dataclass(frozen=True, slots=True)
class Skip:
    """The change at the same time skips one incarnation."""

    at: float


@dataclass(frozen=True, slots=True)
class Reset:
    """The change at the same time gets this incarnation."""

    at: float
    incarnation: int


Step = Announce | Start | End | Reschedule | Skip | Reset


@dataclass(frozen=True, slots=True)
class Scenario:
    """A describing line, and the steps in order; steps of the same time are one change."""

    description: str
    steps: tuple[Step, ...]


MINUTE: Final = 60.0
DAY: Final = 86400.0

MIGRATION: Final = EventKind(
    event_type="Freeze", duration=5, description="Live migration: memory moves to another host."
)
HOST_UPDATE: Final = EventKind(
    event_type="Freeze", duration=9, description="The host is updated under the running VM."
)
REBOOT: Final = EventKind(
    event_type="Reboot", source="User", description="A user asked for a restart."
)
# Azure often leaves the description empty.
REDEPLOY: Final = EventKind(event_type="Redeploy")
USER_REDEPLOY: Final = EventKind(
    event_type="Redeploy", source="User", description="A user asked for a redeployment."
)
DEGRADED: Final = EventKind(
    event_type="Redeploy", description="The host's hardware is predicted to fail."
)
PREEMPT: Final = EventKind(event_type="Preempt")
REBALANCE: Final = EventKind(
    event_type="SpotRebalanceRecommendation",
    description="The spot VM is at a higher risk of eviction.",
    status="Advisory",
)
TERMINATE: Final = EventKind(
    event_type="Terminate", source="User", description="The scale set deletes this instance."
)
FAILURE: Final = EventKind(event_type="Reboot", description="The host's hardware has failed.")

_A = "A"
_B = "B"

# Azure: 15 minutes' notice for Freeze and Reboot, 10 for Redeploy, 30 seconds for Preempt, 5 to 15
# minutes for Terminate, up to 7 days for degraded hardware; Started lasts 5 to 10 minutes.
_TABLE: Final[dict[str, Scenario]] = {
    "live-migration": Scenario(
        "Freeze of 5 s on two VMs, 15 minutes' notice, Started for 7 minutes",
        (Announce(10, _A, MIGRATION, 900, (0, 1)), Start(910, _A), End(1330, _A)),
    ),
    "host-maintenance": Scenario(
        "Freeze of 9 s, 15 minutes' notice, Started for 5 minutes",
        (Announce(10, _A, HOST_UPDATE, 900), Start(910, _A), End(1210, _A)),
    ),
    "user-reboot": Scenario(
        "Reboot that a user asked for, 15 minutes' notice",
        (Announce(10, _A, REBOOT, 900), Start(910, _A), End(1000, _A)),
    ),
    "redeploy": Scenario(
        "Redeploy by the platform, 10 minutes' notice",
        (Announce(10, _A, REDEPLOY, 600), Start(610, _A), End(910, _A)),
    ),
    "user-redeploy": Scenario(
        "Redeploy that a user asked for, 10 minutes' notice",
        (Announce(10, _A, USER_REDEPLOY, 600), Start(610, _A), End(910, _A)),
    ),
    "canceled-maintenance": Scenario(
        "Redeploy with 7 days' notice that is called off after 10 minutes",
        (Announce(10, _A, DEGRADED, 7 * DAY), End(10 + 10 * MINUTE, _A)),
    ),
    "preempt": Scenario(
        "Preempt of a spot VM, 30 seconds' notice",
        (Announce(10, _A, PREEMPT, 30), Start(40, _A), End(70, _A)),
    ),
    "rebalance-recommendation": Scenario(
        "Advisory recommendation to move off a spot VM, then its Preempt 10 minutes later",
        (
            Announce(10, _A, REBALANCE, 60),
            Announce(610, _B, PREEMPT, 30),
            End(610, _A),
            Start(640, _B),
            End(670, _B),
        ),
    ),
    "terminate": Scenario(
        "Terminate by a scale set, 5 minutes' notice",
        (Announce(10, _A, TERMINATE, 300), Start(310, _A), End(340, _A)),
    ),
    "hardware-failure": Scenario(
        "Reboot that is first seen as Started", (Announce(10, _A, FAILURE, None), End(310, _A))
    ),
    "two-events": Scenario(
        "A Reboot of this VM and a Freeze of the next one, in one document",
        (
            Announce(10, _A, REBOOT, 900),
            Announce(10, _B, HOST_UPDATE, 900, (1,)),
            Start(910, _B),
            Start(970, _A),
            End(1060, _A),
            End(1210, _B),
        ),
    ),
    "many-resources": Scenario(
        "Freeze of 9 s on a hundred VMs",
        (Announce(10, _A, HOST_UPDATE, 900, tuple(range(100))), Start(910, _A), End(1210, _A)),
    ),
    "notice-moved": Scenario(
        "Freeze whose NotBefore is put off by 10 minutes, and back again",
        (
            Announce(10, _A, HOST_UPDATE, 900),
            Reschedule(130, _A, 1500),
            Reschedule(250, _A, 900),
            Start(910, _A),
            End(1210, _A),
        ),
    ),
    "skipped-incarnation": Scenario(
        "Reboot whose Started is never served: the incarnation jumps from 2 to 4",
        (Announce(10, _A, REBOOT, 900), Skip(1000), End(1000, _A)),
    ),
    "incarnation-reset": Scenario(
        "Freeze, then a Reboot, after the incarnation went back to 0",
        (
            Announce(10, _A, HOST_UPDATE, 900),
            Start(910, _A),
            Reset(1210, 0),
            End(1210, _A),
            Announce(1210, _B, REBOOT, 900),
            Start(2110, _B),
            End(2200, _B),
        ),
    ),
}

SCENARIOS: Final[Mapping[str, Scenario]] = MappingProxyType(_TABLE)
"""Every scenario by its name."""


def scenario(name: str) -> Scenario:
    """Return the scenario of a name. Raises `UnknownScenarioError`."""
    try:
        return SCENARIOS[name]
    except KeyError:
        near = get_close_matches(name, SCENARIOS, n=3, cutoff=0.5) or list(SCENARIOS)
        message = f"there is no scenario {name!r}; try {', '.join(near)}"
        raise UnknownScenarioError(message) from None
