"""What requests to the API may hold, and the answer to a refused one: `/openapi.json` is generated
from these models.

The models of other answers stand beside the functions that make them: in this package, and for what
is shown of VMs and events in `console/fleet`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StringConstraints,
    WithJsonSchema,
)

from console.fleet.contact import Contact
from console.fleet.model import Model
from console.fleet.values.vm import Condition

DEFAULT_LIMIT: Final = 100
MAX_ITEMS: Final = 1000
"""The limit of one page."""
MAX_CHARACTERS: Final = 300
"""The limit of a parameter, and of a reason."""
MAX_VMS: Final = 1000
"""The limit of one enrolment."""
_MAX_NUMBER: Final = 10**18 - 1


class Error(Model):
    """Why a request was refused."""

    error: str


def _strip(value: Any) -> Any:
    """Return a parameter without outer spaces; an empty one counts as missing."""
    return (value.strip() or None) if isinstance(value, str) else value


Text = Annotated[
    Annotated[str, StringConstraints(max_length=MAX_CHARACTERS, pattern=r"^[^\x00]*$")] | None,
    BeforeValidator(_strip),
]
_Stripped = BeforeValidator(_strip)


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("it has invisible characters, or several lines")
    return text


OneLine = Annotated[
    str, StringConstraints(min_length=1, max_length=MAX_CHARACTERS), AfterValidator(_printable)
]


class NoQuery(Model):
    """The query of an operation without parameters."""


class _PageQuery(Model):
    limit: Annotated[
        Annotated[int, Field(ge=1, le=MAX_ITEMS)] | None,
        _Stripped,
        Field(description=f"How many items; {DEFAULT_LIMIT} unless given"),
    ] = None
    cursor: Annotated[str | None, Field(description="`next` of the page before")] = None

    @property
    def items(self) -> int:
        """How many items are wanted."""
        return self.limit or DEFAULT_LIMIT


def _time(value: Any) -> Any:
    """Return an RFC 3339 time in seconds since 1970; one without a zone is UTC, as browsers send
    it.
    """
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


class EventsQuery(_PageQuery):
    """The filter of events."""

    state: Annotated[Literal["open", "over"] | None, _Stripped, Field(description="Only those")] = (
        None
    )
    q: Annotated[
        Text,
        Field(
            description="A part of an event's id or of a resource's name, a pattern of such names "
            "(db-*), tag=NAME:VALUE, or a part of the reason of a decision"
        ),
    ] = None
    site: Annotated[Text, Field(description="The site")] = None
    type: Annotated[Text, Field(description="The event's type")] = None
    status: Annotated[Text, Field(description="Azure's word, such as Completed")] = None
    by: Annotated[Text, Field(description="A part of the name of who approved it")] = None
    vm: Annotated[Text, Field(description="Name or vmId of a VM that it names")] = None
    tag: Annotated[Text, Field(description="NAME:VALUE of a tag of a VM that it names")] = None
    group: Annotated[
        Text, Field(description="The key of a group, or its name: those that touch it")
    ] = None
    since: Annotated[Time, Field(description="Events that were open at this time or later")] = None
    until: Annotated[Time, Field(description="Events that began at this time or before it")] = None
    format: Annotated[
        Literal["json", "csv"] | None, _Stripped, Field(description="csv: all of them, a row each")
    ] = None


class EventQuery(Model):
    """The parameter that chooses between events with the same id."""

    scope: Annotated[
        Text,
        Field(
            description="The scope, if several have reported events under this id; without it, the "
            "event whose named VM has been known longest"
        ),
    ] = None


class VmsQuery(_PageQuery):
    """The filter of VMs."""

    contact: Annotated[Contact | None, _Stripped, Field(description="How its bridge is heard")] = (
        None
    )
    condition: Annotated[Condition | None, _Stripped, Field(description="What it expects")] = None
    site: Annotated[Text, Field(description="The site")] = None
    location: Annotated[Text, Field(description="The location")] = None
    zone: Annotated[Text, Field(description="The zone")] = None
    scale_set: Annotated[Text, Field(description="The scale set")] = None
    q: Annotated[
        Text, Field(description="A part of the name or of the id, db-*, or tag=NAME:VALUE")
    ] = None


class AuditQuery(Model):
    """Which rows of the audit are wanted."""

    after: Annotated[
        Annotated[int, Field(ge=0, le=_MAX_NUMBER)] | None,
        _Stripped,
        Field(description="The number of the last row that you have"),
    ] = None
    limit: Annotated[
        Annotated[int, Field(ge=1, le=MAX_ITEMS)] | None,
        _Stripped,
        Field(description=f"How many rows; {DEFAULT_LIMIT} unless given"),
    ] = None


class AcceptBody(Model):
    """The `id` of the conflict that the person saw. Without one, what the VM reports now is
    accepted.
    """

    conflict: OneLine | None = None


class ReasonBody(Model):
    """The reason that a person gives."""

    reason: OneLine


class DecisionBody(Model):
    """A decision about an event in the state that was seen."""

    fingerprint: OneLine
    reason: OneLine


class ApprovalBody(DecisionBody):
    """An approval; with `force` even if the event is not due its turn."""

    force: bool = False


class TakeBody(Model):
    """For how many minutes a person works on an event or a VM; 0 releases it."""

    minutes: Annotated[int, Field(ge=0, le=1440)]


class TurnEndBody(Model):
    """The reason for which a turn is ended; with `force` even if it is not stuck."""

    reason: OneLine
    force: bool = False


class EnrolmentBody(Model):
    """VMs to enroll."""

    vm_ids: Annotated[list[str], Field(min_length=1, max_length=MAX_VMS)]
    resource_ids: dict[str, str] = Field(
        default_factory=dict, description="By vmId, the ARM ids: name and scope of these VMs"
    )
    site: str | None = Field(None, description="The site of all these VMs")
    tags: dict[str, str] = Field(
        default_factory=dict,
        description="Tags of all these VMs, for groups; one with an empty value is removed",
    )
