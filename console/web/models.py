"""The API's answers, queries and bodies; `/openapi.json` is generated from them.

A field of an answer is named here, once, and where its value is made (`console/fleet`): an answer
that has another field is a bug, which the tests find.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel

from console.fleet.contact import Contact
from console.fleet.decisions import DecisionState

DEFAULT_LIMIT: Final = 100
MAX_ITEMS: Final = 1000
"""Items of one page."""
MAX_CHARACTERS: Final = 300
"""Characters of a parameter, and of a reason."""
MAX_VMS: Final = 1000
"""VMs of one enrolment."""
_MAX_NUMBER: Final = 10**18 - 1

Condition = Literal["clear", "scheduled", "started"]
TurnState = Literal[
    "none",
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
EventState = Literal["scheduled", "started", "ended"]
CommandState = Literal[
    "sent", "accepted", "posted", "confirmed", "failed", "rejected", "unanswered"
]
Moment = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
Count = Annotated[int, Field(ge=0)]


class Model(BaseModel):
    """Fields are camelCase on the wire, as Azure's are."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", hide_input_in_errors=True
    )


class Error(Model):
    """Why a request was refused."""

    error: str


class Source(Model):
    """Where records come from."""

    name: str
    kind: str
    connected: bool
    last_record_at: Moment | None
    trouble: str | None
    quarantined: Count


class Contacts(Model):
    """VMs by how their bridges are heard."""

    total: Count
    heard: Count
    late: Count
    silent: Count
    stopped: Count
    learning: Count
    retired: Count


class Conditions(Model):
    """VMs by what they expect."""

    clear: Count
    scheduled: Count
    started: Count


class Overview(Model):
    """The fleet in numbers."""

    now: Moment
    vms: Contacts
    conditions: Conditions
    decisions_due: Count
    sources: list[Source]


class Quarantined(Model):
    """What was not a record of ours, of one source for one reason."""

    source: str
    reason: str
    count: Count
    first_at: Moment | None
    last_at: Moment | None
    message: str


class QuarantinedList(Model):
    """All of it, the newest first."""

    items: list[Quarantined]


class Resource(Model):
    """A name that an event lists, and the VM that it was found to be."""

    name: str
    vm_id: str | None
    contact: Contact | None


class Decision(Model):
    """How the decision on an event stands."""

    state: DecisionState
    by: str | None
    reason: str | None
    at: Moment | None


class Try(Model):
    """One command of the console about an event; no answer counts that comes after `until`."""

    jti: str
    vm_id: str
    by: str
    state: CommandState
    reason: str | None
    sent_at: Moment | None
    until: Moment | None
    at: Moment | None


class TurnHolder(Model):
    """A VM that is away in a group, and the event for which it is."""

    vm_id: str
    name: str
    event_id: str | None


class Turn(Model):
    """Whose turn it is, in the groups of the event's VMs."""

    state: TurnState
    groups: list[str]
    held_by: list[TurnHolder]
    since: Moment | None
    reason: str | None


class EventConflict(Model):
    """What contradicts an event: another scope has reported another event under its id (`scope`),
    or a VM that reports it says to be another than it is known as (`vm`).
    """

    kind: Literal["scope", "vm"]
    scope: str | None
    vm_id: str | None
    name: str | None


class Event(Model):
    """An event as a list shows it."""

    event_id: str
    scope: str
    conflicts: list[EventConflict]
    state: EventState
    event_status: str
    event_type: str | None
    event_source: str | None
    impact: str | None
    not_before: Moment | None
    duration_in_seconds: int | None
    description: str | None
    fingerprint: str
    differing: bool
    resources: list[Resource]
    seen_by: Count
    first_seen_at: Moment | None
    turn: Turn
    decision: Decision
    started_at: Moment | None
    ended_at: Moment | None
    downtime_seconds: float | None
    notice_seconds: float | None
    taken_by: str | None
    taken_until: Moment | None
    tries: list[Try]


class EventPage(Model):
    """One page of events; `next` is the cursor of the following one."""

    items: list[Event]
    next: str | None


class ReportDifference(Model):
    """A field in which a reporter says otherwise than the event is shown."""

    field: str
    shown: str | int | list[str] | None
    reported: str | int | list[str] | None


class Reporter(Model):
    """What one VM says of an event."""

    vm_id: str
    name: str | None
    contact: Contact | None
    affects_this_vm: bool
    state: EventState
    event_status: str
    fingerprint: str
    impact: str | None
    description: str | None
    last_seen_at: Moment | None
    notice_seconds: float | None
    pause_seconds: float | None
    downtime_seconds: float | None
    differences: list[ReportDifference]


class TimelineRecord(Model):
    """A record came in."""

    kind: Literal["record"]
    at: Moment | None
    id: str
    vm_id: str
    event_id: str | None
    type: str
    transition: str | None


class TimelineReceipt(Model):
    """A VM said what became of an approval."""

    kind: Literal["receipt"]
    at: Moment | None
    id: str
    vm_id: str
    event_id: str | None
    jti: str
    state: str
    reason: str | None
    by: str | None
    rsn: str | None
    act: str | None


class TimelinePreparation(Model):
    """A VM told how far it has prepared."""

    kind: Literal["preparation"]
    at: Moment | None
    id: str
    vm_id: str
    event_id: str | None
    state: str
    reason: str | None
    cause: str | None


class TimelineDecision(Model):
    """Somebody decided, or the decision ended."""

    kind: Literal["decision"]
    at: Moment | None
    id: str
    event_id: str
    action: str
    by: str
    reason: str | None
    outcome: str | None
    words: str | None


class TimelineCommand(Model):
    """A VM was asked, or did not answer."""

    kind: Literal["command"]
    at: Moment | None
    jti: str
    event_id: str
    vm_id: str
    channel: str
    act: str
    state: str


TimelineEntry = Annotated[
    TimelineRecord | TimelineReceipt | TimelinePreparation | TimelineDecision | TimelineCommand,
    Field(discriminator="kind"),
]


class EventDetail(Event):
    """An event with its reporters and its timeline."""

    witnesses: list[Reporter]
    timeline: list[TimelineEntry]


class VmSaid(Model):
    """What a VM says that it is."""

    name: str
    site: str
    resource_id: str | None
    subscription_id: str | None
    resource_group: str | None
    scale_set: str | None


class VmConflict(Model):
    """What contradicts a VM: it says to be another than it is known as, or its name is that of
    another VM that is there (`isTaken`). `id` is sent back by who accepts what it says.
    """

    id: str
    since: Moment | None
    is_taken: bool
    said: VmSaid


class Vm(Model):
    """A VM as a list shows it."""

    vm_id: str
    name: str
    site: str
    resource_id: str | None
    location: str | None
    zone: str | None
    scale_set: str | None
    contact: Contact
    condition: Condition
    last_heard_at: Moment | None
    bridge_version: str | None
    prepares: bool
    gaps: int
    conflict: VmConflict | None
    events: list[str]
    taken_by: str | None
    taken_until: Moment | None


class VmPage(Model):
    """One page of VMs; `next` is the cursor of the following one."""

    items: list[Vm]
    next: str | None


class Gap(Model):
    """Records that never came."""

    stream: str
    first: int
    last: int
    found_at: Moment | None


class PastEvent(Model):
    """What an event was for one VM."""

    event_id: str
    event_type: str | None
    impact: str | None
    state: EventState
    event_status: str
    affects_this_vm: bool
    not_before: Moment | None
    first_seen_at: Moment | None
    last_seen_at: Moment | None
    notice_seconds: float | None
    duration_in_seconds: int | None
    pause_seconds: float | None
    downtime_seconds: float | None


class VmDetail(Vm):
    """A VM with its history."""

    subscription_id: str | None
    resource_group: str | None
    tags: dict[str, str]
    takes_commands: bool
    retired_by: str | None
    missing: list[Gap]
    history: list[PastEvent]
    timeline: list[TimelineEntry]


class CommandStep(Model):
    """A state that a command has had."""

    state: CommandState
    at: Moment | None
    reason: str | None


class Command(Model):
    """What became of a command."""

    jti: str
    event_id: str
    vm_id: str
    state: CommandState
    reason: str | None
    history: list[CommandStep]


class DecisionTaken(Model):
    """A decision was taken; `jti` is null while a second person is needed."""

    jti: str | None
    state: DecisionState


class Conflict(EventDetail):
    """The event as it is now, and the jti if it is being approved already."""

    error: str
    jti: str | None


class Enrolled(Model):
    """The settings of one VM's bridge, secrets among them."""

    vm_id: str
    generation: int
    settings: dict[str, str]


class EnrolledList(Model):
    """One for each VM that was asked for."""

    items: list[Enrolled]


# What is asked.


def _given(value: Any) -> Any:
    """A parameter without its outer spaces; an empty one is not given."""
    return (value.strip() or None) if isinstance(value, str) else value


Words = Annotated[
    Annotated[str, StringConstraints(max_length=MAX_CHARACTERS, pattern=r"^[^\x00]*$")] | None,
    BeforeValidator(_given),
]
Number = BeforeValidator(_given)


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("it holds signs that cannot be seen, or several lines")
    return text


Line = Annotated[
    str, StringConstraints(min_length=1, max_length=MAX_CHARACTERS), AfterValidator(_printable)
]


class NoQuery(Model):
    """No parameter."""


class _Paged(Model):
    limit: Annotated[
        Annotated[int, Field(ge=1, le=MAX_ITEMS)] | None,
        Number,
        Field(description=f"How many items; {DEFAULT_LIMIT} unless given"),
    ] = None
    cursor: Annotated[str | None, Field(description="`next` of the page before")] = None

    @property
    def items(self) -> int:
        """How many are wanted."""
        return self.limit or DEFAULT_LIMIT


def _time(value: Any) -> Any:
    """RFC 3339; a time without a zone is UTC, as a browser's field for times has it."""
    if not isinstance(value, str) or not value.strip():
        return None
    try:
        found = datetime.fromisoformat(value.strip())
    except ValueError:
        raise ValueError("it is not a time such as 2026-03-02T02:00:00Z") from None
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    return found.timestamp()


Time = Annotated[
    float | None,
    BeforeValidator(_time),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]


class EventsQuery(_Paged):
    """Which events."""

    state: Annotated[Literal["open", "over"] | None, Number, Field(description="Only those")] = None
    q: Annotated[
        Words,
        Field(
            description="A part of an event's id or of a resource's name, a pattern of such names "
            "(db-*), tag=NAME:VALUE, or a part of the reason of a decision"
        ),
    ] = None
    site: Annotated[Words, Field(description="The site")] = None
    type: Annotated[Words, Field(description="The event's type")] = None
    status: Annotated[Words, Field(description="Azure's word, such as Completed")] = None
    by: Annotated[Words, Field(description="A part of the name of who approved it")] = None
    vm: Annotated[Words, Field(description="Name or vmId of a VM that it names")] = None
    tag: Annotated[Words, Field(description="NAME:VALUE of a tag of a VM that it names")] = None
    group: Annotated[
        Words, Field(description="The key of a group, or its name: those that touch it")
    ] = None
    since: Annotated[
        Time, Field(description="Events of whose life some lies at this time or after it")
    ] = None
    until: Annotated[Time, Field(description="And at this time or before it")] = None
    format: Annotated[
        Literal["json", "csv"] | None, Number, Field(description="csv: all of them, a row each")
    ] = None


class EventQuery(Model):
    """Which event of an id."""

    scope: Annotated[
        Words,
        Field(
            description="The scope, if several have reported events under this id; without it, the "
            "event whose named VM has been known longest"
        ),
    ] = None


class VmsQuery(_Paged):
    """Which VMs."""

    contact: Annotated[Contact | None, Number, Field(description="How its bridge is heard")] = None
    condition: Annotated[Condition | None, Number, Field(description="What it expects")] = None
    site: Annotated[Words, Field(description="The site")] = None
    location: Annotated[Words, Field(description="The location")] = None
    zone: Annotated[Words, Field(description="The zone")] = None
    scale_set: Annotated[Words, Field(description="The scale set")] = None
    q: Annotated[
        Words, Field(description="A part of the name or of the id, db-*, or tag=NAME:VALUE")
    ] = None


class AuditQuery(Model):
    """Which rows of the audit."""

    after: Annotated[
        Annotated[int, Field(ge=0, le=_MAX_NUMBER)] | None,
        Number,
        Field(description="The number of the last row that you have"),
    ] = None
    limit: Annotated[
        Annotated[int, Field(ge=1, le=MAX_ITEMS)] | None,
        Number,
        Field(description=f"How many rows; {DEFAULT_LIMIT} unless given"),
    ] = None


class AcceptBody(Model):
    """The conflict of a VM as it was seen: its `id`. Without one, what the VM says now counts."""

    conflict: Line | None = None


class ReasonBody(Model):
    """Why something is done."""

    reason: Line


class DecisionBody(Model):
    """What a person, or a program, says about an event as it was seen."""

    fingerprint: Line
    reason: Line


class ApprovalBody(DecisionBody):
    """An approval; `force`: though the event is not due its turn."""

    force: bool = False


class TakeBody(Model):
    """For how many minutes somebody is on it; 0 gives it back."""

    minutes: Annotated[int, Field(ge=0, le=1440)]


class TurnEndBody(Model):
    """Why a person ends a turn; `force`: though it is not stuck."""

    reason: Line
    force: bool = False


class Group(Model):
    """VMs of one service, of which only so many may be away at once."""

    name: str
    key: str
    members: Count
    at_most: Count
    away: list[AwayVm]
    waiting: list[WaitingEvent]


class AwayVm(Model):
    """A VM that is away, and why."""

    vm_id: str
    name: str
    why: Literal["turn", "preparing", "started", "silent", "stopped"]
    event_id: str | None
    since: Moment | None


class WaitingEvent(Model):
    """An event that waits for its turn, and for whom."""

    event_id: str
    behind: list[str]
    reason: str | None
    since: Moment | None


class GroupList(Model):
    """Every group, in the order of the settings."""

    items: list[Group]


class EnrolmentBody(Model):
    """VMs to enroll."""

    vm_ids: Annotated[list[str], Field(min_length=1, max_length=MAX_VMS)]
    resource_ids: dict[str, str] = Field(
        default_factory=dict, description="By vmId, the ARM ids: name and scope of these VMs"
    )
    site: str | None = Field(None, description="The site of all these VMs")
    tags: dict[str, str] = Field(
        default_factory=dict,
        description="Tags of all these VMs, for groups; one without a value is not given any more",
    )
