"""The rows that the fleet's state follows from, as values. Times are seconds since 1970."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from console.records.incoming import EventFacts, ReceiptFacts

DEFAULT_INTERVAL = 60.0
"""Seconds from one heartbeat to the next, until a heartbeat says otherwise."""
DEFAULT_SITE = "default"


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
    missing: int = 0
    """How many records never came."""

    @property
    def scope(self) -> tuple[str, str, str] | None:
        """Where its name is unique; None if Azure did not say."""
        if not self.subscription_id or not self.resource_group:
            return None
        return (
            self.subscription_id.lower(),
            self.resource_group.lower(),
            (self.scale_set or "").lower(),
        )


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
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
class Sighting:
    """What one witness says of one event: its newest record about it."""

    event_id: str
    vm_id: str
    record_id: str
    stream: str
    sequence: int
    time: float
    """By the VM's clock, but never later than it came in."""
    first_at: float
    """The time of the witness's first record about the event."""
    facts: EventFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One row per EventId: which witness it is shown by, and whether it is over."""

    event_id: str
    state: str
    """`scheduled`, `started` or `ended`, as the shown witness says."""
    shown_by: str
    """vmId of the witness whose newest record is the newest by time."""
    shown_at: float
    first_at: float
    event_type: str | None = None
    sites: tuple[str, ...] = ()
    words: str = ""
    """What `q` searches: event id and resource names, in small letters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """One state of one command, as the VM reported it."""

    record_id: str
    vm_id: str
    at: float
    facts: ReceiptFacts


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """All that was decided about an event: the newest decision, and every command, oldest first."""

    decision: Decision | None = None
    commands: tuple[Command, ...] = ()


UNDECIDED = Decided()


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """An event that has ended, with its witnesses by vmId."""

    event: Event
    witnesses: Mapping[str, Sighting]
