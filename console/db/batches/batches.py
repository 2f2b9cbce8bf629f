"""Writes a batch of messages: loads the rows that it needs, and writes those that it changes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace

from sqlalchemy import (
    Connection,
    and_,
    delete,
    exists,
    func,
    or_,
    select,
    tuple_,
    update,
)

from console.db import rows
from console.db.access.enrolment import read_enrolled
from console.db.bulk import insert_new, rows_in, upsert
from console.db.events.shown_events import (
    pending_of,
    write_events,
)
from console.db.events.spellings import stored_spellings
from console.db.schema import tables
from console.db.vms.vm_updates import retire_deleted
from console.fleet import vms
from console.fleet.batch import Changes, LoadedRows, ReporterKey, StreamKey
from console.fleet.contact import BY_HEARTBEATS, Listening, SilentTime
from console.fleet.enrolled_vms import enrolled_vm
from console.fleet.fold import fold, is_deletion
from console.fleet.values.event import OPEN
from console.fleet.values.vm import Vm
from console.records.incoming import (
    IncomingMessage,
    IncomingRecord,
    IncomingState,
    event_ids,
    with_event_ids,
)


def write_batch(
    connection: Connection,
    batch: Iterable[IncomingMessage],
    number: int,
    *,
    now: float,
    silent_time: SilentTime = BY_HEARTBEATS,
) -> Changes:
    """Write what a batch changes, and return that; `now` in seconds since 1970."""
    items = _with_stored_spellings(connection, batch)
    changes = fold(load(connection, items, silent_time=silent_time), items)
    write_changes(connection, changes, number, now=now)
    return changes


def _with_stored_spellings(
    connection: Connection, batch: Iterable[IncomingMessage]
) -> list[IncomingMessage]:
    """Return the batch with each event id in the spelling that was stored first, since a peer may
    write it in another case. From here on ids are compared exactly.
    """
    several = list(batch)
    written = stored_spellings(connection, (one for each in several for one in event_ids(each)))
    return [with_event_ids(each, written) for each in several]


def load(
    connection: Connection,
    batch: Sequence[IncomingMessage],
    *,
    silent_time: SilentTime = BY_HEARTBEATS,
) -> LoadedRows:
    """Read what the database has of the VMs, streams, records and events of a batch."""
    loaded = LoadedRows(silent_time=silent_time)
    vm_ids = {_vm_id(each) for each in batch}
    records = [each for each in batch if isinstance(each, IncomingRecord)]
    for row in rows_in(connection, select(tables.vm), tables.vm.c.vm_id, vm_ids):
        loaded.vms[row.vm_id] = rows.vm_of(row)
    known = vm_ids & loaded.vms.keys()
    for row in rows_in(connection, select(tables.stream), tables.stream.c.vm_id, known):
        loaded.streams[StreamKey(row.vm_id, row.stream)] = rows.stream_of(row)
    with_gaps = {vm.vm_id for vm in loaded.vms.values() if vm.missing_records}
    for row in rows_in(connection, select(tables.gap), tables.gap.c.vm_id, with_gaps):
        loaded.gaps.setdefault(StreamKey(row.vm_id, row.stream), []).append(rows.gap_of(row))
    loaded.records |= _senders_of(connection, records)
    _load_events(connection, loaded, batch)
    _load_open_events(connection, loaded, batch)
    _load_receipts(connection, loaded, batch)
    _load_preparations(connection, loaded, batch)
    _load_names(connection, loaded, batch)
    return loaded


def write_changes(connection: Connection, changes: Changes, number: int, *, now: float) -> None:
    """Write the changes of a batch; `now` in seconds since 1970."""
    listening = Listening(silent_time=changes.silent_time)
    insert_new(connection, tables.record, map(rows.record_row, changes.records.values()))
    changed_vms = changes.changed_vms
    upsert(
        connection,
        tables.vm,
        [
            rows.vm_row(replace(vm, change_number=number) if vm.vm_id in changed_vms else vm)
            for vm in changes.vms.values()
        ],
    )
    upsert(connection, tables.stream, map(rows.stream_row, changes.streams.values()))
    upsert(
        connection,
        tables.report,
        [rows.report_row(each, number) for each in changes.reports.values()],
    )
    write_events(
        connection,
        changes.reported_events | pending_of(connection, changes.contact_changed),
        changes.reports,
        now=now,
        listening=listening,
        number=number,
        older=changes.older_reports,
    )
    gone = {each.key for each in changes.reports.values() if is_deletion(each.report)}
    if gone:
        retire_deleted(connection, now=now, listening=listening, number=number, keys=gone)
    insert_new(connection, tables.receipt, [rows.receipt_row(r, number) for r in changes.receipts])
    for vm_id, scope in changes.scope_changed.items():
        _move_preparations(connection, vm_id, scope, changes.vms[vm_id].scope, number)
    for event_id, vm_id in changes.past_preparations:
        prepared = tables.preparation.c
        same = (prepared.event_id == event_id, prepared.vm_id == vm_id)
        connection.execute(delete(tables.preparation).where(*same))
    upsert(
        connection,
        tables.preparation,
        [rows.preparation_row(each, number) for each in changes.preparations.values()],
    )
    for vm_id, stream in changes.past_streams:
        for table in (tables.stream, tables.gap):
            same = (table.c.vm_id == vm_id, table.c.stream == stream)
            connection.execute(delete(table).where(*same))
    for (vm_id, stream), gaps in changes.gaps.items():
        connection.execute(
            delete(tables.gap).where(tables.gap.c.vm_id == vm_id, tables.gap.c.stream == stream)
        )
        insert_new(connection, tables.gap, map(rows.gap_row, gaps))


def _move_preparations(
    connection: Connection, vm_id: str, before: str, after: str, number: int
) -> None:
    """Move the rows of a VM's preparations into the scope that the VM has now."""
    if before == after:
        return
    c = tables.preparation.c
    connection.execute(delete(tables.preparation).where(c.vm_id == vm_id, c.scope == after))
    moved = update(tables.preparation).where(c.vm_id == vm_id, c.scope == before)
    connection.execute(moved.values(scope=after, change_number=number))


def _senders_of(connection: Connection, records: Iterable[IncomingRecord]) -> dict[str, str]:
    """Return, for each record id of a batch that is stored, the VM that sent it: another VM may
    have used the id.
    """
    c = tables.record.c
    ids = {each.id for each in records if each.kind != "heartbeat"}
    return {row.id: row.vm_id for row in rows_in(connection, select(c.id, c.vm_id), c.id, ids)}


def _vm_id(each: IncomingMessage) -> str:
    return each.vm.vm_id if isinstance(each, IncomingRecord) else each.vm_id


def _load_events(
    connection: Connection, loaded: LoadedRows, batch: Sequence[IncomingMessage]
) -> None:
    pairs = {
        (each.event.event.event_id, each.vm.vm_id)
        for each in batch
        if isinstance(each, IncomingRecord) and each.event is not None
    }
    pairs |= {
        (each.preparation.event_id, each.vm.vm_id)
        for each in batch
        if isinstance(each, IncomingRecord) and each.preparation is not None
    }
    states = [each for each in batch if isinstance(each, IncomingState)]
    pairs |= {(event.event.event_id, each.vm_id) for each in states for _, event in each.events}
    c = tables.report.c
    if states:
        pending = select(tables.report).where(
            c.over == 0, c.vm_id.in_({each.vm_id for each in states})
        )
        for row in connection.execute(pending):
            loaded.reports[ReporterKey(row.event_id, row.vm_id)] = rows.report_of(row)
    # Only of the reporters in the batch: an event may have thousands of others.
    for row in rows_in(connection, select(tables.report), tuple_(c.event_id, c.vm_id), pairs):
        loaded.reports[ReporterKey(row.event_id, row.vm_id)] = rows.report_of(row)


def _load_open_events(
    connection: Connection, loaded: LoadedRows, batch: Iterable[IncomingMessage]
) -> None:
    """Load two counts of each VM of the batch that reports a further open event: how many open
    events it reports already, and how many names there are in those that it shows.
    """
    c = tables.report.c
    new = {
        each.vm.vm_id
        for each in batch
        if isinstance(each, IncomingRecord)
        and each.event is not None
        and not _is_open(loaded, each.event.event.event_id, each.vm.vm_id)
    }
    new |= {each.vm_id for each in batch if isinstance(each, IncomingState) and each.events}
    query = select(c.vm_id, func.count()).where(c.over == 0).group_by(c.vm_id)
    for vm_id, count in rows_in(connection, query, c.vm_id, new & set(loaded.vms)):
        loaded.open_events[vm_id] = count
    e = tables.event.c
    r = tables.resource.c
    reporters = {_vm_id(each) for each in batch if _tells_of_event(each)}
    names = (
        select(c.vm_id, func.count())
        .join(tables.event, and_(e.event_id == c.event_id, e.scope == c.scope))
        .join(tables.resource, and_(r.event_id == c.event_id, r.scope == c.scope))
        .where(c.over == 0, e.shown_by == c.vm_id)
        .group_by(c.vm_id)
    )
    for vm_id, count in rows_in(connection, names, c.vm_id, reporters & set(loaded.vms)):
        loaded.open_names[vm_id] = count


def _is_open(loaded: LoadedRows, event_id: str, vm_id: str) -> bool:
    """Check whether a VM reports an event that is not over."""
    before = loaded.reports.get(ReporterKey(event_id, vm_id))
    return before is not None and before.report.state != "ended"


def _tells_of_event(each: IncomingMessage) -> bool:
    if isinstance(each, IncomingRecord):
        return each.event is not None
    return isinstance(each, IncomingState) and bool(each.events)


def _load_receipts(
    connection: Connection, loaded: LoadedRows, batch: Iterable[IncomingMessage]
) -> None:
    """Count the stored receipts of those VMs about those events for which the batch has further
    ones.
    """
    c = tables.receipt.c
    pairs = {
        ReporterKey(each.receipt.event_id, each.vm.vm_id)
        for each in batch
        if isinstance(each, IncomingRecord)
        and each.receipt is not None
        and each.receipt.event_id is not None
    }
    query = select(c.event_id, c.vm_id, func.count()).group_by(c.event_id, c.vm_id)
    counted = rows_in(connection, query, tuple_(c.event_id, c.vm_id), pairs)
    for event_id, vm_id, count in counted:
        loaded.receipts[ReporterKey(event_id, vm_id)] = count


def _load_names(
    connection: Connection, loaded: LoadedRows, batch: Sequence[IncomingMessage]
) -> None:
    """Read which other VMs bear a name that a VM of the batch may take: a VM that is new, is back,
    or reports another identity than before. Most batches have none. Which of its records is the
    newest is found later, so every one of them counts here.
    """
    new = {_vm_id(each) for each in batch} - loaded.vms.keys()
    for vm_id, row in read_enrolled(connection, new).items():
        if row.resource_id or row.site:
            loaded.enrolled[vm_id] = enrolled_vm(
                vm_id, row.resource_id, row.site, at=row.enrolled_at or 0.0
            )
        if row.tags is not None:
            loaded.bound_tags[vm_id] = json.loads(row.tags)
    may_bear = set(new)
    for each in batch:
        vm = loaded.vms.get(_vm_id(each))
        if vm is None or vm.vm_id in may_bear:
            continue
        silent_seconds = loaded.silent_time.of(vm.interval)
        if not (
            vms.says_the_same(vm, each) and vms.keeps_its_name(vm, each.received_at, silent_seconds)
        ):
            may_bear.add(vm.vm_id)
    found: dict[str, Vm] = {}
    names = set()
    for each in batch:
        vm_id = _vm_id(each)
        if vm_id in may_bear:
            before = found.get(vm_id) or loaded.vms.get(vm_id) or loaded.enrolled.get(vm_id)
            found[vm_id] = vms.as_if_newest(before, each)
            names |= {vms.borne_name(one) for one in (before, found[vm_id]) if one is not None}
    load_bearers(connection, loaded, names, may_bear - new)


def load_bearers(
    connection: Connection,
    loaded: LoadedRows,
    names: Iterable[vms.BorneName],
    vm_ids: Iterable[str],
) -> None:
    """Read the VMs that bear these names, and what they and `vm_ids` report of open events."""
    reported = tables.report.c
    event = tables.event.c
    reporters = set(vm_ids)
    borne_name = tuple_(tables.vm.c.place, tables.vm.c.folded)
    for row in rows_in(connection, select(tables.vm), borne_name, names):
        vm = loaded.vms.setdefault(row.vm_id, rows.vm_of(row))
        loaded.bearers.setdefault(vms.borne_name(vm), set()).add(vm.vm_id)
        reporters.add(vm.vm_id)
    is_open = exists().where(
        event.event_id == reported.event_id,
        event.scope == reported.scope,
        event.state.in_(OPEN),
    )
    query = select(tables.report).where(or_(reported.over == 0, is_open))
    for row in rows_in(connection, query, reported.vm_id, reporters):
        loaded.reports.setdefault(ReporterKey(row.event_id, row.vm_id), rows.report_of(row))


def _may_change_preparations(loaded: LoadedRows, record: IncomingRecord) -> bool:
    is_of_new_store = StreamKey(record.vm.vm_id, record.stream) not in loaded.streams
    return record.kind != "heartbeat" or is_of_new_store


def _load_preparations(
    connection: Connection, loaded: LoadedRows, batch: Iterable[IncomingMessage]
) -> None:
    vm_ids = {
        _vm_id(each)
        for each in batch
        if isinstance(each, IncomingState)
        or (isinstance(each, IncomingRecord) and _may_change_preparations(loaded, each))
    }
    for row in rows_in(connection, select(tables.preparation), tables.preparation.c.vm_id, vm_ids):
        loaded.preparations[ReporterKey(row.event_id, row.vm_id)] = rows.preparation_of(row)
