"""The facts from which turns are decided: of VMs, of pending events and of turns.

Times are seconds since 1970.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from console.fleet.values.keys import EventKey
from console.fleet.values.turn import TurnState
from console.turns.groups import Group
from console.turns.transitions import HOLDING
from wire.event import Event
from wire.preparation import State as PreparationState

HeldBy = tuple[str, EventKey | None]
"""The vmId of a VM that is away, and the key of the event for which it is."""
GROUP_ACTOR: Final = "group:"
"""Prefix of the actor of an approval by a group; the group's name follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VmPreparation:
    """What a VM last reported about its preparation for one event."""

    event_key: EventKey
    fingerprint: str
    state: PreparationState
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class VmFacts:
    """What turns need to know of one VM; it is not retired."""

    vm_id: str
    name: str
    groups: frozenset[str]
    """Keys of the groups that it belongs to now, or may belong to if it is not described."""
    contact: Literal["heard", "late", "silent", "stopped", "learning"]
    """Never `late` before one and a half of its heartbeat intervals have passed, however short the
    silent time is: a VM that is there is not late between two heartbeats.
    """
    heard_at: float
    instance_id: str | None = None
    """The run of its bridge that it has told last."""
    may_have_unread: bool = False
    """Whether it may have told something that no console has read."""
    contact_since: float = 0.0
    """When it became silent or stopped."""
    prepares: bool = False
    """Whether its status says that it has a program that prepares."""
    has_said: bool = True
    """Whether a status or a heartbeat has come that says if it prepares."""
    takes_commands: bool = False
    asked_for: EventKey | None = None
    """The key of an event for which it may still follow a command to prepare, or None."""
    missed_end: EventKey | None = None
    """The key of an event that it reports as pending, and whose end others have reported since half
    of its silent time has passed: it may be away for it still.
    """
    reported: frozenset[EventKey] = frozenset()
    """Of a VM that holds a turn: the keys of the events that it reports itself as pending, and that
    name it by that report.
    """
    preparations: Sequence[VmPreparation] = ()
    is_described: bool = True
    """Whether a record of it has come; otherwise its tags, zone and location are not known."""

    @property
    def is_heard_or_late(self) -> bool:
        """Whether its last message is recent enough to rely on: its contact is heard or late."""
        return self.contact in ("heard", "late")

    @property
    def prepares_nothing(self) -> bool:
        """Whether it has reported that it does not prepare."""
        return self.has_said and not self.prepares

    def preparation(self, event_key: EventKey) -> VmPreparation | None:
        """Return what it last reported about its preparation for that event, or None."""
        found = [each for each in self.preparations if each.event_key == event_key]
        return max(found, key=lambda each: each.at) if found else None

    def preparation_of_state(self, event: EventFacts) -> PreparationState | None:
        """Return how far it is with its preparation for this state of the event, or None."""
        last = self.preparation(event.key)
        return last.state if last is not None and last.fingerprint == event.fingerprint else None

    def is_prepared(self, event: EventFacts) -> bool:
        """Check whether it reported that it is prepared for this state of the event."""
        return self.preparation_of_state(event) == "prepared"

    def has_failed(self, event: EventFacts) -> bool:
        """Check whether it reported that it could not prepare for this state of the event."""
        return self.preparation_of_state(event) == "failed"

    def has_answered(self, event: EventFacts) -> bool:
        """Check whether it reported that it began to prepare for this state of the event."""
        return self.preparation_of_state(event) not in (None, "recovered")

    def has_recovered(self, event_key: EventKey) -> bool:
        """Check whether it has nothing to recover from: it has recovered, or never prepared."""
        last = self.preparation(event_key)
        return last is None or last.state == "recovered"


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFacts:
    """What turns need to know of one pending event."""

    key: EventKey
    fingerprint: str
    reported: Event
    """The event as it is shown: what the keys of a group are compared with."""
    status: str
    """`Scheduled` or `Started`, as Azure reports it."""
    named: frozenset[str]
    """vmIds of the VMs that it names, as far as the console knows them."""
    reported_by: frozenset[str] | None = None
    """vmIds of the named VMs that report the event themselves; None if all do."""
    shown_by: str | None = None
    """vmId of the VM whose report is shown."""
    started_for: Mapping[str, float] = field(default_factory=dict)
    """The VMs that report themselves that it has started and names them, whatever is shown of it:
    by vmId, each with the time of its report.
    """
    unknown_names: tuple[str, ...] = ()
    """Names of `resources` that the console cannot resolve."""
    not_before: float | None = None
    started_at: float | None = None
    is_left: bool = False
    """Whether a person left it until its notBefore."""
    is_disputed: bool = False
    """Whether its reporters differ, or it is in conflict: then people decide."""
    needs_two: bool = False
    """Whether two persons are needed for its approval."""
    first_actor: str | None = None
    """The first of two persons, who has approved this state of the event, if that still counts."""
    ended_by: str | None = None
    """The person who has ended the turn of this state of the event."""
    approval: Literal["open", "confirmed", "failed"] | None = None
    """The state of the newest approval of this state of the event."""
    again_at: float | None = None
    """When it may be approved again, after a failure for a reason that may pass."""
    may_begin: bool = False
    """Whether a VM may have told Azure, or may still tell it, to start the event."""

    @property
    def event_id(self) -> str:
        """Azure's id of the event."""
        return self.key.event_id

    def counts_for(self, vm: VmFacts, vms: Mapping[str, VmFacts]) -> bool:
        """Check whether the event counts for a VM that it names: the VM reports it itself, or it is
        shown by a member of one of the VM's groups. A VM outside cannot send away a VM that is
        heard.
        """
        if self.reported_by is None or vm.vm_id in self.reported_by:
            return True
        reporter = None if self.shown_by is None else vms.get(self.shown_by)
        return reporter is not None and not reporter.groups.isdisjoint(vm.groups)

    @property
    def order(self) -> tuple[float, str]:
        """The position among waiting events: by notBefore, and then by eventId."""
        return (float("inf") if self.not_before is None else self.not_before, self.event_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnVm:
    """One VM's part of a turn."""

    vm_id: str
    groups: frozenset[str]
    """Keys of its groups when the turn was taken: it counts as away in them until it is back."""
    ready_at: float | None = None
    """When it was heard again and had recovered: its rest began."""
    back_at: float | None = None
    unanswered_since: float | None = None
    """When it was asked to prepare, while it has not answered; None otherwise."""
    runs: tuple[str | None, ...] = ()
    """The instance ids of the newest runs of its bridge in which it has rested."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """The turn of one event."""

    event_key: EventKey
    fingerprint: str
    """The state of the event that its commands name."""
    state: TurnState
    since: float
    """When it entered that state."""
    taken_at: float | None = None
    vms: tuple[TurnVm, ...] = ()
    over_at: float | None = None
    """When its event ended."""
    actor: str | None = None
    """The actor of the approval: `group:<name>`, or the person who asked."""
    is_overridden: bool = False
    """Whether a person overrode the budget."""
    reason: str | None = None
    """Why it waits, has failed or was forced, as a sentence for people."""
    person_reason: str | None = None
    """The reason that the person gave who asked for it."""
    ended_by: str | None = None
    """The person who has ended it."""
    groups: tuple[str, ...] = ()
    """Keys of the groups that the event touches."""
    held_by: tuple[HeldBy, ...] = ()
    """The VMs that are away in these groups, while it waits."""
    behind: tuple[EventKey, ...] = ()
    """Keys of the events that come before it, while it waits."""
    person_may_approve: bool = False
    """Whether it waits for a person, and an approval by one would be allowed now."""

    @property
    def event_id(self) -> str:
        """Azure's id of the event."""
        return self.event_key.event_id

    @property
    def is_held(self) -> bool:
        """Whether its VMs count as away."""
        return self.state in HOLDING

    @property
    def is_by_group(self) -> bool:
        """Whether a group approves it, and not a person."""
        return self.actor is not None and self.actor.startswith(GROUP_ACTOR)

    @property
    def vm_ids(self) -> frozenset[str]:
        """The vmIds of the VMs that hold it."""
        return frozenset(each.vm_id for each in self.still_away)

    @property
    def still_away(self) -> tuple[TurnVm, ...]:
        """The VMs that have not come back."""
        return tuple(each for each in self.vms if each.back_at is None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFacts:
    """Everything from which turns are decided."""

    groups: Mapping[str, Group]
    vms: Mapping[str, VmFacts]
    """Every VM that is not retired and may be away, or that a pending event names, by vmId."""
    events: Mapping[EventKey, EventFacts] = field(default_factory=dict)
    """The pending events, by key."""
    turns: Mapping[EventKey, Turn] = field(default_factory=dict)
    """The turns that are not over, by the key of their event."""
    followed_until: Mapping[EventKey, float] = field(default_factory=dict)
    """By event key, the time until which a VM may still follow a command that it has not
    answered.
    """
    bad_tokens: Mapping[str, str] = field(default_factory=dict)
    """The tokens that took a turn, or approved an event as the first of two, and in whose name
    nothing is approved any more: by actor, with the reason, as the end of a sentence.
    """
    can_sign: bool = True
    """Whether the console has a signing key."""
    has_latest_groups: bool = True
    """Whether the console that was started last has the same groups."""

    def named(self, event: EventFacts) -> list[VmFacts]:
        """Return the VMs that the event names and the console knows, in the order of vmId."""
        return [self.vms[vm_id] for vm_id in sorted(event.named) if vm_id in self.vms]

    def groups_touched(self, event: EventFacts) -> tuple[str, ...]:
        """Return the keys of the groups of the VMs that the event names, in order."""
        keys = {key for vm in self.named(event) for key in vm.groups}
        return tuple(sorted(keys & self.groups.keys()))

    def group_actor(self, event: EventFacts) -> str:
        """Return the actor of an approval of the event by its first group."""
        return f"{GROUP_ACTOR}{self.groups[self.groups_touched(event)[0]].settings.name}"

    def with_turns(self, changed: Mapping[EventKey, Turn]) -> TurnFacts:
        """Return the facts after these turns have changed; those that are over are left out."""
        turns = {**self.turns, **changed}
        return replace(
            self, turns={key: turn for key, turn in turns.items() if turn.state != "over"}
        )
