"""The changes that a batch of records makes: rows in, rows out; the writer commits them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from console.fleet import gaps, vms
from console.fleet.contact import BY_HEARTBEATS, SilentTime
from console.fleet.gaps import Counted
from console.fleet.reports import ended_unseen, of_pending, of_record, supersedes
from console.fleet.values import (
    EventKey,
    LatestReport,
    Receipt,
    ReportedPreparation,
    SequenceGap,
    Stream,
    Vm,
)
from console.fleet.vms import Bearing
from console.records.incoming import (
    EventReport,
    Incoming,
    IncomingRecord,
    IncomingState,
    IncomingStatus,
    PreparationFacts,
)
from wire.preparation import NONE

StreamKey = tuple[str, str]
"""A vmId and its stream."""
ReporterKey = tuple[str, str]
"""An event's id and the vmId of a reporter."""
RECOVERED: Final = "recovered"
MAX_OPEN_EVENTS: Final = 1000
"""How many open events one VM may report. A document of Azure's has few."""
MAX_OPEN_NAMES: Final = 20_000
"""How many names there may be in all open events that are shown by one VM."""
_FEW_NAMES: Final = 20
"""An event with at most so many names does not count towards `MAX_OPEN_NAMES`."""
MAX_UNRECOVERED: Final = 100
"""How many preparations one VM may have from which it has not recovered."""
MAX_PREPARATIONS: Final = 1000
"""How many preparations of one VM are stored. Beyond that, the oldest ones from which it has
recovered are forgotten.
"""
MAX_RECEIPTS: Final = 1000
"""How many receipts of one VM about one event are stored."""
MAX_GAPS: Final = 1000
"""How many gaps of one stream can still be filled. The records in older gaps stay counted as
missing.
"""
MAX_STREAMS: Final = 20
"""How many streams of one VM are stored. A bridge begins a new stream only with a new store."""
LIMITS: Final[Mapping[str, str]] = {
    "too_many_events": f"it reports {MAX_OPEN_EVENTS:,} open events already",
    "too_many_names": f"its open events name more than {MAX_OPEN_NAMES:,} VMs",
    "too_many_preparations": f"it has prepared for {MAX_UNRECOVERED} events already",
    "too_many_receipts": f"it has sent {MAX_RECEIPTS:,} receipts about this event already",
}
"""Why something of a VM is no longer stored: the reason in the quarantine, and a sentence."""


@dataclass(slots=True, kw_only=True)
class Loaded:
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
    bearers: dict[Bearing, set[str]] = field(default_factory=dict)
    """By place and name, the VMs that bear a name which a VM of the batch may take."""
    enrolled: dict[str, Vm] = field(default_factory=dict)
    """The rows of VMs that an admin enrolled and that were not heard yet."""
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
    past_streams: set[StreamKey] = field(default_factory=set)
    """Streams to delete with their gaps, because their VMs have begun too many."""
    reports: dict[ReporterKey, LatestReport] = field(default_factory=dict)
    older_reports: list[LatestReport] = field(default_factory=list)
    """Reports that came in and are not the newest of their VMs. What they measured still counts."""
    touched: set[EventKey] = field(default_factory=set)
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
    altered: set[str] = field(default_factory=set)
    """The VMs whose rows have changed in more than the time of contact."""
    duplicates: int = 0
    quarantined: list[tuple[str, IncomingRecord]] = field(default_factory=list)
    """The records that are not stored because a VM has too many, each with its key in `LIMITS`."""
    silent_time: SilentTime = BY_HEARTBEATS


def fold(loaded: Loaded, batch: Iterable[Incoming]) -> Changes:
    """Return the changes that a batch makes, in the order in which it came in."""
    taken = Fold(loaded)
    for each in batch:
        taken.take(each)
    return taken.changes


class Fold:
    """Folds what comes in, one after the other, into what the database has of its VMs and events,
    and collects the rows that change.
    """

    def __init__(self, loaded: Loaded) -> None:
        """`loaded` is changed by what comes in."""
        self._loaded = loaded
        self.changes: Final = Changes(silent_time=loaded.silent_time)

    def take(self, incoming: Incoming) -> None:
        """Take in one record, status or state document."""
        if isinstance(incoming, IncomingRecord):
            self._take_record(incoming)
        elif isinstance(incoming, IncomingStatus):
            vm = vms.with_status(self._known_vm(incoming.vm_id), incoming)
            self._keep_vm(vm, incoming.received_at)
        else:
            self._take_state(incoming)

    def accept(self, vm_id: str, at: float) -> Vm:
        """Accept what a VM in conflict reports of itself; return the VM as it is then. If another
        VM bears the name that it gets, that one's name is withheld.
        """
        known = self._loaded.vms[vm_id]
        accepted = self._keep_vm(replace(vms.as_reported(known), accepted_at=at), at)
        reports = self._loaded.reports.values()
        self.changes.touched |= {each.key for each in reports if each.vm_id == vm_id}
        return accepted

    def _take_record(self, record: IncomingRecord) -> None:
        vm_id = record.vm.vm_id
        vm = self._known_vm(vm_id)
        key = (vm_id, record.stream)
        stream = self._loaded.streams.get(key)
        missing = self._loaded.gaps.get(key, [])
        counted = gaps.count(stream, missing, record, interval=None if vm is None else vm.interval)
        record = self._with_own_id(record)
        seen = record.kind == "heartbeat" or record.id in self._loaded.records
        if seen and not counted.fresh:
            self._count_again(record)
            return
        self._keep_counted(counted)
        # Another record at a known place: the store was restored from an earlier copy.
        put_back = not counted.fresh
        heard = vms.with_record(
            vm,
            record,
            put_back=put_back,
            has_new_store=stream is None,
            behind=vms.clock_behind(vm, stream, record),
        )
        if counted.gaps or missing:
            growth = sum(gap.size for gap in counted.gaps) - sum(gap.size for gap in missing)
            heard = replace(heard, missing=max(0, heard.missing + growth))
        heard = self._keep_vm(heard, record.received_at)
        reported_at = heard.reported_at(record.time, record.received_at)
        self._begin_unprepared(before=vm, vm=heard, at=reported_at)
        limit = self._exceeded_limit(record)
        if limit is not None:
            self.changes.quarantined.append((limit, record))
            return
        if record.event is not None:
            self._apply_report(of_record(record, record.event, heard), put_back=put_back)
        # What a VM prepared before it got a new store no longer counts, even if the record is late.
        if record.preparation is not None and record.stream == heard.stream:
            reported = ReportedPreparation(
                vm_id=vm_id,
                scope=heard.scope,
                facts=record.preparation,
                stream=record.stream,
                sequence=record.sequence,
                time=reported_at,
            )
            self._apply_preparation(reported, put_back=put_back)
        if not seen:
            self._loaded.records[record.id] = vm_id
            self.changes.records[record.id] = record
            if record.receipt is not None:
                self.changes.receipts.append(
                    Receipt(
                        record_id=record.id,
                        vm_id=vm_id,
                        at=record.received_at,
                        time=reported_at,
                        facts=record.receipt,
                        scope=heard.scope,
                    )
                )

    def _keep_counted(self, counted: Counted) -> None:
        """Keep the state of a stream, and its newest gaps."""
        key = (counted.stream.vm_id, counted.stream.stream)
        if key not in self._loaded.streams:
            self.changes.past_streams.discard(key)
            self._forget_streams(key)
        if counted.stream is not self._loaded.streams.get(key):
            self._loaded.streams[key] = self.changes.streams[key] = counted.stream
        if counted.gaps != self._loaded.gaps.get(key, []):
            self._loaded.gaps[key] = self.changes.gaps[key] = counted.gaps[-MAX_GAPS:]

    def _forget_streams(self, new: StreamKey) -> None:
        """Forget the oldest streams of a VM that has too many, but never the new one."""
        known = [each for each in self._loaded.streams if each[0] == new[0]]
        known.sort(key=lambda each: self._loaded.streams[each].high_time)
        for each in known[: max(0, len(known) + 1 - MAX_STREAMS)]:
            del self._loaded.streams[each]
            self._loaded.gaps.pop(each, None)
            self.changes.streams.pop(each, None)
            self.changes.gaps.pop(each, None)
            self.changes.past_streams.add(each)

    def _exceeded_limit(self, record: IncomingRecord) -> str | None:
        """Return the key in `LIMITS` for a record that exceeds what its VM may store, or None."""
        vm_id = record.vm.vm_id
        if record.event is not None:
            return self._exceeded_by_event(vm_id, record.event)
        if record.preparation is not None and self._is_one_too_many(vm_id, record.preparation):
            return "too_many_preparations"
        if record.receipt is not None and record.receipt.event_id is not None:
            key = (record.receipt.event_id, vm_id)
            if record.id not in self._loaded.records and self._loaded.receipts[key] >= MAX_RECEIPTS:
                return "too_many_receipts"
            self._loaded.receipts[key] += 1
        return None

    def _exceeded_by_event(self, vm_id: str, event: EventReport) -> str | None:
        """Return the key in `LIMITS` for an event that exceeds what its VM may report, or
        None.
        """
        if event.state == "ended":
            return None
        before = self._loaded.reports.get((event.event.event_id, vm_id))
        was_open = before is not None and before.report.state != "ended"
        if not was_open and self._loaded.open_events[vm_id] >= MAX_OPEN_EVENTS:
            return "too_many_events"
        names = len(event.event.resources)
        if names <= _FEW_NAMES:
            return None
        if before is not None and was_open:
            names -= len(before.report.event.resources)
        if self._loaded.open_names[vm_id] + names > MAX_OPEN_NAMES:
            return "too_many_names"
        self._loaded.open_names[vm_id] += names
        return None

    def _is_one_too_many(self, vm_id: str, reported: PreparationFacts) -> bool:
        """Check whether a VM reports preparations for too many events."""
        if (reported.event_id, vm_id) in self._loaded.preparations:
            return False
        known = [each for key, each in self._loaded.preparations.items() if key[1] == vm_id]
        return sum(each.facts.state != RECOVERED for each in known) >= MAX_UNRECOVERED

    def _with_own_id(self, record: IncomingRecord) -> IncomingRecord:
        """Return the record, with another id if another VM has used its id, so that neither history
        loses a record.
        """
        vm_id = record.vm.vm_id
        if self._loaded.records.get(record.id, vm_id) == vm_id:
            return record
        return replace(record, id=f"{record.id} of {vm_id}")

    def _count_again(self, record: IncomingRecord) -> None:
        """Count a copy as a duplicate. A new heartbeat with a sequence that is known already proves
        contact, even if the VM had stopped: its disk was restored from an earlier copy.
        """
        vm = self._loaded.vms.get(record.vm.vm_id)
        if vm is None or record.kind != "heartbeat" or not vms.is_later(vm, record):
            self.changes.duplicates += 1
            return
        self._keep_vm(vms.with_record(vm, record, put_back=True), record.received_at)

    def _known_vm(self, vm_id: str) -> Vm | None:
        """Return a VM's row, or what an admin gave of a VM that was not heard yet."""
        return self._loaded.vms.get(vm_id) or self._loaded.enrolled.get(vm_id)

    def _keep_vm(self, vm: Vm, at: float) -> Vm:
        """Keep what a VM is now, with its tags, and decide whether it bears its name; return it as
        it is kept. `at` is when its message came in, in seconds since 1970.
        """
        before = self._loaded.vms.get(vm.vm_id)
        silent_seconds = self.changes.silent_time.of(vm.interval)
        if before is None and vm.vm_id in self._loaded.bound_tags:
            vm = vms.with_bound_tags(vm, self._loaded.bound_tags[vm.vm_id])
        if before is None or not vms.bears_the_same_name(before, vm):
            vm = replace(vm, first_at=at)
        if _may_take_a_name(before, vm, at, silent_seconds):
            vm = self._with_name(vm, at)
        if before is not None and (before.scope, before.place) != (vm.scope, vm.place):
            self._judge_again(vm)
            if before.scope != vm.scope:
                self.changes.scope_changed.setdefault(vm.vm_id, before.scope)
        vm = _with_conflict(vm, at)
        if before is not None and vms.is_heard(before, at, silent_seconds) != vms.is_heard(
            vm, at, silent_seconds
        ):
            self.changes.contact_changed.add(vm.vm_id)
        if vms.is_change(before, vm, silent_seconds):
            self.changes.altered.add(vm.vm_id)
        self._loaded.vms[vm.vm_id] = vm
        self.changes.vms[vm.vm_id] = vm
        return vm

    def _with_name(self, vm: Vm, at: float) -> Vm:
        """Return a VM, with its name withheld if another VM keeps that name. If this VM keeps it,
        the names of the others are withheld.
        """
        bearing = vms.bearing(vm)
        others = self._loaded.bearers.setdefault(bearing, set())
        there = [
            other
            for other in (self._loaded.vms[each] for each in others - {vm.vm_id})
            if not other.withheld
            and vms.bearing(other) == bearing
            and vms.is_there(other, at, self.changes.silent_time.of(other.interval))
        ]
        others.add(vm.vm_id)
        if not all(vms.is_before(vm, other) for other in there):
            return replace(vm, withheld=True)
        for other in there:
            after = _with_conflict(replace(other, withheld=True), at)
            self._loaded.vms[other.vm_id] = self.changes.vms[other.vm_id] = after
            self.changes.altered.add(other.vm_id)
            self._judge_again(after)
        return replace(vm, withheld=False, first_at=at) if vm.withheld else vm

    def _judge_again(self, vm: Vm) -> None:
        """Update the reports and preparations of a VM that now bears another name, or is in another
        place.
        """
        for key, before in list(self._loaded.reports.items()):
            if before.vm_id != vm.vm_id:
                continue
            after = replace(before, scope=vm.scope, is_own=vm.is_named_by(before.report))
            self.changes.touched |= {before.key, after.key}
            if after != before:
                self._loaded.reports[key] = self.changes.reports[key] = after
        for key, prepared in list(self._loaded.preparations.items()):
            if prepared.vm_id == vm.vm_id:
                self._loaded.preparations[key] = replace(prepared, scope=vm.scope)
                if key in self.changes.preparations:
                    self.changes.preparations[key] = self._loaded.preparations[key]

    def _apply_report(self, latest: LatestReport, *, put_back: bool = False) -> None:
        key = (latest.event_id, latest.vm_id)
        before = self._loaded.reports.get(key)
        if before is not None:
            later = put_back and latest.time >= before.time
            later = later or self._is_of_newer_store(latest, before)
            if not later and not supersedes(latest, before):
                self._observe_late(latest, before)
                return
            if key in self.changes.reports:
                self.changes.older_reports.append(before)
            if before.first_at < latest.first_at:
                latest = replace(latest, first_at=before.first_at)
            if before.scope != latest.scope:  # the reporter's scope was not known until now
                self.changes.touched.add(before.key)
        was_open = before is not None and before.report.state != "ended"
        is_open = latest.report.state != "ended"
        self._loaded.open_events[latest.vm_id] += is_open - was_open
        self._loaded.reports[key] = latest
        self.changes.reports[key] = latest
        self.changes.touched.add(latest.key)
        prepared = self._loaded.preparations.get(key)
        if prepared is not None:
            self._keep_prepared(prepared)

    def _is_of_newer_store(self, latest: LatestReport, before: LatestReport) -> bool:
        """Check whether the report is from a newer store of the VM: by the order of its streams,
        since its clock may be behind.
        """
        current = self._loaded.vms[latest.vm_id].stream
        return bool(before.stream) and latest.stream == current != before.stream

    def _observe_late(self, late: LatestReport, newest: LatestReport) -> None:
        """Note an older report that came in after a newer one of the same reporter."""
        if late.scope != newest.scope:
            return
        self.changes.older_reports.append(late)
        self.changes.touched.add(newest.key)
        if late.first_at < newest.first_at:
            key = (newest.event_id, newest.vm_id)
            self._loaded.reports[key] = self.changes.reports[key] = replace(
                newest, first_at=late.first_at
            )

    def _take_state(self, state: IncomingState) -> None:
        """Apply a state document: the events that are pending on a VM, in case their records were
        missed.
        """
        vm = vms.with_state(self._known_vm(state.vm_id), state)
        vm = self._keep_vm(vm, state.received_at)
        at = vm.reported_at(state.time, state.received_at)
        written_at = state.time + vm.behind
        pending = set()
        for record_id, event in state.events:
            event_id = event.event.event_id
            pending.add(event_id)
            before = self._loaded.reports.get((event_id, state.vm_id))
            if before is not None and not _is_newer(before, written_at, event, vm):
                continue
            if self._exceeded_by_event(state.vm_id, event) is None:
                self._apply_report(of_pending(state, vm, record_id, event))
        for prepared in state.preparations:
            reported = ReportedPreparation(
                vm_id=state.vm_id,
                scope=vm.scope,
                facts=prepared,
                stream=vm.stream or "",
                sequence=0,
                time=at,
            )
            self._apply_preparation(reported)
        for (event_id, vm_id), latest in list(self._loaded.reports.items()):
            if vm_id == state.vm_id and event_id not in pending and latest.time < written_at:
                over = ended_unseen(latest, at)
                if over is not None:
                    self._apply_report(over)

    def _apply_preparation(self, reported: ReportedPreparation, *, put_back: bool = False) -> None:
        """Apply what a VM reports about its preparation, unless it has reported something newer."""
        before = self._loaded.preparations.get((reported.facts.event_id, reported.vm_id))
        if reported.facts.state == NONE:
            if (
                before is not None
                and before.time < reported.time
                and _is_lost(before.facts, reported.facts)
            ):
                # A document is no record: it has no place among those of the VM.
                lost = replace(before, sequence=0)
                self._keep_prepared(_unprepared(lost, reported.time))
            return
        if before is None and self._is_one_too_many(reported.vm_id, reported.facts):
            return
        if before is not None:
            if self._is_older(reported, before, put_back=put_back):
                return
            if not reported.sequence and _is_same(before.facts, reported.facts):
                return  # the record says more than the state document
        self._keep_prepared(reported, put_back=put_back)

    def _is_older(
        self, reported: ReportedPreparation, before: ReportedPreparation, *, put_back: bool
    ) -> bool:
        """Check whether a VM has reported something newer about its preparation. Two records are
        compared by their order; if one report is from a state document, by the VM's clock.
        """
        if reported.sequence and reported.stream == before.stream and before.sequence:
            is_later = put_back and reported.time > before.time
            return reported.sequence <= before.sequence and not is_later
        return reported.time < before.time and not self._follows_document(reported, before)

    def _follows_document(
        self, reported: ReportedPreparation, document: ReportedPreparation
    ) -> bool:
        """Check whether a record says what a state document said that came in before it, or what
        came after that, although its time is earlier: the clock may have been set back since.

        It must come after the VM's newest record about the event, so it is of no earlier stay. That
        the VM has recovered comes after a document that showed the event only if the event is over
        by now.
        """
        latest = self._loaded.reports.get((reported.facts.event_id, reported.vm_id))
        if latest is None or not reported.stream == document.stream == latest.stream:
            return False
        if not 0 < latest.sequence < reported.sequence:
            return False
        if reported.facts.state == RECOVERED:
            return _is_past(latest)
        return _is_same(document.facts, reported.facts)

    def _keep_prepared(self, reported: ReportedPreparation, *, put_back: bool = False) -> None:
        """Keep what a VM reports about its preparation. What it prepared for an ended event, or for
        one that no longer names it, does not count if the event comes back unchanged; also if the
        record of that comes in only then, unless the VM's store was put back.
        """
        key = (reported.facts.event_id, reported.vm_id)
        latest = self._loaded.reports.get(key)
        is_past = latest is not None and (
            _is_past(latest) or (not put_back and _is_of_earlier_stay(reported, latest))
        )
        if is_past:
            reported = replace(reported, facts=replace(reported.facts, fingerprint=""))
        if key not in self._loaded.preparations:
            self._forget_recovered(reported.vm_id)
        if self._loaded.preparations.get(key) != reported:
            self._loaded.preparations[key] = reported
            self.changes.preparations[key] = reported

    def _forget_recovered(self, vm_id: str) -> None:
        """Make room for one more preparation of a VM: forget the oldest ones from which it has
        recovered, those for events that it reports as pending last.
        """
        known = [key for key in self._loaded.preparations if key[1] == vm_id]
        if len(known) < MAX_PREPARATIONS:
            return
        recovered = [
            key for key in known if self._loaded.preparations[key].facts.state == RECOVERED
        ]
        pending = {
            key
            for key in recovered
            if (latest := self._loaded.reports.get(key)) is not None
            and latest.report.state != "ended"
        }
        recovered.sort(key=lambda key: (key in pending, self._loaded.preparations[key].time))
        for key in recovered[: len(known) + 1 - MAX_PREPARATIONS]:
            del self._loaded.preparations[key]
            self.changes.preparations.pop(key, None)
            self.changes.past_preparations.add(key)

    def _begin_unprepared(self, *, before: Vm | None, vm: Vm, at: float) -> None:
        """Mark the preparations of a VM with a new store as recovered: the VM was made again, or
        its disk was lost. `at`: the time that it reports.
        """
        if before is None or before.stream in (None, vm.stream):
            return
        for (_, vm_id), reported in list(self._loaded.preparations.items()):
            # A state document of the new store has no sequence, and may have come in before this.
            is_before = bool(reported.sequence) or reported.time <= at
            is_earlier = reported.stream != vm.stream and is_before
            if vm_id == vm.vm_id and is_earlier and reported.facts.state != RECOVERED:
                self._keep_prepared(_unprepared(reported, at))


def _may_take_a_name(before: Vm | None, vm: Vm, at: float, silent_seconds: float) -> bool:
    """Check whether a VM may bear a name that it did not bear before: it is new, it has come back,
    or its name was withheld.
    """
    if before is None or vm.withheld or not vms.bears_the_same_name(before, vm):
        return True
    if before.accepted_at != vm.accepted_at:
        return True
    return not vms.is_there(before, at, silent_seconds) and vms.is_there(vm, at, silent_seconds)


def _with_conflict(vm: Vm, at: float) -> Vm:
    """Return a VM with the time at which its conflict began, if it has one."""
    if vm.reported_as is None and not vm.withheld:
        return vm if vm.conflict_at is None else replace(vm, conflict_at=None)
    return vm if vm.conflict_at is not None else replace(vm, conflict_at=at)


def _unprepared(reported: ReportedPreparation, time: float) -> ReportedPreparation:
    """Return the preparation as recovered, as the VM reports at `time`."""
    return replace(reported, facts=replace(reported.facts, state=RECOVERED, reason=None), time=time)


def _is_lost(before: PreparationFacts, reported: PreparationFacts) -> bool:
    """Check whether a VM had prepared for a state of an event, and now reports that it has not."""
    return before.fingerprint == reported.fingerprint and before.state in ("preparing", "prepared")


def _is_past(latest: LatestReport) -> bool:
    """Check whether a VM reports that an event is over, or does not name it any more."""
    return latest.report.state == "ended" or not latest.report.affects_this_vm


def _is_of_earlier_stay(reported: ReportedPreparation, latest: LatestReport) -> bool:
    """Check whether a VM reported a preparation before it announced the event as it is now: by the
    order of its records.
    """
    is_announced = latest.report.transition == "scheduled" and latest.stream == reported.stream
    return is_announced and 0 < reported.sequence < latest.sequence


def _is_same(one: PreparationFacts, other: PreparationFacts) -> bool:
    return (one.fingerprint, one.state) == (other.fingerprint, other.state)


def _is_newer(before: LatestReport, at: float, event: EventReport, vm: Vm) -> bool:
    """Check whether a state document is newer than the report that is known."""
    if vm.stream not in (None, before.stream) and before.time < at:
        return True  # from a store that counts revisions from the beginning
    if before.report.revision != event.revision:
        return before.report.revision < event.revision
    return before.report.state == "ended" and before.time < at  # it was not over


def is_deletion(event: EventReport) -> bool:
    """Check whether a report says that the VMs that it names are deleted."""
    is_over = event.transition == "ended" and event.event.event_status == "Completed"
    return is_over and event.impact == "delete"
