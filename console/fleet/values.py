"""The rows from which the fleet's state follows, as values. Times are seconds since 1970."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final, Literal, NamedTuple

from console.fleet.contact import Contact
from console.records.incoming import EventReport, EventState, PreparationFacts, ReceiptFacts

Condition = Literal["clear", "scheduled", "started"]
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
CLEAR: Final = "clear"
OPEN: Final = ("scheduled", "started")
"""The states of an event that is not over."""
DEFAULT_SITE: Final = "default"
_MAX_KEY: Final = 400
"""The limit in bytes of a text that shares an index with others, such as an event's id: PostgreSQL
takes 2,700 in all.
"""
_MAX_SORTED: Final = 300
"""How many characters of a name count in the order of lists."""
_MAX_DIGITS: Final = 18
_DIGITS: Final = re.compile(rf"[0-9]{{1,{_MAX_DIGITS}}}")


class EventKey(NamedTuple):
    """Identifies an event: Azure's id, and the scope within which it is unique."""

    event_id: str
    scope: str


NameFamily = tuple[str, str]
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
        """A value that is equal for two names that are the same: Azure writes a name in any
        case.
        """
        names = (self.name, self.subscription_id, self.resource_group, self.scale_set)
        return (*(folded(each or "") for each in names), self.site)

    @property
    def id(self) -> str:
        """A text that is equal for two names that are the same. A client that accepts a name sends
        it back.
        """
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
    """The tags that it reports. A tag of `bound_tags` replaces its own of the same name."""
    bound_tags: Mapping[str, str] = field(default_factory=dict)
    """The tags that an admin has given it."""
    version: str | None = None
    session: str | None = None
    stream: str | None = None
    sequence: int = 0
    record_time: float = 0.0
    """The time of the newest record, by the VM's clock."""
    heard_at: float = 0.0
    heard_source: str = ""
    """The name of the source over which it was last heard."""
    interval: float | None = None
    """The seconds between its heartbeats."""
    stopped_at: float | None = None
    lost_at: float | None = None
    lost_session: str | None = None
    retired_at: float | None = None
    retired_by: str | None = None
    command_source: str | None = None
    """The name of the source over which it takes commands."""
    prepares: bool = False
    """Whether it has a program that prepares."""
    missing_records: int = 0
    """How many records of its streams are missing."""
    pulled_at: float | None = None
    """When it last polled the HTTPS command channel."""
    name_since: float = 0.0
    """When it began to bear its name in its place; zero if that was before this was stored."""
    reported_as: FleetName | None = None
    """The name, place and site that it reports if they differ from those it is known by; None if
    they do not differ. They have no effect until an admin accepts them.
    """
    withheld: bool = False
    """Whether another VM, heard lately, bears its name in its place. Events mean that one by the
    name.
    """
    conflict_at: float | None = None
    """Since when `reported_as` or `withheld` is set; None if neither is."""
    accepted_at: float = 0.0
    """When a person accepted its name; zero if that was never needed."""
    clock_behind: float = 0.0
    """How many seconds its clock is behind the console's, by its heartbeats."""
    change_number: int = 0
    """The number of the last transaction that changed this row, unless it changed only the time of
    contact.
    """

    @property
    def place(self) -> str:
        """The key of its subscription, resource group and scale set. Its name is unique within
        these. If they are unknown, or if its name is withheld, the VM has a place of its own.
        """
        if self.withheld or not self.subscription_id or not self.resource_group:
            parts = ["vm", self.vm_id]
        else:
            parts = [self.subscription_id, self.resource_group, self.scale_set or ""]
        return sha256("\n".join(parts).lower().encode(errors="replace")).hexdigest()

    @property
    def name_family(self) -> NameFamily | None:
        """A value that is the same for all VMs of a resource group whose names differ only in the
        number at the end. None if its name has no number, or if it belongs to a scale set, which is
        the better group.
        """
        text = folded(self.name)
        stem = text.rstrip("0123456789")
        if self.scale_set or not stem or stem == text:
            return None
        return self.place, stem

    @property
    def scope(self) -> str:
        """The key of its subscription and resource group, within which an event's id is unique.
        Empty if they are unknown.
        """
        if not self.subscription_id or not self.resource_group:
            return ""
        return _as_key(f"{self.subscription_id}/{self.resource_group}".lower())

    @property
    def known_as(self) -> FleetName:
        """The name, place and site by which the fleet knows it."""
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
        """The id that a person sends back to accept what it reports; None without a conflict."""
        if self.conflict_at is None:
            return None
        return (self.reported_as or self.known_as).id

    def reported_at(self, time: float, received_at: float) -> float:
        """Convert a time that the VM reports to the console's clock; it is never later than
        `received_at`.
        """
        return min(time + self.clock_behind, received_at)

    def is_named_by(self, report: EventReport) -> bool:
        """Check whether an event names this VM, by the name that it bears and not by one that it
        only reports.
        """
        if self.withheld:
            return False
        own = folded(self.name)
        names = report.event.resources
        return report.affects_this_vm and any(folded(name) == own for name in names)


def folded(name: str) -> str:
    """Return a name in the form in which names are compared: without regard to case."""
    return _as_key(name.casefold())


def _as_key(text: str) -> str:
    """Return a text for an index. A text that is too long is cut, and its hash is appended."""
    if len(text) <= _MAX_KEY // 4:  # a sign has four bytes at most
        return text
    whole = text.encode(errors="replace")
    if len(whole) <= _MAX_KEY:
        return text
    return f"{whole[:_MAX_KEY].decode(errors='ignore')}#{sha256(whole).hexdigest()}"


def _hash(text: str) -> str:
    return sha256(text.encode(errors="replace")).hexdigest()


def sort_name(name: str) -> str:
    """Return a name in the form by which lists are sorted: web-2 comes before web-10."""
    return _DIGITS.sub(lambda found: found[0].zfill(_MAX_DIGITS), name.casefold())[:_MAX_SORTED]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """How much of a VM's stream has come in."""

    vm_id: str
    stream: str
    low: int
    high: int
    high_time: float
    """The time of the record with the highest sequence, by the VM's clock."""
    beat_time: float | None = None
    """The time of its newest heartbeat or start, by the VM's clock. The next heartbeats are due
    whole intervals after it.
    """
    beat_lag: float | None = None
    """The seconds from `beat_time` to the moment at which that record came in, by the console's
    clock.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceGap:
    """Records of a stream that have not come in: those with the sequences `first` to `last`."""

    vm_id: str
    stream: str
    first: int
    last: int
    found_at: float
    seconds: float = 0.0
    """The time from the record before the gap to the one after it, by the VM's clock."""

    @property
    def size(self) -> int:
        """How many sequences are missing."""
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LatestReport:
    """The newest report of one reporter about one event."""

    event_id: str
    vm_id: str
    record_id: str
    stream: str
    sequence: int
    """The sequence of the record; zero if the report is from a state document."""
    time: float
    """The time of the report, by the console's clock, as `Vm.reported_at` converts it: times of
    several VMs are compared.
    """
    first_seen_at: float
    """The time of the reporter's first record about the event."""
    report: EventReport
    scope: str = ""
    """The scope of the reporter, within which the event's id is unique."""
    is_own: bool = False
    """Whether the event names the reporter, by the name that the reporter bears."""

    @property
    def key(self) -> EventKey:
        """The event's id and scope."""
        return EventKey(self.event_id, self.scope)

    @property
    def content_hash(self) -> str:
        """A hash that is equal for two reporters that report the same."""
        names = "\n".join(sorted(self.report.event.resources))
        return _hash(f"{self.report.fingerprint}\n{names}")

    @property
    def wording_hash(self) -> str | None:
        """A hash that is equal for two reporters that report the same impact and description. The
        fingerprint covers neither. None for a state document, which has neither.
        """
        if not self.sequence:
            return None
        return _hash(f"{self.report.impact}\n{self.report.event.description}")

    @property
    def names_hash(self) -> str:
        """A hash that is equal for two reporters that name the same VMs."""
        return _hash("\n".join(sorted(map(folded, self.report.event.resources))))

    @property
    def is_weak(self) -> bool:
        """Whether the event is shown by this report only until another VM reports it. So it is if
        the report cannot be proven, or if the event goes on without this reporter.
        """
        return self.report.goes_on or not self.report.is_proven


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetEvent:
    """The row of an event: which reporter it is shown by, and whether it is over."""

    event_id: str
    scope: str = ""
    """The scope of the VMs that report it."""
    state: EventState
    """From the report that is shown."""
    shown_by: str
    """The vmId of the VM whose report is shown, as `reporter_choice` chooses it."""
    shown_at: float
    first_seen_at: float
    event_type: str | None = None
    not_before: float | None = None
    is_news: bool = False
    """Whether the event is only information: no decision is due, and no VM's condition changes."""
    sites: tuple[str, ...] = ()
    search_text: str = ""
    """The text that `q` searches: event id and resource names, in lower case."""
    status: str = ""
    """Azure's status, from the report that is shown. Once the event is over, how it ended."""
    started_at: float | None = None
    """When a VM first saw the event started; None before that."""
    notice: float | None = None
    """The seconds from the moment at which a VM first saw the event to its notBefore: the longest
    of all VMs.
    """
    downtime: float | None = None
    """The seconds for which a VM was away: the longest of all VMs."""

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
    """When the receipt came in. The console measures its own waits from this time."""
    time: float
    """When the VM reached this state, by the console's clock, as `Vm.reported_at` converts it."""
    facts: ReceiptFacts
    scope: str = ""
    """The scope of the VM."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedPreparation:
    """The latest report of a VM about its preparation for an event."""

    vm_id: str
    scope: str
    """The scope of the VM."""
    facts: PreparationFacts
    stream: str
    sequence: int
    """The sequence of the record; zero if the report is from a state document."""
    time: float
    """The time of the report, by the console's clock, as `Vm.reported_at` converts it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a person or a program decided about an event, and how that ended."""

    id: str
    event_id: str
    fingerprint: str
    """The fingerprint of the event as the person saw it."""
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
    """The reason of the outcome in one word, from a receipt or from the console."""
    over_at: float | None = None
    claimed_by: str | None = None
    """The run of a console that sends a command of this decision now."""
    claimed_until: float | None = None
    scope: str = ""
    """The scope of the event."""

    @property
    def key(self) -> EventKey:
        """The event's id and scope."""
        return EventKey(self.event_id, self.scope)

    @property
    def actors(self) -> str:
        """The names of the persons who decided."""
        return self.actor if self.second_actor is None else f"{self.actor}, {self.second_actor}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What one VM was asked to do; its token is signed when it is sent."""

    jti: str
    decision_id: str
    event_id: str
    fingerprint: str
    vm_id: str
    channel: str
    """The name of the source over which it is sent, or of the HTTPS channel."""
    subject: str
    reason: str
    made_at: float
    expires_at: float
    """When its token expires, in whole seconds. It does not change once the command is sent."""
    sent_at: float | None = None
    """When the broker accepted it, or the VM fetched it."""
    unanswered_at: float | None = None
    """When the console stopped waiting for its receipt."""
    scope: str = ""
    """The scope of the event."""
    act: str = "approve"
    """`approve` for a decision, or `prepare` for the turn of an event; a `prepare` belongs to no
    decision.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionHistory:
    """The newest decision on an event, and every command about the event, the oldest first."""

    decision: Decision | None = None
    commands: tuple[Command, ...] = ()


UNDECIDED = DecisionHistory()


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """A VM that an event names."""

    folded: str
    """The name in the form in which names are compared."""
    vm_id: str
    contact: Contact
    heard_at: float
    command_source: str | None
    pulled_at: float | None
    content_hash: str | None
    """The hash of its own report of the event; None if it has not reported it."""
    is_over: bool
    """Whether it reports that the event is over."""
    name_since: float
    """When it began to bear its name in its place."""
    site: str
    prepares: bool = False
    gave_up_on: str | None = None
    """The fingerprint of the state of the event for which its program gave up, if it did."""
    is_grouped: bool = False
    """Whether the VM belongs to a group of this console."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """A person who works on an event or a VM, until a time."""

    actor: str
    until: float


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownEvent:
    """Everything that the rows have of an event at one moment."""

    event: FleetEvent
    shown: LatestReport
    """The report by which the event is shown."""
    seen_by: int
    """How many VMs have reported the event."""
    differing: bool
    """Whether the reports of these VMs differ."""
    named: Mapping[str, Named]
    """The VMs that the event names, by the folded name."""
    receipts: Sequence[Receipt]
    """The receipts that count, the oldest first. They are from VMs that the event names by their
    own reports.
    """
    decided: DecisionHistory
    turn: EventTurn | None = None
    """The turn of the event. None if no group has its VMs, or if nothing has been decided about
    turns since it came in.
    """
    other_scopes: tuple[str, ...] = ()
    """The other scopes that have an event with this id: a conflict."""
    disputed: tuple[tuple[str, str], ...] = ()
    """vmId and name of each reporter that is itself in conflict."""
    assigned: Assignment | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeardVm:
    """A VM and its contact at one moment."""

    vm: Vm
    contact: Contact


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What is coming to a VM: its condition, and the open events that name it."""

    condition: Condition = CLEAR
    events: tuple[str, ...] = ()
