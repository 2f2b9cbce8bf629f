"""What turns are decided from: one reading of the fleet, its events and its turns, as values.

Times are seconds since 1970.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from console.turns.groups import Group
from console.turns.machine import HOLDING, State

Why = Literal["turn", "preparing", "started", "silent", "stopped"]
Progress = Literal["preparing", "prepared", "failed", "recovered"]
HeldBy = tuple[str, str | None]
"""The vmId of a VM that is away, and the key of the event for which it is."""
GROUP_ACTOR: Final = "group:"
"""Before the name of a group that approves by itself."""


def key_of(event_id: str, scope: str) -> str:
    """The key of an event: its id within its scope."""
    return f"{scope}\n{event_id}"


def event_id_of(key: str) -> str:
    """The id of the event of a key."""
    return key.rpartition("\n")[2]


def scope_of(key: str) -> str:
    """The scope of the event of a key."""
    return key.rpartition("\n")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class VmPreparation:
    """What a VM last said about its preparation for one event."""

    event_key: str
    fingerprint: str
    state: Progress
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class VmFacts:
    """One VM that is not retired."""

    vm_id: str
    name: str
    groups: frozenset[str]
    """Keys of the groups that it belongs to now."""
    contact: Literal["heard", "late", "silent", "stopped", "learning"]
    heard_at: float
    contact_since: float = 0.0
    """Since when it is silent or stopped."""
    prepares: bool = False
    """Whether its status says that it has a program that prepares."""
    has_said: bool = True
    """Whether a status or a heartbeat that says whether it prepares has come."""
    takes_commands: bool = False
    asked_for: str | None = None
    """The key of an event for which it may still follow a command to prepare."""
    preparations: Sequence[VmPreparation] = ()

    @property
    def is_heard(self) -> bool:
        """Whether its word is recent enough to rely on."""
        return self.contact in ("heard", "late")

    @property
    def has_no_program(self) -> bool:
        """Whether it says itself that it prepares nothing: then there is nothing to recover."""
        return self.is_heard and self.has_said and not self.prepares

    def preparation(self, event_key: str) -> VmPreparation | None:
        """What it last said about its preparation for that event."""
        found = [each for each in self.preparations if each.event_key == event_key]
        return max(found, key=lambda each: each.at) if found else None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFacts:
    """One event that is open, as its named VMs report it."""

    key: str
    event_id: str
    fingerprint: str
    status: str
    """Azure's word."""
    named: frozenset[str]
    """vmIds of the VMs that it names, as far as the console knows them."""
    reported_by: frozenset[str] | None = None
    """vmIds of those of them that say so themselves; None if all do."""
    shown_by: str | None = None
    """vmId of the VM by whose report it is known."""
    strangers: tuple[str, ...] = ()
    """Names of `resources` that the console cannot resolve."""
    event_type: str | None = None
    event_source: str | None = None
    duration: float | None = None
    """Seconds; None if unknown."""
    not_before: float | None = None
    started_at: float | None = None
    is_left: bool = False
    """Whether a person left it until its notBefore."""
    is_disputed: bool = False
    """Whether its reporters differ, or it is in conflict: a matter for people."""
    needs_two: bool = False
    """Whether two persons are needed for its approval."""
    has_first: bool = False
    """Whether one of them has approved this state of the event, and that counts still."""
    ended_by: str | None = None
    """The person who has ended the turn of this state of the event."""
    approval: Literal["open", "confirmed", "failed"] | None = None
    """How far the newest approval of this state of the event is."""
    again_at: float | None = None
    """When it may be approved again, if the approval failed for a reason that may pass."""
    may_begin: bool = False
    """Whether a VM may have told Azure, or may still tell it, to start the event."""
    scope: str = ""

    def is_word_on(self, vm: VmFacts, vms: Mapping[str, VmFacts]) -> bool:
        """Whether the event counts for a VM that it names: the VM says so itself, or another member
        of its group does. A VM outside may say what it likes of VMs that are heard.
        """
        if self.reported_by is None or vm.vm_id in self.reported_by:
            return True
        reporter = None if self.shown_by is None else vms.get(self.shown_by)
        return reporter is not None and not reporter.groups.isdisjoint(vm.groups)

    @property
    def order(self) -> tuple[float, str]:
        """Where it stands among those that wait: by notBefore, and then by eventId."""
        return (float("inf") if self.not_before is None else self.not_before, self.event_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """One VM's part of a turn."""

    vm_id: str
    groups: frozenset[str]
    """Keys of its groups when the turn was taken: it stays away in them until it is back."""
    ready_at: float | None = None
    """Since when it is heard again and has recovered; then it rests."""
    back_at: float | None = None
    asked_at: float | None = None
    """Since when it is asked to prepare and says nothing of that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """The turn of one event."""

    event_key: str
    event_id: str
    fingerprint: str
    """Of the state of the event that its commands name."""
    state: State
    since: float
    """When it came into that state."""
    taken_at: float | None = None
    holders: tuple[Holder, ...] = ()
    over_at: float | None = None
    """When its event was over."""
    by: str | None = None
    """The actor of the approval: `group:<name>`, or the person who asked."""
    is_forced: bool = False
    """Whether a person overrode the budget."""
    reason: str | None = None
    """Why it waits, has failed or was forced, in words for people."""
    scope: str = ""
    """Of the event."""
    asked: str | None = None
    """The reason of the person who asked."""
    ended_by: str | None = None
    """The person who has ended it."""
    groups: tuple[str, ...] = ()
    """Keys of the groups that the event touches."""
    held_by: tuple[HeldBy, ...] = ()
    """Who is away in these groups, while it waits."""
    behind: tuple[str, ...] = ()
    """Keys of the events that are before it, while it waits."""
    is_free: bool = False
    """Whether it goes on only if a person asks, and who approves it now is not refused."""

    @property
    def is_held(self) -> bool:
        """Whether its VMs count as away."""
        return self.state in HOLDING

    @property
    def is_by_group(self) -> bool:
        """Whether the console approves by itself."""
        return self.by is not None and self.by.startswith(GROUP_ACTOR)

    @property
    def vm_ids(self) -> frozenset[str]:
        """The VMs that hold it."""
        return frozenset(each.vm_id for each in self.still_away)

    @property
    def still_away(self) -> tuple[Holder, ...]:
        """The VMs that have not come back."""
        return tuple(each for each in self.holders if each.back_at is None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Away:
    """Why one VM is away in a group."""

    vm_id: str
    why: Why
    since: float
    event_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnSituation:
    """One reading of the database: what turns are decided from."""

    groups: Mapping[str, Group]
    vms: Mapping[str, VmFacts]
    """Those that are not retired and may be away, or are named by an event that is open."""
    events: Mapping[str, EventFacts] = field(default_factory=dict)
    """The open ones, by key."""
    turns: Mapping[str, Turn] = field(default_factory=dict)
    """Those that are not over, by the key of their event."""
    followed_until: Mapping[str, float] = field(default_factory=dict)
    """Until when a VM may still follow a command that it has not answered, by the event's key."""
    can_sign: bool = True
    """Whether the console has a key."""
