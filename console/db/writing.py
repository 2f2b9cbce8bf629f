"""One transaction of the writer: what a batch needs to know, and what it changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from sqlalchemy import Connection, Table, bindparam, delete, func, select, text, tuple_, update

from console.db import rows, tables
from console.db.showing import end_forgotten, pending_of, show, show_again
from console.db.upsert import insert_new, insert_of, portions, upsert
from console.db.vms import retire_deleted
from console.fleet.candidates import PULL_SECONDS
from console.fleet.contact import Listening
from console.fleet.fold import Changes, Loaded, is_deletion
from console.records.incoming import Incoming, IncomingRecord, IncomingState

_NEXT: Final = text("UPDATE change SET number = number + 1 WHERE id = 1 RETURNING number")
_PAIRS: Final = 1000
"""Pairs in one statement."""


def next_number(connection: Connection) -> int:
    """Take the transaction's number; on PostgreSQL, wait until other writers are done."""
    number: int = connection.execute(_NEXT).scalar_one()
    return number


def newest_number(connection: Connection) -> int:
    """The number of the last transaction."""
    number: int = connection.execute(select(tables.change.c.number)).scalar_one()
    return number


def load(connection: Connection, batch: Sequence[Incoming]) -> Loaded:
    """What the database holds of the VMs, streams, records and events of a batch."""
    loaded = Loaded()
    vm_ids = {_vm_id(each) for each in batch}
    records = [each for each in batch if isinstance(each, IncomingRecord)]
    for row in _select_in(connection, tables.vm, "vm_id", vm_ids):
        loaded.vms[row.vm_id] = rows.vm_of(row)
    for row in _select_in(connection, tables.stream, "vm_id", vm_ids & set(loaded.vms)):
        loaded.streams[(row.vm_id, row.stream)] = rows.stream_of(row)
    with_gaps = {vm.vm_id for vm in loaded.vms.values() if vm.missing}
    for row in _select_in(connection, tables.gap, "vm_id", with_gaps):
        loaded.gaps.setdefault((row.vm_id, row.stream), []).append(rows.gap_of(row))
    loaded.records |= _stored(connection, records)
    _load_events(connection, loaded, batch)
    _load_open_events(connection, loaded, batch)
    _load_preparations(connection, loaded, batch)
    return loaded


def write(connection: Connection, changes: Changes, number: int, *, now: float) -> None:
    """Carry out what a batch changes; `now` in seconds since 1970."""
    insert_new(connection, tables.record, map(rows.record_row, changes.records.values()))
    altered = changes.altered
    upsert(
        connection,
        tables.vm,
        [
            rows.vm_row(replace(vm, changed=number) if vm.vm_id in altered else vm)
            for vm in changes.vms.values()
        ],
    )
    upsert(connection, tables.stream, map(rows.stream_row, changes.streams.values()))
    upsert(
        connection,
        tables.report,
        [rows.report_row(each, number) for each in changes.reports.values()],
    )
    show(
        connection,
        changes.touched | pending_of(connection, changes.turned),
        changes.reports,
        now=now,
        listening=changes.listening,
        number=number,
    )
    gone = {each.key for each in changes.reports.values() if is_deletion(each.report)}
    if gone:
        retire_deleted(connection, now=now, listening=changes.listening, number=number, keys=gone)
    insert_new(connection, tables.receipt, [rows.receipt_row(r, number) for r in changes.receipts])
    upsert(
        connection,
        tables.preparation,
        [rows.preparation_row(each, number) for each in changes.preparations.values()],
    )
    for (vm_id, stream), gaps in changes.gaps.items():
        connection.execute(
            delete(tables.gap).where(tables.gap.c.vm_id == vm_id, tables.gap.c.stream == stream)
        )
        insert_new(connection, tables.gap, map(rows.gap_row, gaps))


def settle(
    connection: Connection, number: int, *, now: float, silent_after: float | None = None
) -> bool:
    """What changes because time has passed; whether anything has. `silent_after` in seconds, if it
    is the same for every VM.
    """
    listening = Listening(silent_after=silent_after)
    moved = show_again(connection, now=now, listening=listening, number=number)
    retired = retire_deleted(connection, now=now, listening=listening, number=number)
    ended = end_forgotten(connection, now=now, listening=listening, number=number)
    return bool(moved or retired or ended)


def quarantine(
    connection: Connection,
    *,
    source: str,
    reason: str,
    message: str,
    sample: bytes,
    at: float,
    count: int = 1,
) -> None:
    """Count what was not a record of ours; the last one of each kind is kept, cut short."""
    values = {
        "source": source,
        "reason": reason,
        "count": count,
        "first_at": at,
        "last_at": at,
        "message": message[:500],
        "sample": sample[:2000],
    }
    statement = insert_of(connection.dialect.name, tables.quarantine).values(values)
    connection.execute(
        statement.on_conflict_do_update(
            index_elements=["source", "reason"],
            set_={
                "count": tables.quarantine.c.count + count,
                "last_at": statement.excluded.last_at,
                "message": statement.excluded.message,
                "sample": statement.excluded.sample,
            },
        )
    )


def write_polls(connection: Connection, polls: Mapping[str, float], number: int) -> set[str]:
    """Write when VMs last polled the HTTPS channel, in seconds since 1970; the VMs that are known.

    A VM that has begun to poll, or does so again, is a change of it.
    """
    table = tables.vm
    found = {row.vm_id: row for row in _select_in(connection, table, "vm_id", polls)}
    changed = []
    for vm_id, row in found.items():
        is_back = row.pulled_at is None or polls[vm_id] - row.pulled_at >= PULL_SECONDS
        changed.append(
            {"key": vm_id, "at": polls[vm_id], "new": number if is_back else row.changed}
        )
    if changed:
        statement = (
            update(table)
            .where(table.c.vm_id == bindparam("key"))
            .values(pulled_at=bindparam("at"), changed=bindparam("new"))
        )
        connection.execute(statement, changed)
    return set(found)


def _stored(connection: Connection, records: Iterable[IncomingRecord]) -> dict[str, str]:
    """The VM of each id of a batch that is in the store; another VM may have used it."""
    c = tables.record.c
    found: dict[str, str] = {}
    for few in portions({each.id for each in records if each.kind != "heartbeat"}):
        query = select(c.id, c.vm_id).where(c.id.in_(few))
        found |= {row.id: row.vm_id for row in connection.execute(query)}
    return found


def _vm_id(each: Incoming) -> str:
    return each.vm.vm_id if isinstance(each, IncomingRecord) else each.vm_id


def _load_events(connection: Connection, loaded: Loaded, batch: Sequence[Incoming]) -> None:
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
            loaded.reports[(row.event_id, row.vm_id)] = rows.report_of(row)
    # Of the reporters in the batch alone: an event may have thousands of others.
    for some in portions(pairs, _PAIRS):
        wanted = select(tables.report).where(tuple_(c.event_id, c.vm_id).in_(some))
        for row in connection.execute(wanted):
            loaded.reports[(row.event_id, row.vm_id)] = rows.report_of(row)


def _load_open_events(connection: Connection, loaded: Loaded, batch: Iterable[Incoming]) -> None:
    """How many open events those VMs report that report another one now."""
    c = tables.report.c
    new = {
        each.vm.vm_id
        for each in batch
        if isinstance(each, IncomingRecord)
        and each.event is not None
        and (each.event.event.event_id, each.vm.vm_id) not in loaded.reports
    }
    new |= {each.vm_id for each in batch if isinstance(each, IncomingState) and each.events}
    for few in portions(new & set(loaded.vms)):
        query = select(c.vm_id, func.count()).where(c.vm_id.in_(few), c.over == 0)
        for vm_id, number in connection.execute(query.group_by(c.vm_id)):
            loaded.open_events[vm_id] = number


def _load_preparations(connection: Connection, loaded: Loaded, batch: Iterable[Incoming]) -> None:
    vm_ids = {
        _vm_id(each)
        for each in batch
        if isinstance(each, IncomingState)
        or (isinstance(each, IncomingRecord) and each.kind != "heartbeat")
    }
    for row in _select_in(connection, tables.preparation, "vm_id", vm_ids):
        loaded.preparations[(row.event_id, row.vm_id)] = rows.preparation_of(row)


def _select_in(
    connection: Connection, table: Table, column: str, values: Iterable[str]
) -> Iterable[Any]:
    """The rows of a table whose column is one of some texts."""
    for few in portions(values):
        yield from connection.execute(select(table).where(table.c[column].in_(few)))
