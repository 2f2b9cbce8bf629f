"""Incoming messages as checked values: a record, a status or a state of one VM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from wire.event import Event
from wire.record import TEST_STREAM
from wire.vm import VmIdentity

UNPROVEN: Final = "unproven:"
"""Before a fingerprint that may not be that of what is shown: nothing can be approved by it."""
RecordKind = Literal["event", "receipt", "heartbeat", "stopped", "other"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventReport:
    """What one reporter says of an event."""

    event: Event
    transition: str
    affects_this_vm: bool
    impact: str | None
    revision: int
    fingerprint: str
    notice_seconds: float | None = None
    pause_seconds: float | None = None
    downtime_seconds: float | None = None
    goes_on: bool = False
    """It ended for this reporter alone, which it names no more; others may still see it."""

    @property
    def is_proven(self) -> bool:
        """Whether the fingerprint is that of what is shown: one was computed from the other."""
        return not self.fingerprint.startswith(UNPROVEN)

    @property
    def state(self) -> str:
        """`scheduled`, `started` or `ended`."""
        status = self.event.event_status
        if self.transition == "ended" or status in ("Completed", "Canceled"):
            return "ended"
        return "started" if status == "Started" or self.transition == "started" else "scheduled"

    @property
    def is_news(self) -> bool:
        """Whether it only tells something: nothing is due, and nothing can be approved."""
        return self.state == "scheduled" and self.event.is_news


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptFacts:
    """What a record says of a command."""

    jti: str
    event_id: str | None
    state: str
    reason: str | None
    """The bridge's word for why it came no further."""
    actor: str
    why: str | None = None
    """The approver's own reason; bridges of version 0.1.0 send none."""
    act: str | None = None
    """`approve` or `prepare`; None for a ping, and from bridges up to version 0.2.0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparationFacts:
    """How far a VM says that it has prepared for one state of an event."""

    event_id: str
    fingerprint: str
    """Of that state; empty once the event was over for the VM, also if it comes back unchanged."""
    state: str
    """`preparing`, `prepared`, `failed` or `recovered`; `none` from a state document alone."""
    reason: str | None = None
    cause: str | None = None
    """Who asked: `command:<jti>`, `approval:<jti>` or `deadline`; None from a state document."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IncomingRecord:
    """One record; `time` is the VM's clock and `sent_at` the console's, in seconds since 1970."""

    id: str
    type: str
    kind: RecordKind
    vm: VmIdentity
    site: str | None
    stream: str
    sequence: int
    time: float
    sent_at: float
    received_at: float
    source: str
    version: str
    session: str
    body: bytes
    event: EventReport | None = None
    receipt: ReceiptFacts | None = None
    preparation: PreparationFacts | None = None
    prepares: bool | None = None
    """Whether the VM has a program that prepares; None if the record does not say."""
    interval: float | None = None
    last_record: int | None = None

    @property
    def is_test(self) -> bool:
        """Whether `seb sinks test` sent it: it shows that the way works, and nothing more."""
        return self.stream == TEST_STREAM


@dataclass(frozen=True, slots=True, kw_only=True)
class IncomingStatus:
    """What the retained status of a VM says; `heard_at` is None if it proves no contact."""

    vm_id: str
    name: str | None
    site: str
    resource_id: str | None
    online: bool
    lost: bool
    heard_at: float | None
    received_at: float
    source: str
    version: str
    session: str
    commands: bool
    prepares: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class IncomingState:
    """The events that are pending on a VM, from its retained state."""

    vm_id: str
    name: str | None
    site: str
    resource_id: str | None
    time: float
    received_at: float
    source: str
    events: tuple[tuple[str, EventReport], ...]
    """Record id and event."""
    preparations: tuple[PreparationFacts, ...] = ()
    """How far the VM has prepared for those events, `none` included."""


Incoming = IncomingRecord | IncomingStatus | IncomingState
