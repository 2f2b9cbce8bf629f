"""What is to be done about turns: the values that `schedule.plan` returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from console.fleet.values import EventKey
from console.turns.situation import HeldBy
from console.turns.transitions import Trigger


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """The reason why an event does not have its turn yet."""

    event_key: EventKey
    groups: tuple[str, ...]
    reason: str | None
    behind: tuple[EventKey, ...] = ()
    """Keys of the events that come before it: they hold a turn, or wait in front of it."""
    needs_people: bool = False
    """Whether it continues only if a person asks for that."""
    is_free: bool = False
    """Whether an approval by a person would be allowed now."""
    held_by: tuple[HeldBy, ...] = ()
    """The VMs that are away in its groups, without those that it names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Take:
    """Gives an event its turn: its VMs are away from now on."""

    event_key: EventKey
    groups: Mapping[str, frozenset[str]]
    """The keys of the groups of each VM, by vmId."""
    actor: str
    is_forced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """Adds VMs to a turn that is held: the event has changed and names them now."""

    event_key: EventKey
    groups: Mapping[str, frozenset[str]]
    """The keys of the groups of each VM, by vmId."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Something happened to a turn."""

    event_key: EventKey
    trigger: Trigger
    reason: str | None = None
    actor: str | None = None
    """The new actor of its approval, if that changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Back:
    """The end of a VM's part of a turn."""

    event_key: EventKey
    vm_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All that is to be done after one reading."""

    takes: tuple[Take, ...] = ()
    joins: tuple[Join, ...] = ()
    moves: tuple[Move, ...] = ()
    backs: tuple[Back, ...] = ()
    rests: tuple[Back, ...] = ()
    """VMs that are heard again and have recovered: their rest begins now."""
    prepares: tuple[tuple[EventKey, str], ...] = ()
    """Event key and vmId of each VM that is to prepare and has not reported that it has."""
    silences: frozenset[tuple[EventKey, str]] = frozenset()
    """Event key and vmId of each VM that was asked to prepare and has reported nothing about that,
    also if it is not heard now.
    """
    approvals: tuple[EventKey, ...] = ()
    """Keys of the events whose VMs are prepared and within the budget now."""
    waiting: Mapping[EventKey, Waiting] = field(default_factory=dict)
    """Why each event waits, by its key."""
    free: Mapping[EventKey, bool] = field(default_factory=dict)
    """For each turn that has failed, by event key, whether a person may take it again."""
