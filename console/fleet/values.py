"""The rows that the fleet's state follows from, as values. Times are seconds since 1970."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final, NamedTuple

from console.fleet.contact import Contact
from console.records.incoming import EventReport, PreparationFacts, ReceiptFacts

CLEAR: Final = "clear"
DEFAULT_SITE: Final = "default"
_MAX_KEY: Final = 400
"""Bytes of a text in an index with others, an event's id among them: PostgreSQL takes 2,700 in all.
"""
_MAX_SORTED: Final = 300
"""Characters of a name by which lists are sorted."""
_MAX_DIGITS: Final = 18
_DIGITS: Final = re.compile(rf"[0-9]{{1,{_MAX_DIGITS}}}")


class EventKey(NamedTuple):
    """What tells an event from every other: Azure's id, and the scope within which it is unique."""

    event_id: str
    scope: str


Alike = tuple[str, str]
"""A place, and a name without the number at its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetName:
    """The name, place and site by which the fleet knows a VM: its first report sets them, and an
    admin has to accept a change.
    """

    name: str
    subscription_id: str | None
    resource_group: str | None
    scale_set: str | None
    site: str
    resource_id: str | None

    @property
    def compared(self) -> tuple[str, ...]:
        """Equal for two that are the same: Azure writes a name in any case."""
        names = (self.name, self.subscription_id, self.resource_group, self.scale_set)
        return (*(folded(each or "") for each in names), self.site)

    @property
    def id(self) -> str:
        """Equal for two that are the same, to be sent back by who has read it."""
        return _hash("\n".join(self.compared))[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Vm:
    """One row per VM: who it is, and its last contact."""

    vm_id: str
    name: str
    site: str = DEFAULT_SITE
    resource_id: str | None = None
    subscription_id: str | None = None
    resource_group: str | None = None
    location: str | None = None
    zone: str | None = None
    scale_set: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    """What it says, and in place of that what an admin gave it."""
    bound_tags: Mapping[str, str] = field(default_factory=dict)
    """Those that an admin gave it."""
    version: str | None = None
    session: str | None = None
    stream: str | None = None
    sequence: int = 0
    record_time: float = 0.0
    """Of the newest record, by the VM's clock."""
    heard_at: float = 0.0
    heard_by: str = ""
    """Name of the source."""
    interval: float | None = None
    """Seconds between its heartbeats."""
    stopped_at: float | None = None
    lost_at: float | None = None
    lost_session: str | None = None
    retired_at: float | None = None
    retired_by: str | None = None
    commands: str | None = None
    """Name of the source over which it takes commands."""
    prepares: bool = False
    """Whether it has a program that prepares."""
    missing: int = 0
    """How many records never came."""
    pulled_at: float | None = None
    """When it last polled the HTTPS command channel."""
    first_at: float = 0.0
    """Since when it bears its name in its place; zero if that was before this was noted."""
    reported_as: FleetName | None = None
    """What it says that it is now, without effect; None if it says what it is known as."""
    withheld: bool = False
    """Whether another VM that is there bears its name in its place: events name that one."""
    conflict_at: float | None = None
    """Since when one of these is so; None if neither is."""
    accepted_at: float = 0.0
    """When a person said that its name is right; zero if that was never needed."""
    behind: float = 0.0
    """By how many seconds its clock is behind the console's, as its heartbeats show."""
    changed: int = 0
    """Number of the transaction that last changed more of it than the time of its contact."""

    @property
    def place(self) -> str:
        """Where its name is unique: a key of subscription, resource group and scale set. A VM of
        which Azure did not say them, or whose name is another's, has a place of its own.
        """
        if self.withheld or not self.subscription_id or not self.resource_group:
            parts = ["vm", self.vm_id]
        else:
            parts = [self.subscription_id, self.resource_group, self.scale_set or ""]
        return sha256("\n".join(parts).lower().encode(errors="replace")).hexdigest()

    @property
    def alike(self) -> Alike | None:
        """Equal for the VMs of a resource group whose names differ in the number at the end alone;
        None if its name ends in no number, or if it is of a scale set, which says more.
        """
        text = folded(self.name)
        stem = text.rstrip("0123456789")
        if self.scale_set or not stem or stem == text:
            return None
        return self.place, stem

    @property
    def scope(self) -> str:
        """Within what an event's id is unique: subscription and resource group, if known."""
        if not self.subscription_id or not self.resource_group:
            return ""
        return _as_key(f"{self.subscription_id}/{self.resource_group}".lower())

    @property
    def known_as(self) -> FleetName:
        """The name, place and site of this report."""
        return FleetName(
            name=self.name,
            subscription_id=self.subscription_id,
            resource_group=self.resource_group,
            scale_set=self.scale_set,
            site=self.site,
            resource_id=self.resource_id,
        )

    @property
    def conflict_id(self) -> str | None:
        """What a person has seen who accepts what it says; None if there is no conflict."""
        if self.conflict_at is None:
            return None
        return (self.reported_as or self.known_as).id

    def reported_at(self, time: float, received_at: float) -> float:
        """A time that it says, by the console's clock, and never later than it came in."""
        return min(time + self.behind, received_at)

    def is_named_by(self, report: EventReport) -> bool:
        """Whether an event names this VM: by the name that it bears, whatever it says itself."""
        if self.withheld:
            return False
        own = folded(self.name)
        names = report.event.resources
        return report.affects_this_vm and any(folded(name) == own for name in names)


def folded(name: str) -> str:
    """A name as it is compared: in any case."""
    return _as_key(name.casefold())


def _as_key(text: str) -> str:
    """A text as it stands in an index: one that is too long is cut, and its hash tells it from
    others.
    """
    if len(text) <= _MAX_KEY // 4:  # a sign has four bytes at most
        return text
    whole = text.encode(errors="replace")
    if len(whole) <= _MAX_KEY:
        return text
    return f"{whole[:_MAX_KEY].decode(errors='ignore')}#{sha256(whole).hexdigest()}"


def _hash(text: str) -> str:
    return sha256(text.encode(errors="replace")).hexdigest()


def sort_name(name: str) -> str:
    """A name as lists are sorted by it: web-2 stands before web-10."""
    return _DIGITS.sub(lambda found: found[0].zfill(_MAX_DIGITS), name.casefold())[:_MAX_SORTED]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """How far a VM's stream has come in."""

    vm_id: str
    stream: str
    low: int
    high: int
    high_time: float
    """Time of the record with the highest sequence, by the VM's clock."""
    beat_time: float | None = None
    """Time of its newest heartbeat or start: the next ones are due whole intervals later."""
    beat_lag: float | None = None
    """Seconds from then until it came in, by the clocks of VM and console."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceGap:
    """Sequences of a stream that have not come, both ends included."""

    vm_id: str
    stream: str
    first: int
    last: int
    found_at: float
    seconds: float = 0.0
    """Between the records on its two sides, by the VM's clock."""

    @property
    def size(self) -> int:
        """How many."""
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LatestReport:
    """What one reporter says of one event: its newest record about it."""

    event_id: str
    vm_id: str
    record_id: str
    stream: str
    sequence: int
    """Zero if it is from a state document."""
    time: float
    """As `Vm.reported_at` has it: of several VMs they are compared."""
    first_at: float
    """The time of the reporter's first record about the event."""
    report: EventReport
    scope: str = ""
    """Of the reporter: within it the event's id is unique."""
    is_own: bool = False
    """Whether the event names its reporter, by the name that it bears."""

    @property
    def key(self) -> EventKey:
        """The event's id and scope."""
        return EventKey(self.event_id, self.scope)

    @property
    def content_hash(self) -> str:
        """Equal for two reporters that say the same."""
        names = "\n".join(sorted(self.report.event.resources))
        return _hash(f"{self.report.fingerprint}\n{names}")

    @property
    def wording_hash(self) -> str | None:
        """Equal for two reporters whose words for it are the same: they are no part of the
        fingerprint. None if they are not known: a state document has none.
        """
        if not self.sequence:
            return None
        return _hash(f"{self.report.impact}\n{self.report.event.description}")

    @property
    def names_hash(self) -> str:
        """Equal for two reporters that name the same VMs."""
        return _hash("\n".join(sorted(map(folded, self.report.event.resources))))

    @property
    def is_weak(self) -> bool:
        """Whether it shows the event only until another reporter does: it cannot be proven, or the
        event goes on without this reporter.
        """
        return self.report.goes_on or not self.report.is_proven


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetEvent:
    """One row per event: which reporter it is shown by, and whether it is over."""

    event_id: str
    scope: str = ""
    """Of its first reporter."""
    state: str
    """`scheduled`, `started` or `ended`, as the shown reporter says."""
    shown_by: str
    """vmId of the reporter whose newest record is the newest by time."""
    shown_at: float
    first_at: float
    event_type: str | None = None
    not_before: float | None = None
    is_news: bool = False
    """Whether it only tells something: nothing is due, and no VM's condition changes."""
    sites: tuple[str, ...] = ()
    words: str = ""
    """What `q` searches: event id and resource names, in small letters."""
    status: str = ""
    """Azure's word, as the shown reporter says; ours at the end."""
    started_at: float | None = None
    """When a reporter first saw it under way; None if none did."""
    notice: float | None = None
    """Seconds from when it was first seen until notBefore, on the VM that had most of it."""
    downtime: float | None = None
    """Seconds that a VM was away, of the VM that was away longest."""

    @property
    def key(self) -> EventKey:
        """The event's id and scope."""
        return EventKey(self.event_id, self.scope)


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """One state of one command, as the VM reported it."""

    record_id: str
    vm_id: str
    at: float
    """When it came in: what the console waits for is counted from here."""
    time: float
    """When it was so, as `Vm.reported_at` has it."""
    facts: ReceiptFacts
    scope: str = ""
    """Of the VM."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedPreparation:
    """How far a VM has prepared for an event: the newest that it said of that."""

    vm_id: str
    scope: str
    """Of the VM."""
    facts: PreparationFacts
    stream: str
    sequence: int
    """Zero if it is from a state document."""
    time: float
    """As `Vm.reported_at` has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a person or a program said about an event, and how it ended."""

    id: str
    event_id: str
    fingerprint: str
    """Of the event as it was seen."""
    kind: str
    """`approve` or `leave`."""
    state: str
    """`second` (waits for the second person), `open`, or `over`."""
    actor: str
    reason: str
    at: float
    second_actor: str | None = None
    not_before: float | None = None
    outcome: str | None = None
    """`confirmed`, `failed`, `rejected`, `unanswered`, `left` or `overtaken`."""
    outcome_reason: str | None = None
    """One word: a receipt's reason, or one of the console's own."""
    over_at: float | None = None
    claimed_by: str | None = None
    """The console that sends its command now."""
    claimed_until: float | None = None
    scope: str = ""
    """Of the event."""

    @property
    def key(self) -> EventKey:
        """The event's id and scope."""
        return EventKey(self.event_id, self.scope)

    @property
    def actors(self) -> str:
        """Who decided."""
        return self.actor if self.second_actor is None else f"{self.actor}, {self.second_actor}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What one VM was asked to do for a decision; its token is signed when it is sent."""

    jti: str
    decision_id: str
    event_id: str
    fingerprint: str
    vm_id: str
    channel: str
    """Name of a source, or of the HTTPS channel."""
    subject: str
    reason: str
    made_at: float
    expires_at: float
    """In whole seconds; changed only as long as it has not been sent."""
    sent_at: float | None = None
    """When the broker took it, or the VM fetched it."""
    unanswered_at: float | None = None
    """When the console stopped waiting for its receipt."""
    scope: str = ""
    """Of the event."""
    act: str = "approve"
    """Or `prepare`: then it belongs to the turn of its event, and to no decision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionHistory:
    """All that was decided about an event: the newest decision, and every command, oldest first."""

    decision: Decision | None = None
    commands: tuple[Command, ...] = ()


UNDECIDED = DecisionHistory()


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """A VM that an event names, as far as it is known."""

    folded: str
    """The name, as names are compared."""
    vm_id: str
    contact: Contact
    heard_at: float
    commands: str | None
    pulled_at: float | None
    content_hash: str | None
    """Of its own report of the event; None if it has not reported it."""
    is_over: bool
    """Whether the event is over, as it says."""
    known_since: float
    """When the first word of it came in."""
    site: str
    prepares: bool = False
    is_grouped: bool = False
    """Whether a group of this console has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnHolder:
    """A VM that is away in a group, and the event for which it is."""

    vm_id: str
    name: str
    event_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTurn:
    """The turn of an event, as it is shown."""

    state: str
    since: float
    groups: tuple[str, ...]
    held_by: tuple[TurnHolder, ...]
    """While it waits: who is away in its groups, if they are full; later: its own VMs."""
    reason: str | None
    by: str | None
    asked: str | None
    """The reason of the person who asked."""
    is_free: bool
    """Whether it goes on only if a person asks, and one who approves it is not refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """Somebody is on it, until then."""

    actor: str
    until: float


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownEvent:
    """All that the rows hold of an event at one moment."""

    event: FleetEvent
    shown: LatestReport
    """Of the reporter by which it is shown."""
    seen_by: int
    """How many VMs have reported it."""
    differing: bool
    """Whether they do not all say the same."""
    named: Mapping[str, Named]
    """The VMs that it names, by the name as it is compared."""
    receipts: Sequence[Receipt]
    """Those that count, of VMs that it names by their own records, the oldest first."""
    decided: DecisionHistory
    turn: EventTurn | None = None
    """None: no group has its VMs, or it was not looked at yet."""
    other_scopes: tuple[str, ...] = ()
    """Scopes that have reported another event under the same id: a conflict."""
    disputed: tuple[tuple[str, str], ...] = ()
    """vmId and name of the VMs that have reported it and are in conflict themselves."""
    assigned: Assignment | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeardVm:
    """A VM, and how it is heard at one moment."""

    vm: Vm
    contact: Contact


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What a VM expects: its condition, and the open events that name it."""

    condition: str = CLEAR
    events: tuple[str, ...] = ()
