"""The changes that a batch of records makes: rows in, rows out; the writer commits them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from console.fleet import gaps, vms
from console.fleet.batch import Changes, LoadedRows, ReporterKey, StreamKey
from console.fleet.clocks import measured_clock_behind, seconds_waited
from console.fleet.gaps import SequenceCount
from console.fleet.limits import exceeded_by_event, exceeded_limit
from console.fleet.names import NameFold
from console.fleet.preparations import PreparationFold
from console.fleet.reports import ended_unseen, of_pending, of_record, supersedes
from console.fleet.tags import with_bound_tags
from console.fleet.values.decision import Receipt
from console.fleet.values.report import LatestReport, ReportedPreparation
from console.fleet.values.vm import Vm
from console.records.incoming import (
    EventReport,
    IncomingMessage,
    IncomingRecord,
    IncomingState,
    IncomingStatus,
)

MAX_GAPS: Final = 1000
"""How many gaps of one stream can still be filled. The records in older gaps stay counted as
missing.
"""
MAX_STREAMS: Final = 20
"""How many streams of one VM are stored. A bridge begins a new stream only with a new store."""


def fold(loaded: LoadedRows, batch: Iterable[IncomingMessage]) -> Changes:
    """Return the changes that a batch makes, in the order in which it came in."""
    folding = Fold(loaded)
    for each in batch:
        folding.apply(each)
    return folding.changes


class Fold:
    """Folds what comes in, one after the other, into what the database has of its VMs and events,
    and collects the rows that change.
    """

    def __init__(self, loaded: LoadedRows) -> None:
        """`loaded` is changed by what comes in."""
        self._loaded = loaded
        self.changes: Final = Changes(silent_time=loaded.silent_time)
        self._names = NameFold(loaded, self.changes)
        self._preparations = PreparationFold(loaded, self.changes)

    def apply(self, incoming: IncomingMessage) -> None:
        """Apply one record, status or state document."""
        if isinstance(incoming, IncomingRecord):
            self._apply_record(incoming)
        elif isinstance(incoming, IncomingStatus):
            vm = vms.with_status(self._known_vm(incoming.vm_id), incoming)
            self._keep_vm(vm, incoming.received_at)
        else:
            self._apply_state(incoming)

    def accept(self, vm_id: str, at: float) -> Vm:
        """Accept what a VM in conflict reports of itself; return the VM as it is then. If another
        VM bears the name that it gets, that one's name is withheld.
        """
        known = self._loaded.vms[vm_id]
        accepted = self._keep_vm(replace(vms.as_reported(known), accepted_at=at), at)
        reports = self._loaded.reports.values()
        self.changes.reported_events |= {each.key for each in reports if each.vm_id == vm_id}
        return accepted

    def _apply_record(self, record: IncomingRecord) -> None:
        vm_id = record.vm.vm_id
        vm = self._known_vm(vm_id)
        key = StreamKey(vm_id, record.stream)
        stream = self._loaded.streams.get(key)
        missing = self._loaded.gaps.get(key, [])
        counted = gaps.count(stream, missing, record, interval=None if vm is None else vm.interval)
        record = self._with_own_id(record)
        is_stored = record.kind == "heartbeat" or record.id in self._loaded.records
        if is_stored and not counted.is_new:
            self._count_again(record)
            return
        self._keep_counted(counted)
        # Another record with a known sequence: the store was restored from an earlier copy.
        is_restored = not counted.is_new
        heard = vms.with_record(
            vm,
            record,
            is_restored=is_restored,
            has_new_store=stream is None,
            clock_behind=measured_clock_behind(vm, stream, record),
            waited=seconds_waited(stream, record),
        )
        if counted.gaps or missing:
            growth = sum(gap.size for gap in counted.gaps) - sum(gap.size for gap in missing)
            if growth > 0:
                self.changes.incomplete_vms.add(vm_id)
            heard = replace(heard, missing_records=max(0, heard.missing_records + growth))
        heard = self._keep_vm(heard, record.received_at)
        reported_at = heard.reported_at(record.time, record.received_at)
        self._preparations.begin_store(before=vm, vm=heard, record=record, at=reported_at)
        if is_restored:
            self._preparations.put_back_store(record, at=reported_at)
        limit = exceeded_limit(self._loaded, record)
        if limit is not None:
            self.changes.quarantined.append((limit, record))
            return
        self._apply_content(record, heard, at=reported_at, is_restored=is_restored)
        self._end_events_of_lost_store(record, heard, at=reported_at)
        if not is_stored:
            self._keep_record(record, heard, at=reported_at)

    def _apply_content(
        self, record: IncomingRecord, vm: Vm, *, at: float, is_restored: bool
    ) -> None:
        """Apply what a record says of an event and of a preparation; `at` is when it was."""
        if record.event is not None:
            self._apply_report(of_record(record, record.event, vm), is_restored=is_restored)
        # What a VM prepared before it got a new store no longer counts, even if the record is late.
        if record.preparation is not None and record.stream == vm.stream:
            reported = ReportedPreparation(
                vm_id=vm.vm_id,
                scope=vm.scope,
                content=record.preparation,
                stream=record.stream,
                sequence=record.sequence,
                time=at,
            )
            self._preparations.apply(reported, is_restored=is_restored)

    def _end_events_of_lost_store(self, record: IncomingRecord, vm: Vm, *, at: float) -> None:
        """End the events that the VM reported before it lost its store and that are not pending any
        more: its new store knows nothing of them, so it never reports their end.

        The newest heartbeat of the new stream tells it, once all records before it have come in: it
        counts as many pending events as the new stream has reported.
        """
        if record.pending_events is None or vm.vm_id not in self._loaded.with_earlier_streams:
            return
        if not self._is_whole_up_to(record, vm):
            return
        is_open = [
            each
            for each in self._loaded.reports.values()
            if each.vm_id == vm.vm_id and each.report.state != "ended"
        ]
        earlier = [each for each in is_open if each.stream != record.stream]
        if len(is_open) - len(earlier) != record.pending_events:
            return
        for each in earlier:
            over = ended_unseen(each, at)
            if over is not None:
                self._apply_report(over)

    def _is_whole_up_to(self, record: IncomingRecord, vm: Vm) -> bool:
        """Check whether a record is the newest of the VM's newest stream, and none before it is
        missing.
        """
        key = StreamKey(vm.vm_id, record.stream)
        stream = self._loaded.streams[key]
        return (
            record.stream == vm.stream
            and record.sequence == stream.high
            and stream.low == 1
            and not self._loaded.gaps.get(key)
        )

    def _keep_record(self, record: IncomingRecord, vm: Vm, *, at: float) -> None:
        """Keep a new record, and the receipt in it."""
        self._loaded.records[record.id] = vm.vm_id
        self.changes.records[record.id] = record
        if record.receipt is not None:
            self.changes.receipts.append(
                Receipt(
                    record_id=record.id,
                    vm_id=vm.vm_id,
                    at=record.received_at,
                    time=at,
                    content=record.receipt,
                    scope=vm.scope,
                )
            )

    def _keep_counted(self, counted: SequenceCount) -> None:
        """Keep the state of a stream, and its newest gaps."""
        key = StreamKey(counted.stream.vm_id, counted.stream.stream)
        if key not in self._loaded.streams:
            self.changes.past_streams.discard(key)
            self._forget_streams(key)
        if counted.stream is not self._loaded.streams.get(key):
            self._loaded.streams[key] = self.changes.streams[key] = counted.stream
        if counted.gaps != self._loaded.gaps.get(key, []):
            self._loaded.gaps[key] = self.changes.gaps[key] = counted.gaps[-MAX_GAPS:]

    def _forget_streams(self, new: StreamKey) -> None:
        """Forget the oldest streams of a VM that has too many, but never the new one."""
        known = [each for each in self._loaded.streams if each.vm_id == new.vm_id]
        known.sort(key=lambda each: self._loaded.streams[each].high_time)
        for each in known[: max(0, len(known) + 1 - MAX_STREAMS)]:
            del self._loaded.streams[each]
            self._loaded.gaps.pop(each, None)
            self.changes.streams.pop(each, None)
            self.changes.gaps.pop(each, None)
            self.changes.past_streams.add(each)

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
        heard = self._keep_vm(vms.with_record(vm, record, is_restored=True), record.received_at)
        self._preparations.put_back_store(
            record, at=heard.reported_at(record.time, record.received_at)
        )

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
            vm = with_bound_tags(vm, self._loaded.bound_tags[vm.vm_id])
        vm = self._names.apply(before, vm, at)
        if before is not None and vms.was_heard_lately(
            before, at, silent_seconds
        ) != vms.was_heard_lately(vm, at, silent_seconds):
            self.changes.contact_changed.add(vm.vm_id)
        if vms.is_change(before, vm, silent_seconds):
            self.changes.changed_vms.add(vm.vm_id)
        self._loaded.vms[vm.vm_id] = vm
        self.changes.vms[vm.vm_id] = vm
        return vm

    def _apply_report(self, latest: LatestReport, *, is_restored: bool = False) -> None:
        key = ReporterKey(latest.event_id, latest.vm_id)
        before = self._loaded.reports.get(key)
        if before is not None:
            later = is_restored and latest.time >= before.time
            later = later or self._is_of_newer_store(latest, before)
            if not later and not supersedes(latest, before):
                self._observe_late(latest, before)
                return
            if key in self.changes.reports:
                self.changes.older_reports.append(before)
            if before.first_seen_at < latest.first_seen_at:
                latest = replace(latest, first_seen_at=before.first_seen_at)
            if before.scope != latest.scope:  # the reporter's scope was not known until now
                self.changes.reported_events.add(before.key)
        was_open = before is not None and before.report.state != "ended"
        is_open = latest.report.state != "ended"
        self._loaded.open_events[latest.vm_id] += is_open - was_open
        self._loaded.reports[key] = latest
        self.changes.reports[key] = latest
        self.changes.reported_events.add(latest.key)
        prepared = self._loaded.preparations.get(key)
        if prepared is not None:
            self._preparations.keep(prepared)

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
        self.changes.reported_events.add(newest.key)
        if late.first_seen_at < newest.first_seen_at:
            key = ReporterKey(newest.event_id, newest.vm_id)
            self._loaded.reports[key] = self.changes.reports[key] = replace(
                newest, first_seen_at=late.first_seen_at
            )

    def _apply_state(self, state: IncomingState) -> None:
        """Apply a state document: the events that are pending on a VM, in case their records were
        missed.
        """
        vm = vms.with_state(self._known_vm(state.vm_id), state)
        vm = self._keep_vm(vm, state.received_at)
        at = vm.reported_at(state.time, state.received_at)
        written_at = state.time + vm.clock_behind
        pending = set()
        for record_id, event in state.events:
            event_id = event.event.event_id
            pending.add(event_id)
            before = self._loaded.reports.get(ReporterKey(event_id, state.vm_id))
            if before is not None and not _is_newer(before, written_at, event, vm):
                continue
            if exceeded_by_event(self._loaded, state.vm_id, event) is None:
                self._apply_report(of_pending(state, vm, record_id, event))
        for prepared in state.preparations:
            reported = ReportedPreparation(
                vm_id=state.vm_id,
                scope=vm.scope,
                content=prepared,
                stream=vm.stream or "",
                sequence=0,
                time=at,
            )
            self._preparations.apply(reported)
        for (event_id, vm_id), latest in list(self._loaded.reports.items()):
            if vm_id == state.vm_id and event_id not in pending and latest.time < written_at:
                over = ended_unseen(latest, at)
                if over is not None:
                    self._apply_report(over)


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
