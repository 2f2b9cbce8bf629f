"""Sample records of every kind, the same on each call, and a sink in memory, for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Final

from sinks import record as records
from sinks.base import Sink, SinkContext, SinkSettings
from sinks.record import EVENT_SCHEDULED, EventRecord, RecordDraft, VmIdentity, seal

SAMPLE_TIME: Final = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
SAMPLE_STREAM: Final = "7f8a2f2e-3c55-4c3e-9d53-6a4a8a0c1d11"
SAMPLE_VM: Final = VmIdentity(
    vm_id="02aab8a4-74ef-476e-8182-f6d2ba4166a6",
    name="db-0",
    resource_id=(
        "/subscriptions/1f6d9a7c-5b0a-4d0e-8a52-3c1d5a9e0b42/resourceGroups/data"
        "/providers/Microsoft.Compute/virtualMachines/db-0"
    ),
    subscription_id="1f6d9a7c-5b0a-4d0e-8a52-3c1d5a9e0b42",
    resource_group="data",
    location="westeurope",
    os_type="Linux",
    vm_size="Standard_E8s_v5",
)
_SCHEDULED_FOR = "2026-03-01T12:15:00Z"
_MEASURED: Mapping[str, Any] = {"pauseSeconds": 4.8, "restarted": False, "downtimeSeconds": None}
# What differs by transition: the revision, Azure's status, and what only that transition carries.
_BY_TRANSITION: Mapping[str, tuple[int, str, Mapping[str, Any], Mapping[str, Any]]] = {
    "scheduled": (1, "Scheduled", {}, {}),
    "updated": (2, "Scheduled", {"changed": ["notBefore"]}, {}),
    "started": (3, "Started", {}, _MEASURED),
    "ended": (4, "Completed", {}, _MEASURED),
}

_EVENT: Mapping[str, Any] = {
    "eventId": "",
    "eventType": "Freeze",
    "resourceType": "VirtualMachine",
    "resources": [],
    "eventStatus": "",
    "notBefore": None,
    "description": "",
    "eventSource": "Platform",
    "durationInSeconds": 5,
}
_BRIDGE: Mapping[str, str] = {"version": "0.0.0", "instanceId": "sample", "site": "default"}
_BY_BRIDGE_TYPE: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    records.BRIDGE_HEARTBEAT: (
        "heartbeat",
        {"intervalSeconds": 60, "lastPollTime": "2026-03-01T12:00:00.000Z", "pendingEvents": 0},
    ),
    records.BRIDGE_STARTED: (
        "started",
        {"sinks": ["mqtt", "ops"], "restarted": True, "gapSeconds": 41.5},
    ),
    records.BRIDGE_STOPPED: ("stopped", {"reason": "SIGTERM"}),
    records.BRIDGE_STORE_RESET: (
        "storeReset",
        {
            "reason": "database disk image is malformed",
            "previousStream": None,
            "keptAs": "seb.db.corrupt",
        },
    ),
    records.BRIDGE_DEAD_LETTER: (
        "deadLetter",
        {
            "sink": "ops",
            "recordId": "7d0b5b3e-3a54-5d0e-9c57-4f2f8a1f7c11",
            "recordType": EVENT_SCHEDULED,
            "recordSequence": f"{1:020d}",
            "reason": "it answered 400 Bad Request",
            "attempts": 5,
        },
    ),
    records.BRIDGE_GAP: (
        "gap",
        {
            "from": "2026-03-01T11:58:00.000Z",
            "until": "2026-03-01T12:00:00.000Z",
            "seconds": 120.0,
            "reason": "imds",
        },
    ),
}


def sample_record(
    sequence: int = 1,
    *,
    record_type: str = EVENT_SCHEDULED,
    event_id: str | None = None,
    resources: Sequence[str] = ("db-0",),
    vm: VmIdentity = SAMPLE_VM,
    description: str = "Host maintenance \u2013 pause of a few seconds.",
) -> EventRecord:
    """A valid record of one of `EVENT_TYPES`, different for each sequence, else `KeyError`."""
    transition = record_type.split(".")[2]
    revision, status, extra, measured = _BY_TRANSITION[transition]
    event_id = event_id or f"5D2C0B2E-1E7B-4B9B-9D1C-{sequence:012X}"
    fingerprint = f"sha256:{sequence:064x}"
    data: dict[str, Any] = {
        "vm": vm.to_wire(),
        "node": None,
        "transition": transition,
        "event": {
            **_EVENT,
            "eventId": event_id,
            "resources": list(resources),
            "eventStatus": status,
            "notBefore": _SCHEDULED_FOR if status == "Scheduled" else None,  # Azure: later blank
            "description": description,
        },
        "affectsThisVm": vm.name in resources,
        "impact": "pause",
        "revision": revision,
        **extra,
        "fingerprint": fingerprint,
        "document": {"incarnation": 2, "previousIncarnation": 1},
        "observation": {"noticeSeconds": 899.0, "gapSeconds": 1.0, "latencyMs": 4.2, **measured},
        "raw": {"EventId": event_id, "EventType": "Freeze"},
        "bridge": _BRIDGE,
    }
    record_id = records.event_record_id(
        vm_id=vm.vm_id,
        event_id=event_id,
        transition=transition,
        revision=revision,
        fingerprint=fingerprint,
    )
    subject = f"scheduledEvents/{event_id}"
    return _sealed(record_type, subject, sequence, vm=vm, data=data, id_=record_id)


def sample_bridge_record(
    sequence: int = 1, *, record_type: str = records.BRIDGE_STARTED, vm: VmIdentity = SAMPLE_VM
) -> EventRecord:
    """A valid record about the bridge itself. `record_type` is one of `BRIDGE_TYPES`."""
    key, body = _BY_BRIDGE_TYPE[record_type]
    if record_type == records.BRIDGE_HEARTBEAT:
        body = {**body, "lastRecordSequence": f"{sequence - 1:020d}"}
    data = {"vm": vm.to_wire(), "node": None, "bridge": _BRIDGE, key: dict(body)}
    return _sealed(record_type, "bridge/sample", sequence, vm=vm, data=data)


def _sealed(
    record_type: str,
    subject: str,
    sequence: int,
    *,
    vm: VmIdentity,
    data: Mapping[str, Any],
    id_: str | None = None,
) -> EventRecord:
    draft = RecordDraft(
        type=record_type,
        source=vm.source,
        subject=subject,
        time=SAMPLE_TIME + timedelta(seconds=sequence),
        partition_key=vm.vm_id,
        data=data,
        id=id_,
    )
    return seal(draft, sequence=sequence, stream=SAMPLE_STREAM)


def sample_heartbeat(sequence: int = 1) -> EventRecord:
    """A valid heartbeat record."""
    return sample_bridge_record(sequence, record_type=records.BRIDGE_HEARTBEAT)


def sample_records() -> tuple[EventRecord, ...]:
    """One valid record of every kind there is, in the order of a stream."""
    made = [sample_record(n, record_type=kind) for n, kind in enumerate(records.EVENT_TYPES, 1)]
    made += [
        sample_bridge_record(n, record_type=kind)
        for n, kind in enumerate(records.BRIDGE_TYPES, len(made) + 1)
    ]
    return tuple(made)


def sample_context(vm: VmIdentity = SAMPLE_VM) -> SinkContext:
    """A context whose clock stands still, with no pending event."""
    return SinkContext(
        identity=lambda: vm, now=lambda: SAMPLE_TIME, version="0.0.0", instance_id="sample"
    )


class MemorySink(Sink[SinkSettings]):
    """A sink that keeps what it got; it fails with the errors put into `failures`, one a call."""

    KIND = "memory"
    BATCH: ClassVar[int] = 10

    def __init__(
        self,
        name: str = "memory",
        settings: SinkSettings | None = None,
        context: SinkContext | None = None,
    ) -> None:
        super().__init__(name, settings or SinkSettings(kind="memory"), context or sample_context())
        self.records: list[EventRecord] = []
        self.failures: list[Exception] = []

    def deliver(self, records: Sequence[EventRecord]) -> None:
        """Keep the records, or raise the next failure."""
        if self.failures:
            raise self.failures.pop(0)
        self.records.extend(records)
