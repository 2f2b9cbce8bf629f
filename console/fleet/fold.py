"""The changes that a batch of records makes: rows in, rows out; the writer commits them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from console.fleet import gaps, vms
from console.fleet.contact import Listening
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
"""Events that are not over, of which one VM may be a reporter: a document of Azure's has few."""
MAX_OPEN_NAMES: Final = 20_000
"""Names of the open events that are shown as one VM reports them."""
_FEW_NAMES: Final = 20
"""An event with so few is not weighed by its names."""
MAX_UNRECOVERED: Final = 100
"""Events for which one VM may have prepared and from which it has not recovered."""
MAX_PREPARATIONS: Final = 1000
"""Events of which is kept how far one VM had prepared for them."""
MAX_RECEIPTS: Final = 1000
"""Receipts of one VM about one event."""
MAX_GAPS: Final = 1000
"""Gaps of one stream that may still be filled: those before them stay counted."""
MAX_STREAMS: Final = 20
"""Streams of one VM; a bridge begins a new one only with a new store."""
EXCESSES: Final[Mapping[str, str]] = {
    "too_many_events": f"it reports {MAX_OPEN_EVENTS:,} open events already",
    "too_many_names": f"its open events name more than {MAX_OPEN_NAMES:,} VMs",
    "too_many_preparations": f"it has prepared for {MAX_UNRECOVERED} events already",
    "too_many_receipts": f"it has sent {MAX_RECEIPTS:,} receipts about this event already",
}
"""What of a VM is not stored any more, by the word for the quarantine."""


@dataclass(slots=True, kw_only=True)
class Loaded:
    """What the database holds of the VMs and events of a batch; the fold works on it."""

    records: dict[str, str] = field(default_factory=dict)
    """The VM of each id."""
    open_events: Counter[str] = field(default_factory=Counter)
    """By vmId, of how many events that are not over it is a reporter."""
    open_names: Counter[str] = field(default_factory=Counter)
    """By vmId, how many names those events have that are shown as it reports them."""
    receipts: Counter[ReporterKey] = field(default_factory=Counter)
    """How many are stored."""
    vms: dict[str, Vm] = field(default_factory=dict)
    streams: dict[StreamKey, Stream] = field(default_factory=dict)
    gaps: dict[StreamKey, list[SequenceGap]] = field(default_factory=dict)
    reports: dict[ReporterKey, LatestReport] = field(default_factory=dict)
    preparations: dict[ReporterKey, ReportedPreparation] = field(default_factory=dict)
    bearers: dict[Bearing, set[str]] = field(default_factory=dict)
    """The VMs that bear, or would bear, a name which one of the batch may take."""
    enrolled: dict[str, Vm] = field(default_factory=dict)
    """What an admin said of VMs of which nothing has come in yet."""
    bound_tags: dict[str, Mapping[str, str]] = field(default_factory=dict)
    """The tags that an admin gave such VMs, by vmId."""


@dataclass(slots=True, kw_only=True)
class Changes:
    """What a batch changes, each row once."""

    records: dict[str, IncomingRecord] = field(default_factory=dict)
    """New ones, by id; heartbeats never."""
    vms: dict[str, Vm] = field(default_factory=dict)
    streams: dict[StreamKey, Stream] = field(default_factory=dict)
    gaps: dict[StreamKey, list[SequenceGap]] = field(default_factory=dict)
    """All that are left of a stream's gaps, where they changed."""
    past_streams: set[StreamKey] = field(default_factory=set)
    """Those that are forgotten, with their gaps: their VMs have begun too many."""
    reports: dict[ReporterKey, LatestReport] = field(default_factory=dict)
    older_reports: list[LatestReport] = field(default_factory=list)
    """What came in too, and is not the newest that its reporter says: it was measured all the same.
    """
    touched: set[EventKey] = field(default_factory=set)
    """Events about which a reporter says something else than before."""
    turned: set[str] = field(default_factory=set)
    """VMs that are heard and were not, or were and are not: their word counts otherwise."""
    receipts: list[Receipt] = field(default_factory=list)
    preparations: dict[ReporterKey, ReportedPreparation] = field(default_factory=dict)
    altered: set[str] = field(default_factory=set)
    """VMs of which more has changed than the time of their contact."""
    duplicates: int = 0
    refused: list[tuple[str, IncomingRecord]] = field(default_factory=list)
    """A word of `EXCESSES`, and what of a VM is more than any VM has to say: it is not stored."""
    listening: Listening = field(default_factory=Listening)
    """How patient the console is."""


def fold(
    loaded: Loaded, batch: Iterable[Incoming], *, silent_after: float | None = None
) -> Changes:
    """The changes that a batch makes, in the order in which it came in; `silent_after` in seconds,
    if it is the same for every VM.
    """
    changes = Changes(listening=Listening(silent_after=silent_after))
    for each in batch:
        if isinstance(each, IncomingRecord):
            _record(loaded, changes, each)
        elif isinstance(each, IncomingStatus):
            vm = vms.with_status(_known_vm(loaded, each.vm_id), each)
            _put(loaded, changes, vm, each.received_at)
        else:
            _state(loaded, changes, each)
    return changes


def _record(loaded: Loaded, changes: Changes, record: IncomingRecord) -> None:
    vm_id = record.vm.vm_id
    vm = _known_vm(loaded, vm_id)
    key = (vm_id, record.stream)
    stream, missing = loaded.streams.get(key), loaded.gaps.get(key, [])
    counted = gaps.count(stream, missing, record, interval=None if vm is None else vm.interval)
    record = _with_own_id(loaded, record)
    seen = record.kind == "heartbeat" or record.id in loaded.records
    if seen and not counted.fresh:
        _count_again(loaded, changes, record)
        return
    _keep_counted(loaded, changes, counted)
    # Another record at a place that had come in: the store was put back to an earlier copy.
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
    heard = _put(loaded, changes, heard, record.received_at)
    reported_at = heard.reported_at(record.time, record.received_at)
    _begin_unprepared(loaded, changes, before=vm, vm=heard, at=reported_at)
    excess = _excess(loaded, record)
    if excess is not None:
        changes.refused.append((excess, record))
        return
    if record.event is not None:
        _observe(loaded, changes, of_record(record, record.event, heard), put_back=put_back)
    # What a VM with a new store had prepared before that counts no more, also if it comes in late.
    if record.preparation is not None and record.stream == heard.stream:
        reported = ReportedPreparation(
            vm_id=vm_id,
            scope=heard.scope,
            facts=record.preparation,
            stream=record.stream,
            sequence=record.sequence,
            time=reported_at,
        )
        _prepare(loaded, changes, reported, put_back=put_back)
    if not seen:
        loaded.records[record.id] = vm_id
        changes.records[record.id] = record
        if record.receipt is not None:
            changes.receipts.append(
                Receipt(
                    record_id=record.id,
                    vm_id=vm_id,
                    at=record.received_at,
                    time=reported_at,
                    facts=record.receipt,
                    scope=heard.scope,
                )
            )


def _keep_counted(loaded: Loaded, changes: Changes, counted: Counted) -> None:
    """Keep how far a stream has come in, and its newest gaps."""
    key = (counted.stream.vm_id, counted.stream.stream)
    if key not in loaded.streams:
        changes.past_streams.discard(key)
        _forget_streams(loaded, changes, key)
    if counted.stream is not loaded.streams.get(key):
        loaded.streams[key] = changes.streams[key] = counted.stream
    if counted.gaps != loaded.gaps.get(key, []):
        loaded.gaps[key] = changes.gaps[key] = counted.gaps[-MAX_GAPS:]


def _forget_streams(loaded: Loaded, changes: Changes, new: StreamKey) -> None:
    """Forget the oldest streams of a VM beyond as many as it may have; not the new one."""
    known = [each for each in loaded.streams if each[0] == new[0]]
    known.sort(key=lambda each: loaded.streams[each].high_time)
    for each in known[: max(0, len(known) + 1 - MAX_STREAMS)]:
        del loaded.streams[each]
        loaded.gaps.pop(each, None)
        changes.streams.pop(each, None)
        changes.gaps.pop(each, None)
        changes.past_streams.add(each)


def _excess(loaded: Loaded, record: IncomingRecord) -> str | None:
    """Why a record is more than its VM may have stored, a word of `EXCESSES`; None if it is not."""
    vm_id = record.vm.vm_id
    if record.event is not None:
        return _excess_of_event(loaded, vm_id, record.event)
    if record.preparation is not None and _is_one_too_many(loaded, vm_id, record.preparation):
        return "too_many_preparations"
    if record.receipt is not None and record.receipt.event_id is not None:
        key = (record.receipt.event_id, vm_id)
        if record.id not in loaded.records and loaded.receipts[key] >= MAX_RECEIPTS:
            return "too_many_receipts"
        loaded.receipts[key] += 1
    return None


def _excess_of_event(loaded: Loaded, vm_id: str, event: EventReport) -> str | None:
    """As `_excess`, of what a VM reports as open."""
    if event.state == "ended":
        return None
    before = loaded.reports.get((event.event.event_id, vm_id))
    was_open = before is not None and before.report.state != "ended"
    if not was_open and loaded.open_events[vm_id] >= MAX_OPEN_EVENTS:
        return "too_many_events"
    names = len(event.event.resources)
    if names <= _FEW_NAMES:
        return None
    if before is not None and was_open:
        names -= len(before.report.event.resources)
    if loaded.open_names[vm_id] + names > MAX_OPEN_NAMES:
        return "too_many_names"
    loaded.open_names[vm_id] += names
    return None


def _is_one_too_many(loaded: Loaded, vm_id: str, reported: PreparationFacts) -> bool:
    """Whether a VM tells of a preparation for one more event than it may."""
    if (reported.event_id, vm_id) in loaded.preparations:
        return False
    known = [each for key, each in loaded.preparations.items() if key[1] == vm_id]
    if len(known) >= MAX_PREPARATIONS:
        return True
    return sum(each.facts.state != RECOVERED for each in known) >= MAX_UNRECOVERED


def _with_own_id(loaded: Loaded, record: IncomingRecord) -> IncomingRecord:
    """The record; under another id if another VM has used its own: that takes nothing away from
    this one's history.
    """
    vm_id = record.vm.vm_id
    if loaded.records.get(record.id, vm_id) == vm_id:
        return record
    return replace(record, id=f"{record.id} of {vm_id}")


def _count_again(loaded: Loaded, changes: Changes, record: IncomingRecord) -> None:
    """A copy; or the heartbeat of a VM whose disk was put back to an earlier copy, which counts
    again what it had counted: that is contact, also if it had stopped before.
    """
    vm = loaded.vms.get(record.vm.vm_id)
    if vm is None or record.kind != "heartbeat" or not vms.is_later(vm, record):
        changes.duplicates += 1
        return
    _put(loaded, changes, vms.with_record(vm, record, put_back=True), record.received_at)


def accept(loaded: Loaded, changes: Changes, vm_id: str, at: float) -> None:
    """A VM that is in conflict is what it says from now on; another that is there and bears its
    name bears it no more.
    """
    _put(loaded, changes, replace(vms.as_it_says(loaded.vms[vm_id]), accepted_at=at), at)
    changes.touched |= {each.key for each in loaded.reports.values() if each.vm_id == vm_id}


def _known_vm(loaded: Loaded, vm_id: str) -> Vm | None:
    """A VM's row, or what an admin said of one of which nothing has come in yet."""
    return loaded.vms.get(vm_id) or loaded.enrolled.get(vm_id)


def _put(loaded: Loaded, changes: Changes, vm: Vm, at: float) -> Vm:
    """The row of a VM from a moment on, in seconds since 1970."""
    before = loaded.vms.get(vm.vm_id)
    patience = changes.listening.patience(vm.interval)
    if before is None and vm.vm_id in loaded.bound_tags:
        vm = vms.with_bound_tags(vm, loaded.bound_tags[vm.vm_id])
    if before is None or not vms.bears_the_same_name(before, vm):
        vm = replace(vm, first_at=at)
    if _may_take_a_name(before, vm, at, patience):
        vm = _with_name(loaded, changes, vm, at)
    if before is not None and (before.scope, before.place) != (vm.scope, vm.place):
        _judge_again(loaded, changes, vm)
    vm = _with_conflict(vm, at)
    if before is not None and vms.is_heard(before, at, patience) != vms.is_heard(vm, at, patience):
        changes.turned.add(vm.vm_id)
    if vms.is_change(before, vm, patience):
        changes.altered.add(vm.vm_id)
    loaded.vms[vm.vm_id] = vm
    changes.vms[vm.vm_id] = vm
    return vm


def _may_take_a_name(before: Vm | None, vm: Vm, at: float, patience: float) -> bool:
    """Whether a VM bears its name as it did not before: it is new, is back, or was withheld it."""
    if before is None or vm.withheld or not vms.bears_the_same_name(before, vm):
        return True
    if before.accepted_at != vm.accepted_at:
        return True
    return not vms.is_there(before, at, patience) and vms.is_there(vm, at, patience)


def _with_name(loaded: Loaded, changes: Changes, vm: Vm, at: float) -> Vm:
    """A VM with its name, unless another that is there has the better right to it; those that are
    there and have not are withheld theirs.
    """
    bearing = vms.bearing(vm)
    others = loaded.bearers.setdefault(bearing, set())
    there = [
        other
        for other in (loaded.vms[each] for each in others - {vm.vm_id})
        if not other.withheld
        and vms.bearing(other) == bearing
        and vms.is_there(other, at, changes.listening.patience(other.interval))
    ]
    others.add(vm.vm_id)
    if not all(vms.is_before(vm, other) for other in there):
        return replace(vm, withheld=True)
    for other in there:
        after = _with_conflict(replace(other, withheld=True), at)
        loaded.vms[other.vm_id] = changes.vms[other.vm_id] = after
        changes.altered.add(other.vm_id)
        _judge_again(loaded, changes, after)
    return replace(vm, withheld=False, first_at=at) if vm.withheld else vm


def _with_conflict(vm: Vm, at: float) -> Vm:
    """A VM that says when its conflict began, if there is one."""
    if vm.reported_as is None and not vm.withheld:
        return vm if vm.conflict_at is None else replace(vm, conflict_at=None)
    return vm if vm.conflict_at is not None else replace(vm, conflict_at=at)


def _judge_again(loaded: Loaded, changes: Changes, vm: Vm) -> None:
    """What a VM said of events, now that it bears another name, or is elsewhere."""
    for key, before in list(loaded.reports.items()):
        if before.vm_id != vm.vm_id:
            continue
        after = replace(before, scope=vm.scope, is_own=vm.is_named_by(before.report))
        changes.touched |= {before.key, after.key}
        if after != before:
            loaded.reports[key] = changes.reports[key] = after


def _observe(
    loaded: Loaded, changes: Changes, latest: LatestReport, *, put_back: bool = False
) -> None:
    key = (latest.event_id, latest.vm_id)
    before = loaded.reports.get(key)
    if before is not None:
        later = put_back and latest.time >= before.time
        later = later or _is_of_newer_store(loaded, latest, before)
        if not later and not supersedes(latest, before):
            _observe_late(loaded, changes, latest, before)
            return
        if key in changes.reports:
            changes.older_reports.append(before)
        if before.first_at < latest.first_at:
            latest = replace(latest, first_at=before.first_at)
        if before.scope != latest.scope:  # until now, Azure's word for it was not known
            changes.touched.add(before.key)
    was_open = before is not None and before.report.state != "ended"
    is_open = latest.report.state != "ended"
    loaded.open_events[latest.vm_id] += is_open - was_open
    loaded.reports[key] = latest
    changes.reports[key] = latest
    changes.touched.add(latest.key)
    prepared = loaded.preparations.get(key)
    if prepared is not None:
        _keep_prepared(loaded, changes, prepared)


def _is_of_newer_store(loaded: Loaded, latest: LatestReport, before: LatestReport) -> bool:
    """Whether the VM has got a new store since: by its order, for its clock may be behind now."""
    current = loaded.vms[latest.vm_id].stream
    return bool(before.stream) and latest.stream == current != before.stream


def _observe_late(
    loaded: Loaded, changes: Changes, late: LatestReport, newest: LatestReport
) -> None:
    """What a reporter said before its newest report, and which comes in after that."""
    if late.scope != newest.scope:
        return
    changes.older_reports.append(late)
    changes.touched.add(newest.key)
    if late.first_at < newest.first_at:
        key = (newest.event_id, newest.vm_id)
        loaded.reports[key] = changes.reports[key] = replace(newest, first_at=late.first_at)


def _state(loaded: Loaded, changes: Changes, state: IncomingState) -> None:
    """Events that are pending on a VM, where the records about them were missed."""
    vm = vms.with_state(_known_vm(loaded, state.vm_id), state)
    vm = _put(loaded, changes, vm, state.received_at)
    at, written_at = vm.reported_at(state.time, state.received_at), state.time + vm.behind
    pending = set()
    for record_id, event in state.events:
        event_id = event.event.event_id
        pending.add(event_id)
        before = loaded.reports.get((event_id, state.vm_id))
        if before is not None and not _is_newer(before, written_at, event, vm):
            continue
        if _excess_of_event(loaded, state.vm_id, event) is None:
            _observe(loaded, changes, of_pending(state, vm, record_id, event))
    for prepared in state.preparations:
        reported = ReportedPreparation(
            vm_id=state.vm_id,
            scope=vm.scope,
            facts=prepared,
            stream=vm.stream or "",
            sequence=0,
            time=at,
        )
        _prepare(loaded, changes, reported)
    for (event_id, vm_id), latest in list(loaded.reports.items()):
        if vm_id == state.vm_id and event_id not in pending and latest.time < written_at:
            over = ended_unseen(latest, at)
            if over is not None:
                _observe(loaded, changes, over)


def _prepare(
    loaded: Loaded, changes: Changes, reported: ReportedPreparation, *, put_back: bool = False
) -> None:
    """What a VM says of its preparation, unless it has said something newer."""
    before = loaded.preparations.get((reported.facts.event_id, reported.vm_id))
    if reported.facts.state == NONE:
        if (
            before is not None
            and before.time < reported.time
            and _is_lost(before.facts, reported.facts)
        ):
            _keep_prepared(loaded, changes, _unprepared(before, reported.time))
        return
    if before is None and _is_one_too_many(loaded, reported.vm_id, reported.facts):
        return
    if before is not None:
        if reported.sequence and reported.stream == before.stream and before.sequence:
            is_later = put_back and reported.time > before.time
            if reported.sequence <= before.sequence and not is_later:
                return
        elif reported.time < before.time:
            return
        elif not reported.sequence and _is_same(before.facts, reported.facts):
            return  # the record says more than the state document
    _keep_prepared(loaded, changes, reported)


def _keep_prepared(loaded: Loaded, changes: Changes, reported: ReportedPreparation) -> None:
    """Keep what a VM has said of its preparation; what it prepared for an event that is over, or
    that does not name it any more, does not count if the event comes back as it was.
    """
    key = (reported.facts.event_id, reported.vm_id)
    latest = loaded.reports.get(key)
    if latest is not None and (latest.report.state == "ended" or not latest.report.affects_this_vm):
        reported = replace(reported, facts=replace(reported.facts, fingerprint=""))
    if loaded.preparations.get(key) != reported:
        loaded.preparations[key] = reported
        changes.preparations[key] = reported


def _begin_unprepared(
    loaded: Loaded, changes: Changes, *, before: Vm | None, vm: Vm, at: float
) -> None:
    """A VM with a new store has prepared nothing: it was made again, or its disk was lost. `at`:
    when it says so.
    """
    if before is None or before.stream in (None, vm.stream):
        return
    for (_, vm_id), reported in list(loaded.preparations.items()):
        # A state document of the new store has no sequence, and may have come in before this.
        is_before = bool(reported.sequence) or reported.time <= at
        is_earlier = reported.stream != vm.stream and is_before
        if vm_id == vm.vm_id and is_earlier and reported.facts.state != RECOVERED:
            _keep_prepared(loaded, changes, _unprepared(reported, at))


def _unprepared(reported: ReportedPreparation, time: float) -> ReportedPreparation:
    """The preparation of a VM that has none any more, as it says at `time`."""
    return replace(reported, facts=replace(reported.facts, state=RECOVERED, reason=None), time=time)


def _is_lost(before: PreparationFacts, reported: PreparationFacts) -> bool:
    """Whether a VM that says of a state of an event that it has not prepared for it had done so."""
    return before.fingerprint == reported.fingerprint and before.state in ("preparing", "prepared")


def _is_same(one: PreparationFacts, other: PreparationFacts) -> bool:
    return (one.fingerprint, one.state) == (other.fingerprint, other.state)


def _is_newer(before: LatestReport, at: float, event: EventReport, vm: Vm) -> bool:
    """Whether a state document of then knows more of an event than what was observed before."""
    if vm.stream not in (None, before.stream) and before.time < at:
        return True  # from a store that counts revisions from the beginning
    if before.report.revision != event.revision:
        return before.report.revision < event.revision
    return before.report.state == "ended" and before.time < at  # it was not over


def is_deletion(event: EventReport) -> bool:
    """Whether it says that the VMs that it names are gone."""
    is_over = event.transition == "ended" and event.event.event_status == "Completed"
    return is_over and event.impact == "delete"
