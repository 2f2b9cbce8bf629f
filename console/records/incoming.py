"""Incoming messages as checked values: a record, a status or a state of one VM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from wire.event import Event
from wire.record import TEST_STREAM
from wire.vm import VmIdentity

UNPROVEN: Final = "unproven:"
"""Prefix of a fingerprint that may not fit what is shown: nothing can be approved by it."""
EventState = Literal["scheduled", "started", "ended"]
RecordKind = Literal["event", "receipt", "heartbeat", "stopped", "other"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventReport:
    """What one reporter sent about an event."""

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
    """Whether it ended only for this reporter, because the event no longer names its VM. Others may
    still see it.
    """

    @property
    def is_proven(self) -> bool:
        """Whether the fingerprint was computed from the fields that are shown."""
        return not self.fingerprint.startswith(UNPROVEN)

    @property
    def state(self) -> EventState:
        """The state of the event by this report."""
        status = self.event.event_status
        if self.transition == "ended" or status in ("Completed", "Canceled"):
            return "ended"
        return "started" if status == "Started" or self.transition == "started" else "scheduled"

    @property
    def is_news(self) -> bool:
        """Whether the event is only information: no decision is due, and it cannot be approved."""
        return self.state == "scheduled" and self.event.is_news


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptContent:
    """What a record reports about a command."""

    jti: str
    event_id: str | None
    state: str
    reason: str | None
    """The bridge's word for why the command went no further."""
    actor: str
    person_reason: str | None = None
    """The approver's own reason; bridges of version 0.1.0 send none."""
    act: str | None = None
    """`approve` or `prepare`; None for a ping, and from bridges up to version 0.2.0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparationContent:
    """What a VM reports about its preparation for one state of an event."""

    event_id: str
    fingerprint: str
    """The fingerprint of the event for which it prepared. Empty once that preparation no longer
    counts: the event was over for the VM, or no longer named it.
    """
    state: str
    """`preparing`, `prepared`, `failed` or `recovered`; `none` only from a state document."""
    reason: str | None = None
    cause: str | None = None
    """What asked for it: `command:<jti>`, `approval:<jti>` or `deadline`; None from a state
    document.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class IncomingRecord:
    """One record; `time` is by the VM's clock and `sent_at` by the console's, in seconds since
    1970.
    """

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
    instance_id: str
    body: bytes
    event: EventReport | None = None
    receipt: ReceiptContent | None = None
    preparation: PreparationContent | None = None
    prepares: bool | None = None
    """Whether the VM has a program that prepares; None if the record does not say."""
    interval: float | None = None
    last_record: int | None = None
    pending_events: int | None = None
    """How many events are pending on the VM, by a heartbeat after a good poll of IMDS; None if the
    record does not say.
    """

    @property
    def is_test(self) -> bool:
        """Whether `seb sinks test` sent it: it shows only that the connection works."""
        return self.stream == TEST_STREAM


@dataclass(frozen=True, slots=True, kw_only=True)
class IncomingStatus:
    """The retained status of a VM; `heard_at` is None if it proves no contact."""

    vm_id: str
    name: str | None
    site: str
    resource_id: str | None
    is_online: bool
    is_lost: bool
    heard_at: float | None
    received_at: float
    source: str
    version: str
    instance_id: str
    takes_commands: bool
    prepares: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class IncomingState:
    """The retained state of a VM: the events that are pending on it."""

    vm_id: str
    name: str | None
    site: str
    resource_id: str | None
    time: float
    received_at: float
    source: str
    events: tuple[tuple[str, EventReport], ...]
    """Record id and report of each event."""
    preparations: tuple[PreparationContent, ...] = ()
    """What the VM says about its preparation for those events, including `none`."""


IncomingMessage = IncomingRecord | IncomingStatus | IncomingState


def event_ids(incoming: IncomingMessage) -> list[str]:
    """Return the ids of the events that a message is about, in its own spelling."""
    if isinstance(incoming, IncomingState):
        listed = [each.event.event_id for _, each in incoming.events]
        return listed + [each.event_id for each in incoming.preparations]
    if isinstance(incoming, IncomingStatus):
        return []
    found = [] if incoming.event is None else [incoming.event.event.event_id]
    about = (incoming.preparation, incoming.receipt)
    return found + [each.event_id for each in about if each is not None and each.event_id]


def with_event_ids(incoming: IncomingMessage, written: Mapping[str, str]) -> IncomingMessage:
    """Return the message with event ids in another spelling; the fingerprint of an event, and the
    bytes of a record, stay as they were received.
    """
    if all(written[each] == each for each in event_ids(incoming)) or isinstance(
        incoming, IncomingStatus
    ):
        return incoming
    if isinstance(incoming, IncomingState):
        return replace(
            incoming,
            events=tuple((id_, _event_with(each, written)) for id_, each in incoming.events),
            preparations=tuple(
                replace(each, event_id=written[each.event_id]) for each in incoming.preparations
            ),
        )
    event = incoming.event
    preparation = incoming.preparation
    receipt = incoming.receipt
    if event is not None:
        event = _event_with(event, written)
    if preparation is not None:
        preparation = replace(preparation, event_id=written[preparation.event_id])
    if receipt is not None and receipt.event_id:
        receipt = replace(receipt, event_id=written[receipt.event_id])
    return replace(incoming, event=event, preparation=preparation, receipt=receipt)


def _event_with(report: EventReport, written: Mapping[str, str]) -> EventReport:
    event = report.event
    return replace(report, event=replace(event, event_id=written[event.event_id]))
