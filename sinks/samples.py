"""Sample records of every kind, the same on each call, and a sink in memory, for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Final

from sinks.base import Sink, SinkContext, SinkSettings
from wire import bridge
from wire import record as records
from wire.event import Event, EventData, Incarnations, Observation
from wire.fields import read_object
from wire.observer import BridgeRun, Observer
from wire.record import EVENT_SCHEDULED, Record, draft, seal
from wire.state import PendingEvent
from wire.vm import VmIdentity

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
_SCHEDULED_FOR: Final = datetime(2026, 3, 1, 12, 15, tzinfo=UTC)
_BLANK: Final = read_object(Event, {"eventId": "E", "resources": [], "eventStatus": "Scheduled"})
"""A field without a value in a sample is null, as in a record of an older bridge."""
_RUN: Final = BridgeRun(version="0.0.0", instance_id="sample", site="default")
_BY_TRANSITION: Final = {
    "scheduled": (1, "Scheduled"),
    "updated": (2, "Scheduled"),
    "started": (3, "Started"),
    "ended": (4, "Completed"),
}
"""The revision and Azure's status by transition."""
_DETAILS: Final[Mapping[str, Mapping[str, object]]] = {
    records.BRIDGE_HEARTBEAT: {
        "heartbeat": bridge.Heartbeat(
            interval_seconds=60,
            last_poll_time=SAMPLE_TIME,
            pending_events=0,
            last_record_sequence=0,
        )
    },
    records.BRIDGE_STARTED: {
        "started": bridge.Started(sinks=("mqtt", "ops"), restarted=True, gap_seconds=41.5)
    },
    records.BRIDGE_STOPPED: {"stopped": bridge.Stopped(reason="SIGTERM")},
    records.BRIDGE_STORE_RESET: {
        "store_reset": bridge.StoreReset(
            reason="database disk image is malformed",
            previous_stream=None,
            kept_as="seb.db.corrupt",
        )
    },
    records.BRIDGE_DEAD_LETTER: {
        "dead_letter": bridge.DeadLetter(
            sink="ops",
            record_id="7d0b5b3e-3a54-5d0e-9c57-4f2f8a1f7c11",
            record_type=EVENT_SCHEDULED,
            record_sequence=1,
            reason="it answered 400 Bad Request",
            attempts=5,
        )
    },
    records.BRIDGE_GAP: {
        "gap": bridge.Gap(
            since=SAMPLE_TIME - timedelta(seconds=120),
            until=SAMPLE_TIME,
            seconds=120.0,
            reason="imds",
        )
    },
}


def sample_event(
    event_id: str = "5D2C0B2E-1E7B-4B9B-9D1C-000000000001",
    *,
    resources: Sequence[str] = ("db-0",),
    status: str = "Scheduled",
    description: str | None = "Host maintenance",
) -> Event:
    """Return a Freeze that Azure has announced."""
    return replace(
        _BLANK,
        event_id=event_id,
        event_type="Freeze",
        resource_type="VirtualMachine",
        resources=tuple(resources),
        event_status=status,
        not_before=_SCHEDULED_FOR if status == "Scheduled" else None,  # Azure: later blank
        description=description,
        event_source="Platform",
        duration_in_seconds=5,
    )


def sample_pending(event: Event, *, record_id: str = "r") -> PendingEvent:
    """Return the sample event as a pending event of the sample VM."""
    return PendingEvent(
        record_id=record_id,
        event=event,
        affects_this_vm=event.affects(SAMPLE_VM.name),
        impact=event.impact,
        revision=1,
        fingerprint=event.fingerprint,
    )


def sample_record(
    sequence: int = 1,
    *,
    record_type: str = EVENT_SCHEDULED,
    event_id: str | None = None,
    resources: Sequence[str] = ("db-0",),
    vm: VmIdentity = SAMPLE_VM,
    description: str = "Host maintenance \u2013 pause of a few seconds.",
) -> Record:
    """Return a valid record of one of `EVENT_TYPES`, different for each sequence. Raises `KeyError`
    for another type.
    """
    transition = record_type.split(".")[2]
    revision, status = _BY_TRANSITION[transition]
    event = sample_event(
        event_id or f"5D2C0B2E-1E7B-4B9B-9D1C-{sequence:012X}",
        resources=resources,
        status=status,
        description=description,
    )
    is_measured = transition in ("started", "ended")
    data = EventData(
        vm=vm,
        node=None,
        bridge=_RUN,
        transition=transition,
        event=event,
        affects_this_vm=event.affects(vm.name),
        impact=event.impact,
        revision=revision,
        changed=("notBefore",) if transition == "updated" else None,
        fingerprint=event.fingerprint,
        document=Incarnations(incarnation=2, previous_incarnation=1),
        observation=Observation(
            notice_seconds=899.0,
            gap_seconds=1.0,
            latency_ms=4.2,
            pause_seconds=4.8 if is_measured else None,
            restarted=False if is_measured else None,
        ),
        raw={"EventId": event.event_id, "EventType": "Freeze"},
    )
    record_id = records.event_record_id(
        vm_id=vm.vm_id,
        event_id=event.event_id,
        transition=transition,
        revision=revision,
        fingerprint=event.fingerprint,
        now=SAMPLE_TIME,
    )
    subject = f"scheduledEvents/{event.event_id}"
    return _sealed(record_type, subject, sequence, data=data, record_id=record_id)


def sample_bridge_record(
    sequence: int = 1, *, record_type: str = records.BRIDGE_STARTED, vm: VmIdentity = SAMPLE_VM
) -> Record:
    """Return a valid record about the bridge itself. `record_type` is one of `BRIDGE_TYPES`."""
    (name, detail), *_ = _DETAILS[record_type].items()
    if isinstance(detail, bridge.Heartbeat):
        detail = replace(detail, last_record_sequence=sequence - 1)
    kind: Any = records.DATA_OF[record_type]
    data = kind(vm=vm, node=None, bridge=_RUN, **{name: detail})
    return _sealed(record_type, "bridge/sample", sequence, data=data)


def _sealed(
    record_type: str, subject: str, sequence: int, *, data: Observer, record_id: str | None = None
) -> Record:
    made = draft(
        record_type,
        data,
        subject=subject,
        now=SAMPLE_TIME + timedelta(seconds=sequence),
        record_id=record_id,
    )
    return seal(made, sequence=sequence, stream=SAMPLE_STREAM)


def sample_heartbeat(sequence: int = 1, *, vm: VmIdentity = SAMPLE_VM) -> Record:
    """Return a valid heartbeat record."""
    return sample_bridge_record(sequence, record_type=records.BRIDGE_HEARTBEAT, vm=vm)


def sample_records() -> tuple[Record, ...]:
    """Return one valid record of every type, in the order of a stream."""
    made = [sample_record(n, record_type=kind) for n, kind in enumerate(records.EVENT_TYPES, 1)]
    made += [
        sample_bridge_record(n, record_type=kind)
        for n, kind in enumerate(records.BRIDGE_TYPES, len(made) + 1)
    ]
    return tuple(made)


def sample_context(vm: VmIdentity = SAMPLE_VM) -> SinkContext:
    """Return a context with a fixed time and no pending event."""
    return SinkContext(
        identity=lambda: vm, now=lambda: SAMPLE_TIME, version="0.0.0", instance_id="sample"
    )


class MemorySink(Sink[SinkSettings]):
    """A sink that keeps its records in memory. Each call fails with the next error in
    `failures`.
    """

    KIND = "memory"
    BATCH: ClassVar[int] = 10

    def __init__(
        self,
        name: str = "memory",
        settings: SinkSettings | None = None,
        context: SinkContext | None = None,
    ) -> None:
        super().__init__(name, settings or SinkSettings(kind="memory"), context or sample_context())
        self.records: list[Record] = []
        self.failures: list[Exception] = []

    def deliver(self, records: Sequence[Record]) -> None:
        """Keep the records, or raise the next failure."""
        if self.failures:
            raise self.failures.pop(0)
        self.records.extend(records)
