"""Reads the rows that a batch of messages needs: of its VMs, of their events, and of who may bear
their names.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence

from sqlalchemy import (
    Connection,
    and_,
    exists,
    func,
    or_,
    select,
    tuple_,
)

from console.db import rows
from console.db.access.enrolment_rows import read_enrolled
from console.db.bulk import rows_in
from console.db.schema import tables
from console.fleet import vms
from console.fleet.batch import LoadedRows, ReporterKey, StreamKey
from console.fleet.contact import BY_HEARTBEATS, SilentTime
from console.fleet.enrolled_vms import enrolled_vm
from console.fleet.values.event import OPEN
from console.fleet.values.vm import Vm
from console.records.incoming import (
    IncomingMessage,
    IncomingRecord,
    IncomingState,
)


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
    loaded.with_earlier_streams = _with_earlier_streams(loaded, batch)
    may_end = {each.vm_id for each in states} | loaded.with_earlier_streams
    pending = select(tables.report).where(c.over == 0)
    for row in rows_in(connection, pending, c.vm_id, may_end):
        loaded.reports[ReporterKey(row.event_id, row.vm_id)] = rows.report_of(row)
    # Only of the reporters in the batch: an event may have thousands of others.
    for row in rows_in(connection, select(tables.report), tuple_(c.event_id, c.vm_id), pairs):
        loaded.reports[ReporterKey(row.event_id, row.vm_id)] = rows.report_of(row)


def _with_earlier_streams(loaded: LoadedRows, batch: Iterable[IncomingMessage]) -> set[str]:
    """Return the VMs of a batch that have begun a new store, and count their pending events: some
    that they reported from an earlier one may be over.
    """
    counted = {
        each.vm.vm_id
        for each in batch
        if isinstance(each, IncomingRecord) and each.pending_events is not None
    }
    streams = Counter(key.vm_id for key in loaded.streams)
    return {vm_id for vm_id in counted if streams[vm_id] > 1}


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
    r = tables.report.c
    e = tables.event.c
    reporters = set(vm_ids)
    borne_name = tuple_(tables.vm.c.place, tables.vm.c.name_key)
    for row in rows_in(connection, select(tables.vm), borne_name, names):
        vm = loaded.vms.setdefault(row.vm_id, rows.vm_of(row))
        loaded.bearers.setdefault(vms.borne_name(vm), set()).add(vm.vm_id)
        reporters.add(vm.vm_id)
    is_open = exists().where(
        e.event_id == r.event_id,
        e.scope == r.scope,
        e.state.in_(OPEN),
    )
    query = select(tables.report).where(or_(r.over == 0, is_open))
    for row in rows_in(connection, query, r.vm_id, reporters):
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
