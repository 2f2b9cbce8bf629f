"""The turn of an event, as it is shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

TurnState = Literal[
    "waiting",
    "preparing",
    "prepared",
    "approving",
    "away",
    "over",
    "forced",
    "failed",
    "stuck",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnHolder:
    """A VM that is away in a group, and the event for which it is."""

    vm_id: str
    name: str
    event_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTurn:
    """The turn of an event, as it is shown."""

    state: TurnState
    since: float
    groups: tuple[str, ...]
    held_by: tuple[TurnHolder, ...]
    """If the turn waits for room, the VMs that are away in its groups. Otherwise the VMs that hold
    it.
    """
    reason: str | None
    actor: str | None
    person_reason: str | None
    """The reason that the person gave who asked for it."""
    person_may_approve: bool
    """Whether it waits for a person, and an approval by one would be allowed now."""
