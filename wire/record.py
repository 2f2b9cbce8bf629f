"""The record: a CloudEvents 1.0 envelope. Its bytes are made once, when it is committed, and are
the same in the store, in every signature and at every sink.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Any, Final
from uuid import UUID, uuid5

from wire.bridge import (
    DeadLetterData,
    GapData,
    HeartbeatData,
    StartedData,
    StoppedData,
    StoreResetData,
)
from wire.event import EventData, fingerprint
from wire.fields import (
    OBJECT,
    POSITION,
    TEXT,
    TIME,
    VM_ID,
    WORD,
    Field,
    FieldError,
    one_of,
    read_object,
)
from wire.moment import rfc3339
from wire.observer import Observer
from wire.preparation import PreparationData
from wire.receipt import ReceiptData

JsonObject = Mapping[str, Any]

SPECVERSION: Final = "1.0"
DATA_CONTENT_TYPE: Final = "application/json"
CONTENT_TYPE: Final = "application/cloudevents+json"
DATA_SCHEMA: Final = "urn:scheduled-events-bridge:record:v1"

EVENT_SCHEDULED: Final = "seb.event.scheduled.v1"
EVENT_UPDATED: Final = "seb.event.updated.v1"
EVENT_STARTED: Final = "seb.event.started.v1"
EVENT_ENDED: Final = "seb.event.ended.v1"
APPROVAL: Final = "seb.approval.v1"
PREPARATION: Final = "seb.preparation.v1"
BRIDGE_HEARTBEAT: Final = "seb.bridge.heartbeat.v1"
TEST_STREAM: Final = "00000000-0000-0000-0000-000000000000"
"""The stream of the records that `seb sinks test` sends: it is no bridge's stream, so a consumer
accepts them and stores nothing.
"""
BRIDGE_STARTED: Final = "seb.bridge.started.v1"
BRIDGE_STOPPED: Final = "seb.bridge.stopped.v1"
BRIDGE_STORE_RESET: Final = "seb.bridge.store-reset.v1"
BRIDGE_DEAD_LETTER: Final = "seb.bridge.dead-letter.v1"
BRIDGE_GAP: Final = "seb.bridge.gap.v1"

DATA_OF: Final[Mapping[str, type[Observer]]] = {
    EVENT_SCHEDULED: EventData,
    EVENT_UPDATED: EventData,
    EVENT_STARTED: EventData,
    EVENT_ENDED: EventData,
    APPROVAL: ReceiptData,
    PREPARATION: PreparationData,
    BRIDGE_HEARTBEAT: HeartbeatData,
    BRIDGE_STARTED: StartedData,
    BRIDGE_STOPPED: StoppedData,
    BRIDGE_STORE_RESET: StoreResetData,
    BRIDGE_DEAD_LETTER: DeadLetterData,
    BRIDGE_GAP: GapData,
}
"""The class of `data` for every type of record."""
EVENT_TYPES: Final = tuple(each for each, data in DATA_OF.items() if data is EventData)
BRIDGE_TYPES: Final = tuple(each for each in DATA_OF if each.startswith("seb.bridge."))

# The namespace of every record id. Changing it would give old facts new ids.
ID_NAMESPACE: Final = UUID("6f1d7d0c-52d8-5a43-9a55-0c1f0f3bb0a9")

_COMPACT: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)


class RecordError(ValueError):
    """The bytes are not a valid record; `reason` is one word for a metric."""

    def __init__(self, message: str, *, reason: str = "wrong_type") -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordDraft:
    """A record before the store has given it a place: without sequence, stream and bytes."""

    type: str
    source: str
    subject: str
    time: datetime
    partition_key: str
    data: JsonObject
    id: str | None = None
    """The id of a fact about an event. None for any other record: `seal` makes its id from its
    place in the stream and its content.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A committed record: its bytes and their content. `data` is the JSON object as it was sealed;
    `data_of` turns it into values.
    """

    body: bytes
    id: str
    type: str
    source: str
    subject: str
    time: str
    sequence: int
    stream: str
    partition_key: str
    data: JsonObject

    @property
    def event_id(self) -> str | None:
        """The EventId that the record is about; None for a record about the bridge itself."""
        event = self.data.get("event")
        return event.get("eventId") if isinstance(event, Mapping) else None

    @property
    def affects_this_vm(self) -> bool | None:
        """Whether the event names the observing VM; None for a record that is not about
        an event.
        """
        affects = self.data.get("affectsThisVm")
        return affects if isinstance(affects, bool) else None

    @property
    def concerns_this_vm(self) -> bool | None:
        """Whether the record is for a reader who follows only this VM's events; None for a record
        that is not about an event.
        """
        concerns = self.data.get("concernsThisVm")  # 0.2.0 did not say so
        return concerns if isinstance(concerns, bool) else self.affects_this_vm

    @property
    def is_end(self) -> bool:
        """Whether this record says that an event is over for this VM: it has ended, or does not
        name this VM.
        """
        return self.type == EVENT_ENDED or self.affects_this_vm is False

    @property
    def is_heartbeat(self) -> bool:
        """Whether this record is a heartbeat, which says only that the bridge is alive."""
        return self.type == BRIDGE_HEARTBEAT

    def envelope(self) -> dict[str, Any]:
        """Return the whole record as the JSON object of its bytes."""
        return {
            "specversion": SPECVERSION,
            "id": self.id,
            "source": self.source,
            "type": self.type,
            "subject": self.subject,
            "time": self.time,
            "datacontenttype": DATA_CONTENT_TYPE,
            "dataschema": DATA_SCHEMA,
            "partitionkey": self.partition_key,
            "sequence": f"{self.sequence:020d}",
            "stream": self.stream,
            "data": self.data,
        }


def event_record_id(
    *,
    vm_id: str,
    event_id: str,
    transition: str,
    revision: int,
    fingerprint: str,
    now: datetime,
) -> str:
    """Return the id of a fact about an event, which was observed at `now`.

    Revision 1 has the same id whenever it is observed: a bridge whose store was lost sees a pending
    event for the first time again. From revision 2 on the time is part of the id: a store that was
    put back to an earlier copy counts revisions a second time, and they are about other facts. The
    incarnation would not distinguish these: it begins again after a day without a poll.
    """
    fact: list[object] = [vm_id.lower(), event_id, transition, revision, fingerprint]
    if revision > 1:
        fact.append(rfc3339(now))
    return str(uuid5(ID_NAMESPACE, json.dumps(fact)))


def draft(
    record_type: str, data: Observer, *, subject: str, now: datetime, record_id: str | None = None
) -> RecordDraft:
    """Return the draft of a record with this data, which is of one of the classes of `DATA_OF`."""
    return RecordDraft(
        type=record_type,
        source=data.vm.source,
        subject=subject,
        time=now,
        partition_key=data.vm.vm_id,
        data=data.to_wire(),
        id=record_id,
    )


def seal(draft: RecordDraft, *, sequence: int, stream: str) -> Record:
    """Give a draft its place in a stream, and make the final bytes."""
    record = Record(
        body=b"",
        id=draft.id or "",
        type=draft.type,
        source=draft.source,
        subject=draft.subject,
        time=rfc3339(draft.time),
        sequence=sequence,
        stream=stream,
        partition_key=draft.partition_key,
        data=draft.data,
    )
    if draft.id is None:
        record = replace(record, id=_id_of_content(record))
    return replace(record, body=_COMPACT.encode(record.envelope()).encode())


def _id_of_content(record: Record) -> str:
    # The place alone is not enough: a store that was restored from an earlier copy gives it again.
    content = record.envelope()
    del content["specversion"], content["id"]
    return str(uuid5(ID_NAMESPACE, _COMPACT.encode(content)))


def read_record(body: bytes) -> Record:
    """Read a record from the bytes that this bridge has sealed. Raises `RecordError`."""
    try:
        return _record(body, _loaded(body))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise RecordError(f"not a record: {type(error).__name__}: {error}") from error


def check_record(body: bytes) -> tuple[Record, Observer]:
    """Read a record that somebody else sent, strictly; return it and its data as values.

    The data of an unknown type is an `Observer`. Unknown fields are ignored. Raises `RecordError`.
    """
    from pydantic_core import from_json  # noqa: PLC0415  # as in `_loaded`

    try:
        found = from_json(body)  # NaN is refused where a number is read
    except ValueError as error:
        raise RecordError(str(error), reason="not_json") from None
    try:
        envelope = read_object(_Envelope, found)
        data = _data(_known_type(envelope), found["data"])
    except FieldError as error:
        raise RecordError(
            str(error), reason="missing_field" if error.is_missing else "wrong_type"
        ) from None
    if envelope.partition_key != data.vm.vm_id:
        raise RecordError("partitionkey is not the vmId of data.vm", reason="foreign_vm")
    if isinstance(data, EventData) and data.fingerprint != fingerprint(found["data"]["event"]):
        # A person approves what is shown, and the VM compares the hash alone: a record that shows
        # other VMs under the hash of an event would have them approve what they have not seen.
        raise RecordError("data.fingerprint: it is not that of the event")
    return _record(body, found), data


@dataclass(frozen=True, slots=True, kw_only=True)
class _Envelope:
    """The fields of a record's envelope that are checked."""

    specversion: Annotated[str, Field(one_of(SPECVERSION))]
    id: Annotated[str, Field(WORD)]
    type: Annotated[str, Field(WORD)]
    source: Annotated[str, Field(TEXT)]
    subject: Annotated[str, Field(TEXT)]
    time: Annotated[datetime, Field(TIME)]
    dataschema: Annotated[str, Field(WORD)]
    partition_key: Annotated[str, Field(VM_ID, name="partitionkey")]
    sequence: Annotated[int, Field(POSITION)]
    stream: Annotated[str, Field(WORD)]
    data: Annotated[JsonObject, Field(OBJECT)]


def _data(kind: type[Observer], found: JsonObject) -> Observer:
    try:
        return read_object(kind, found)
    except FieldError as error:
        raise error.with_parent("data") from None


def _known_type(envelope: _Envelope) -> type[Observer]:
    """Return the class of this record's data. Raises `RecordError` if no bridge sends
    such records.
    """
    if not envelope.type.startswith("seb."):
        raise RecordError(
            f"the type {envelope.type[:80]!r} is not one of the bridge's", reason="unknown_type"
        )
    if not envelope.type.endswith(".v1") or envelope.dataschema != DATA_SCHEMA:
        raise RecordError(
            f"{envelope.type[:80]} of {envelope.dataschema[:80]}: upgrade the console",
            reason="newer_version",
        )
    return DATA_OF.get(envelope.type, Observer)


def _record(body: bytes, found: Mapping[str, Any]) -> Record:
    return Record(
        body=body,
        id=found["id"],
        type=found["type"],
        source=found["source"],
        subject=found["subject"],
        time=found["time"],
        sequence=int(found["sequence"]),
        stream=found["stream"],
        partition_key=found["partitionkey"],
        data=found["data"],
    )


def _loaded(body: bytes) -> Any:
    from pydantic_core import from_json  # noqa: PLC0415  # costs 30 ms, and is for readers only

    try:
        # Twice as fast as `json`, which would take a tenth of the time that a backlog needs.
        return from_json(body)
    except ValueError:
        return json.loads(body)  # it takes what is nested more deeply
