"""The messages that a broker retains for each VM: its pending events, and the status of
its bridge.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Final, TypeVar

from wire.event import EVENT_FIELDS, FINGERPRINTED, Event, fingerprint
from wire.fields import (
    BOOLEAN,
    FINGERPRINT,
    TEXT,
    TIME,
    VM_ID,
    WORD,
    Field,
    FieldError,
    FieldType,
    list_of,
    object_of,
    one_of,
    or_null,
    read_fields,
    read_object,
    to_object,
    whole_number,
    word_of,
)
from wire.preparation import NONE
from wire.strictjson import canonical_json
from wire.vm import VmIdentity

NOT_IN_STATE: Final = frozenset({"description"})
"""Fields of an event that are only in its record: retained messages are kept short."""
_OF_THE_EVENT: Final = tuple(name for name in EVENT_FIELDS if name not in NOT_IN_STATE)
_MAX_EVENTS: Final = 10_000

T = TypeVar("T")


class StateError(ValueError):
    """The bytes are not a valid document; `reason` is one word for a metric."""

    def __init__(self, message: str, *, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingEvent:
    """A pending event as it is now, for a state topic or a status page."""

    record_id: Annotated[str, Field(WORD, "Id of its newest record")]
    event: Event
    affects_this_vm: Annotated[bool, Field(BOOLEAN, "Whether resources names this VM")]
    impact: Annotated[str | None, Field(or_null(WORD), "What it means for the VM")]
    revision: Annotated[int, Field(whole_number(least=1), "Grows with each change of the event")]
    fingerprint: Annotated[str, Field(FINGERPRINT, "Of the newest record")]
    preparation: Annotated[
        str | None,
        Field(
            word_of(NONE, "preparing", "prepared", "failed", None),
            "How far the VM has prepared for this state of the event; null if it prepares nothing",
            is_optional=True,
        ),
    ] = None
    is_what_it_shows: bool = True
    """Whether the fingerprint is that of the fields shown here. In a document of version 0.1.0 it
    is not, because that has fewer fields: it does not show everything that an approver must have
    seen.
    """

    def to_wire(self) -> dict[str, Any]:
        """Return the object that topics and pages show."""
        event = self.event.to_wire()
        return {name: event[name] for name in _OF_THE_EVENT} | to_object(self)

    @classmethod
    def from_wire(cls, found: Any) -> PendingEvent:
        """Read strictly what `to_wire` wrote; unknown fields are ignored. Raises `FieldError`. A
        fingerprint must match the fields that it covers, if all of these are there.
        """
        event = read_object(Event, found)
        values = read_fields(cls, found)
        is_what_it_shows = values["fingerprint"] == fingerprint(found)
        if not is_what_it_shows and _is_whole(found):
            raise FieldError("it is not that of the event", path="fingerprint")
        return cls(event=event, **values, is_what_it_shows=is_what_it_shows)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortVm:
    """The part of a VM's identity that says which VM it is."""

    vm_id: Annotated[str, Field(VM_ID, "Azure's unique id of the VM")]
    name: Annotated[str | None, Field(or_null(WORD), "What Resources lists")]
    resource_id: Annotated[str | None, Field(or_null(TEXT), "ARM id")]

    @classmethod
    def of(cls, vm: VmIdentity) -> ShortVm:
        """Return the short form of a whole identity."""
        return cls(vm_id=vm.vm_id, name=vm.name, resource_id=vm.resource_id)


_PENDING: Final = FieldType({"type": "object"}, PendingEvent.from_wire, PendingEvent.to_wire)


@dataclass(frozen=True, slots=True, kw_only=True)
class VmState:
    """The document on `…/state`: the pending events of a VM."""

    vm: Annotated[ShortVm | None, Field(object_of(ShortVm, is_nullable=True), "The VM")]
    time: Annotated[datetime, Field(TIME, "When it was written")]
    events: Annotated[tuple[PendingEvent, ...], Field(list_of(_PENDING, most=_MAX_EVENTS))]


@dataclass(frozen=True, slots=True, kw_only=True)
class VmStatus:
    """The document on `…/status`: whether the bridge of a VM is online."""

    status: Annotated[str, Field(one_of("online", "offline"), "Whether the bridge is connected")]
    reason: Annotated[
        str | None,
        Field(or_null(WORD), "Why it is offline; `lost` if the connection ended without a message"),
    ]
    time: Annotated[datetime | None, Field(or_null(TIME), "When; null in the last will")]
    version: Annotated[str, Field(WORD, "Version of the bridge")]
    session: Annotated[str, Field(WORD, "The bridge's instance id")]
    sink: Annotated[str | None, Field(or_null(TEXT), "Name of the sink that is connected")]
    commands: Annotated[bool, Field(BOOLEAN, "Whether the bridge takes commands here")] = False
    prepares: Annotated[
        bool, Field(BOOLEAN, "Whether a program prepares the VM", is_optional=True)
    ] = False
    vm: Annotated[ShortVm | None, Field(object_of(ShortVm, is_nullable=True), "The VM")]


def write_document(document: VmState | VmStatus) -> bytes:
    """Return the bytes of a state or a status."""
    return canonical_json(to_object(document))


def read_state(body: bytes) -> VmState:
    """Read a state document strictly. Raises `StateError`."""
    return _read(VmState, body)


def read_status(body: bytes) -> VmStatus:
    """Read a status document strictly. Raises `StateError`."""
    return _read(VmStatus, body)


def _read(kind: type[T], body: bytes) -> T:
    from pydantic_core import from_json  # noqa: PLC0415  # costs 30 ms, and is for readers only

    try:
        found = from_json(body)  # NaN is refused where a number is read
    except ValueError as error:
        raise StateError(str(error), reason="not_json") from None
    try:
        return read_object(kind, found)
    except FieldError as error:
        reason = "missing_field" if error.is_missing else "wrong_type"
        raise StateError(str(error), reason=reason) from None


def _is_whole(found: Mapping[str, Any]) -> bool:
    """Check whether all the fields are there that the fingerprint covers."""
    return set(FINGERPRINTED) <= found.keys()
