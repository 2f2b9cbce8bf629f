"""What a batch needs of the database, and what it changes there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from console.fleet.contact import BY_HEARTBEATS, SilentTime
from console.fleet.values.decision import Receipt
from console.fleet.values.keys import EventKey
from console.fleet.values.report import LatestReport, ReportedPreparation
from console.fleet.values.stream import SequenceGap, Stream
from console.fleet.values.vm import Vm
from console.fleet.vms import BorneName
from console.records.incoming import IncomingRecord


class StreamKey(NamedTuple):
    """A VM and one of its streams."""

    vm_id: str
    stream: str


class ReporterKey(NamedTuple):
    """An event's id, and the VM that has reported it."""

    event_id: str
    vm_id: str


@dataclass(slots=True, kw_only=True)
class LoadedRows:
    """What the database has of the VMs and events of a batch. The fold changes these values."""

    records: dict[str, str] = field(default_factory=dict)
    """The VM that has sent each record, by record id."""
    open_events: Counter[str] = field(default_factory=Counter)
    """How many open events each VM reports, by vmId; only for VMs whose limit is checked."""
    open_names: Counter[str] = field(default_factory=Counter)
    """How many names there are in the open events that are shown by each VM, by vmId."""
    receipts: Counter[ReporterKey] = field(default_factory=Counter)
    """How many receipts of a VM about an event are stored, by event id and vmId."""
    vms: dict[str, Vm] = field(default_factory=dict)
    streams: dict[StreamKey, Stream] = field(default_factory=dict)
    gaps: dict[StreamKey, list[SequenceGap]] = field(default_factory=dict)
    reports: dict[ReporterKey, LatestReport] = field(default_factory=dict)
    preparations: dict[ReporterKey, ReportedPreparation] = field(default_factory=dict)
    bearers: dict[BorneName, set[str]] = field(default_factory=dict)
    """By place and name, the VMs that bear a name which a VM of the batch may take."""
    enrolled: dict[str, Vm] = field(default_factory=dict)
    """The rows of VMs that an admin enrolled and that were not heard yet."""
    with_earlier_streams: set[str] = field(default_factory=set)
    """The VMs that have begun a new store and now count their pending events: all that they report
    of open events is loaded.
    """
    bound_tags: dict[str, Mapping[str, str]] = field(default_factory=dict)
    """The tags that an admin gave such VMs, by vmId."""
    silent_time: SilentTime = BY_HEARTBEATS


@dataclass(slots=True, kw_only=True)
class Changes:
    """What a batch changes, each row once."""

    records: dict[str, IncomingRecord] = field(default_factory=dict)
    """The new records except heartbeats, by id."""
    vms: dict[str, Vm] = field(default_factory=dict)
    streams: dict[StreamKey, Stream] = field(default_factory=dict)
    gaps: dict[StreamKey, list[SequenceGap]] = field(default_factory=dict)
    """All gaps of each stream whose gaps have changed."""
    incomplete_vms: set[str] = field(default_factory=set)
    """VMs of which more records were found missing."""
    past_streams: set[StreamKey] = field(default_factory=set)
    """Streams to delete with their gaps, because their VMs have begun too many."""
    reports: dict[ReporterKey, LatestReport] = field(default_factory=dict)
    older_reports: list[LatestReport] = field(default_factory=list)
    """Reports that came in and are not the newest of their VMs. What they measured still counts."""
    reported_events: set[EventKey] = field(default_factory=set)
    """The events that have a new or changed report."""
    contact_changed: set[str] = field(default_factory=set)
    """VMs that were not heard and are now, or the other way round: their reports now count
    differently.
    """
    receipts: list[Receipt] = field(default_factory=list)
    preparations: dict[ReporterKey, ReportedPreparation] = field(default_factory=dict)
    past_preparations: set[ReporterKey] = field(default_factory=set)
    """Preparations to delete: their VMs have recovered from them, and have too many."""
    scope_changed: dict[str, str] = field(default_factory=dict)
    """VMs whose scope has changed, by vmId, each with the scope that it had: what they prepared is
    for events of the new one.
    """
    changed_vms: set[str] = field(default_factory=set)
    """The VMs whose rows have changed in more than the time of contact."""
    duplicates: int = 0
    quarantined: list[tuple[str, IncomingRecord]] = field(default_factory=list)
    """The records that are not stored because a VM has too many, each with its key in `LIMITS`."""
    silent_time: SilentTime = BY_HEARTBEATS
