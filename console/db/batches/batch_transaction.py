"""Writes a batch of messages in one transaction: loads the rows that it needs, and writes those
that it changes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sqlalchemy import Connection, delete, update

from console.db import rows
from console.db.batches.left_out_vms import mark_left_out_vms
from console.db.batches.loaded_rows import load
from console.db.bulk import insert_new, upsert
from console.db.events.event_reports import pending_of
from console.db.events.known_events import NO_GROUPS
from console.db.events.shown_events import write_events
from console.db.events.spellings import stored_spellings
from console.db.schema import tables
from console.db.vms.vm_updates import retire_deleted
from console.fleet.batch import Changes
from console.fleet.contact import BY_HEARTBEATS, Listening, SilentTime
from console.fleet.fold import fold, is_deletion
from console.records.incoming import (
    IncomingMessage,
    event_ids,
    with_event_ids,
)
from console.turns.groups import Grouping


def write_batch(
    connection: Connection,
    batch: Iterable[IncomingMessage],
    change_number: int,
    *,
    now: float,
    silent_time: SilentTime = BY_HEARTBEATS,
    grouping: Grouping = NO_GROUPS,
) -> Changes:
    """Write what a batch changes, and return that; `now` in seconds since 1970."""
    items = _with_stored_spellings(connection, batch)
    changes = fold(load(connection, items, silent_time=silent_time), items)
    write_changes(connection, changes, change_number, now=now, grouping=grouping)
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


def write_changes(
    connection: Connection,
    changes: Changes,
    change_number: int,
    *,
    now: float,
    grouping: Grouping = NO_GROUPS,
) -> None:
    """Write the changes of a batch; `now` in seconds since 1970."""
    insert_new(connection, tables.record, map(rows.record_row, changes.records.values()))
    _write_vms(connection, changes, change_number)
    upsert(connection, tables.stream, map(rows.stream_row, changes.streams.values()))
    _write_reports_and_events(connection, changes, change_number, now=now)
    insert_new(
        connection, tables.receipt, [rows.receipt_row(r, change_number) for r in changes.receipts]
    )
    _write_preparations(connection, changes, change_number)
    reports = (*changes.reports.values(), *changes.older_reports)
    mark_left_out_vms(connection, reports, change_number, now=now, grouping=grouping)
    _delete_past_streams(connection, changes)
    _write_gaps(connection, changes)


def _write_vms(connection: Connection, changes: Changes, change_number: int) -> None:
    changed_vms = changes.changed_vms
    vms = (
        replace(vm, change_number=change_number) if vm.vm_id in changed_vms else vm
        for vm in changes.vms.values()
    )
    upsert(connection, tables.vm, map(rows.vm_row, vms))


def _write_reports_and_events(
    connection: Connection, changes: Changes, change_number: int, *, now: float
) -> None:
    """Write the reports, the events as they are shown after them, and the VMs that are deleted."""
    listening = Listening(silent_time=changes.silent_time)
    reports = [rows.report_row(each, change_number) for each in changes.reports.values()]
    upsert(connection, tables.report, reports)
    write_events(
        connection,
        changes.reported_events | pending_of(connection, changes.contact_changed),
        changes.reports,
        now=now,
        listening=listening,
        change_number=change_number,
        older=changes.older_reports,
    )
    gone = {each.key for each in changes.reports.values() if is_deletion(each.report)}
    if gone:
        retire_deleted(
            connection, now=now, listening=listening, change_number=change_number, keys=gone
        )


def _write_preparations(connection: Connection, changes: Changes, change_number: int) -> None:
    for vm_id, scope in changes.scope_changed.items():
        _move_preparations(connection, vm_id, scope, changes.vms[vm_id].scope, change_number)
    c = tables.preparation.c
    for event_id, vm_id in changes.past_preparations:
        same = (c.event_id == event_id, c.vm_id == vm_id)
        connection.execute(delete(tables.preparation).where(*same))
    preparations = [
        rows.preparation_row(each, change_number) for each in changes.preparations.values()
    ]
    upsert(connection, tables.preparation, preparations)


def _delete_past_streams(connection: Connection, changes: Changes) -> None:
    for vm_id, stream in changes.past_streams:
        for table in (tables.stream, tables.gap):
            same = (table.c.vm_id == vm_id, table.c.stream == stream)
            connection.execute(delete(table).where(*same))


def _write_gaps(connection: Connection, changes: Changes) -> None:
    """Write the gaps of each changed stream in place of those that it had."""
    c = tables.gap.c
    for (vm_id, stream), gaps in changes.gaps.items():
        connection.execute(delete(tables.gap).where(c.vm_id == vm_id, c.stream == stream))
        insert_new(connection, tables.gap, map(rows.gap_row, gaps))


def _move_preparations(
    connection: Connection, vm_id: str, before: str, after: str, change_number: int
) -> None:
    """Move the rows of a VM's preparations into the scope that the VM has now."""
    if before == after:
        return
    c = tables.preparation.c
    connection.execute(delete(tables.preparation).where(c.vm_id == vm_id, c.scope == after))
    moved = update(tables.preparation).where(c.vm_id == vm_id, c.scope == before)
    connection.execute(moved.values(scope=after, change_number=change_number))
