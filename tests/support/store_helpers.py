"""What the tests of the store and of its users share."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bridge.events.tracked import TrackedEvent, dump_tracked
from bridge.imds.document import parse_event
from bridge.store.approvals import Approval
from bridge.store.database import Store
from bridge.store.opening import open_store
from bridge.store.recipient import Recipient
from bridge.store.rows import EventRow
from sinks.samples import SAMPLE_VM, sample_bridge_record, sample_record
from wire.moment import rfc3339
from wire.observer import BridgeRun, Observer
from wire.record import Record, RecordDraft

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
AN_APPROVAL = Approval(
    cause="command\nissuer\none",
    jti="one",
    event_id="E-1",
    fingerprint="sha256:00",
    actor="somebody",
    issuer="issuer",
    resources=("web_3",),
)


def environment() -> dict[str, str]:
    """An environment in which a child process can import these helpers."""
    root = Path(__file__).parents[2]
    path = os.pathsep.join([str(root / "tests"), str(root)])
    return {**os.environ, "PYTHONPATH": path}


def as_draft(record: Record) -> RecordDraft:
    """A record as it was before the store gave it its place."""
    return RecordDraft(
        type=record.type,
        source=record.source,
        subject=record.subject,
        time=NOW,
        partition_key=record.partition_key,
        data=record.data,
        id=record.id if record.event_id else None,
    )


def draft(number: int = 1, **how: Any) -> RecordDraft:
    """A draft about an event, different for each number."""
    return as_draft(sample_record(number, **how))


def bridge_draft(record_type: str) -> RecordDraft:
    """A draft about the bridge itself."""
    return as_draft(sample_bridge_record(record_type=record_type))


def event_row(event_id: str, *, pending: bool = True) -> EventRow:
    """What the store keeps of an event."""
    raw = {"EventId": event_id, "EventType": "Freeze", "EventStatus": "Scheduled"}
    known = TrackedEvent(
        event=parse_event(raw),
        status="Scheduled" if pending else "Completed",
        revision=1,
        first_seen=NOW,
        not_before=None,
        affects_this_vm=True,
        pending=pending,
    )
    return EventRow(known.event.key, pending, rfc3339(NOW), dump_tracked(known))


@contextmanager
def opened(directory: Path, *, wait: float = 5.0) -> Iterator[Store]:
    """The store of a directory, closed afterwards."""
    store, _ = open_store(directory, NOW, wait=wait)
    try:
        yield store
    finally:
        store.close()


def sequences(records: Sequence[Record]) -> list[int]:
    """The places of records in their stream."""
    return [record.sequence for record in records]


def observer() -> Observer:
    """An observer of the sample VM."""
    return Observer(
        vm=SAMPLE_VM,
        node=None,
        bridge=BridgeRun(version="0", instance_id="test", site="default"),
    )


def recipients(*names: str) -> dict[str, Recipient]:
    """Sinks of one kind that take whatever comes."""
    return {name: Recipient(kind="test") for name in names}
