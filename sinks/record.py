"""The record: a CloudEvents 1.0 envelope whose bytes are made once, at the commit, and the same in
the store, in every signature and at every sink.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import resources
from typing import Any, Final
from uuid import UUID, uuid5

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
BRIDGE_HEARTBEAT: Final = "seb.bridge.heartbeat.v1"
BRIDGE_STARTED: Final = "seb.bridge.started.v1"
BRIDGE_STOPPED: Final = "seb.bridge.stopped.v1"
BRIDGE_STORE_RESET: Final = "seb.bridge.store-reset.v1"
BRIDGE_DEAD_LETTER: Final = "seb.bridge.dead-letter.v1"
BRIDGE_GAP: Final = "seb.bridge.gap.v1"

EVENT_TYPES: Final = (EVENT_SCHEDULED, EVENT_UPDATED, EVENT_STARTED, EVENT_ENDED)
BRIDGE_TYPES: Final = (
    *(BRIDGE_HEARTBEAT, BRIDGE_STARTED, BRIDGE_STOPPED),
    *(BRIDGE_STORE_RESET, BRIDGE_DEAD_LETTER, BRIDGE_GAP),
)

# The namespace of every record id. Changing it would give old facts new ids.
ID_NAMESPACE: Final = UUID("6f1d7d0c-52d8-5a43-9a55-0c1f0f3bb0a9")

_COMPACT: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)
_CANONICAL: Final = json.JSONEncoder(
    separators=(",", ":"), ensure_ascii=False, allow_nan=False, sort_keys=True
)


class RecordError(ValueError):
    """The bytes are not a record of this schema."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VmIdentity:
    """The identity of the observing VM, in the words of IMDS's instance document."""

    vm_id: str
    name: str
    resource_id: str | None = None
    subscription_id: str | None = None
    resource_group: str | None = None
    location: str | None = None
    zone: str | None = None
    scale_set: str | None = None
    fault_domain: str | None = None
    update_domain: str | None = None
    os_type: str | None = None
    vm_size: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def source(self) -> str:
        """The CloudEvents source: the ARM id, or a URN of the vmId if IMDS gives none."""
        return self.resource_id or f"urn:uuid:{self.vm_id}"

    def to_wire(self) -> dict[str, Any]:
        """The object that stands in a record as `data.vm`."""
        told = {wire: getattr(self, name) for wire, name in _VM_FIELDS.items()}
        return {**told, "tags": dict(self.tags)}

    @classmethod
    def from_wire(cls, wire: JsonObject) -> VmIdentity:
        """Read back what `to_wire` wrote. Raises `KeyError` if vmId or name is missing."""
        told: dict[str, Any] = {name: wire.get(each) for each, name in _VM_FIELDS.items()}
        told |= {"vm_id": wire["vmId"], "name": wire["name"], "tags": wire.get("tags") or {}}
        return cls(**told)


_VM_FIELDS: Final = {
    "vmId": "vm_id",
    "name": "name",
    "resourceId": "resource_id",
    "subscriptionId": "subscription_id",
    "resourceGroup": "resource_group",
    "location": "location",
    "zone": "zone",
    "scaleSet": "scale_set",
    "faultDomain": "fault_domain",
    "updateDomain": "update_domain",
    "osType": "os_type",
    "vmSize": "vm_size",
}
"""Names in a record, and those of the attributes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordDraft:
    """A record before the store has given it its place: no sequence, no stream, no bytes."""

    type: str
    source: str
    subject: str
    time: datetime
    partition_key: str
    data: JsonObject
    id: str | None = None
    """Fixed for facts about events; None lets the place in the stream decide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRecord:
    """A committed record: its bytes, and the few attributes that sinks route by."""

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
        """Whether the event names the observing VM; None for a record that is not of an event."""
        affects = self.data.get("affectsThisVm")
        return affects if isinstance(affects, bool) else None

    @property
    def is_heartbeat(self) -> bool:
        """Whether this is the record that only says that the bridge is alive."""
        return self.type == BRIDGE_HEARTBEAT


def event_record_id(
    *, vm_id: str, event_id: str, transition: str, revision: int, fingerprint: str
) -> str:
    """The id of a fact about an event: the same fact gives the same id, on any day."""
    name = json.dumps([vm_id.lower(), event_id, transition, revision, fingerprint])
    return str(uuid5(ID_NAMESPACE, name))


def rfc3339(moment: datetime) -> str:
    """A moment in UTC as RFC 3339 with milliseconds and a Z. Raises `ValueError` on naive input."""
    if moment.tzinfo is None:
        raise ValueError("a time in a record needs a time zone")
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def canonical_json(value: object) -> bytes:
    """The one spelling of a JSON value: sorted keys, no white space. Raises `ValueError`."""
    return _CANONICAL.encode(value).encode()


def seal(draft: RecordDraft, *, sequence: int, stream: str) -> EventRecord:
    """Give a draft its place in a stream, and make the bytes that everybody will see."""
    record_id = draft.id or str(uuid5(ID_NAMESPACE, json.dumps([stream, sequence, draft.type])))
    time = rfc3339(draft.time)
    envelope = {
        "specversion": SPECVERSION,
        "id": record_id,
        "source": draft.source,
        "type": draft.type,
        "subject": draft.subject,
        "time": time,
        "datacontenttype": DATA_CONTENT_TYPE,
        "dataschema": DATA_SCHEMA,
        "partitionkey": draft.partition_key,
        "sequence": f"{sequence:020d}",
        "stream": stream,
        "data": draft.data,
    }
    return EventRecord(
        body=_COMPACT.encode(envelope).encode(),
        id=record_id,
        type=draft.type,
        source=draft.source,
        subject=draft.subject,
        time=time,
        sequence=sequence,
        stream=stream,
        partition_key=draft.partition_key,
        data=draft.data,
    )


def read_record(body: bytes) -> EventRecord:
    """Read a record from its bytes. Raises `RecordError` if they are no record."""
    try:
        envelope = _loaded(body)
        return EventRecord(
            body=body,
            id=envelope["id"],
            type=envelope["type"],
            source=envelope["source"],
            subject=envelope["subject"],
            time=envelope["time"],
            sequence=int(envelope["sequence"]),
            stream=envelope["stream"],
            partition_key=envelope["partitionkey"],
            data=envelope["data"],
        )
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise RecordError(f"not a record: {type(error).__name__}: {error}") from error


def _loaded(body: bytes) -> Any:
    from pydantic_core import from_json  # noqa: PLC0415  # costs 30 ms, and is for readers only

    try:
        # Twice as fast as `json`, in which a backlog would spend a tenth of its time.
        return from_json(body)
    except ValueError:
        return json.loads(body)  # it takes what is nested more deeply


def schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) that every record is valid against."""
    text = resources.files("sinks").joinpath("record.schema.json").read_text(encoding="utf-8")
    return dict(json.loads(text))
