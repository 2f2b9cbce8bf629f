"""The transaction of a batch of messages: loads what it needs, and writes what it changes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from sqlalchemy import (
    Connection,
    Table,
    and_,
    bindparam,
    delete,
    exists,
    func,
    or_,
    select,
    text,
    tuple_,
    update,
)

from console.db import rows, tables
from console.db.decisions import bring_back_decisions
from console.db.enrolment import read_enrolled
from console.db.events import stored_spellings
from console.db.listening import read_listening
from console.db.shown_events import (
    end_forgotten,
    pending_of,
    replace_silent_reporters,
    write_events,
)
from console.db.turns import bring_back_turns
from console.db.upsert import insert_new, insert_of, portions, upsert
from console.db.vms import bring_back, retire_deleted
from console.fleet import vms
from console.fleet.candidates import PULL_SECONDS
from console.fleet.contact import BY_HEARTBEATS, Listening, SilentTime
from console.fleet.fold import Changes, Fold, Loaded, is_deletion
from console.fleet.values import Vm
from console.records.incoming import (
    Incoming,
    IncomingRecord,
    IncomingState,
    event_ids,
    with_event_ids,
)

_NEXT: Final = text("UPDATE change SET number = number + 1 WHERE id = 1 RETURNING number")
_PAIRS: Final = 1000
"""How many pairs one statement takes."""


def next_number(connection: Connection) -> int:
    """Return the number of this transaction; on PostgreSQL this waits until other writers
    are done.
    """
    number: int = connection.execute(_NEXT).scalar_one()
    return number


def newest_number(connection: Connection) -> int:
    """Return the number of the last transaction."""
    number: int = connection.execute(select(tables.change.c.number)).scalar_one()
    return number


def with_stored_spellings(connection: Connection, batch: Iterable[Incoming]) -> list[Incoming]:
    """Return the batch with each event id in the spelling that was stored first, since a peer may
    write it in another case. From here on ids are compared exactly.
    """
    several = list(batch)
    written = stored_spellings(connection, (one for each in several for one in event_ids(each)))
    return [with_event_ids(each, written) for each in several]


def load(
    connection: Connection, batch: Sequence[Incoming], *, silent_time: SilentTime = BY_HEARTBEATS
) -> Loaded:
    """Read what the database has of the VMs, streams, records and events of a batch."""
    loaded = Loaded(silent_time=silent_time)
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
    _load_receipts(connection, loaded, batch)
    _load_preparations(connection, loaded, batch)
    _load_names(connection, loaded, batch)
    return loaded


def load_conflicts(
    connection: Connection, vm_ids: Iterable[str], silent_time: SilentTime
) -> Loaded:
    """Read what the database has of those of these VMs that are in conflict about their names."""
    loaded = Loaded(silent_time=silent_time)
    for row in _select_in(connection, tables.vm, "vm_id", vm_ids):
        if row.conflict_at is not None:
            loaded.vms[row.vm_id] = rows.vm_of(row)
    found = loaded.vms.values()
    names = {vms.bearing(vm) for vm in found}
    names |= {vms.bearing(vms.as_reported(vm)) for vm in found}
    _load_bearers(connection, loaded, names, {*loaded.vms})
    return loaded


def write(connection: Connection, changes: Changes, number: int, *, now: float) -> None:
    """Write the changes of a batch; `now` in seconds since 1970."""
    listening = Listening(silent_time=changes.silent_time)
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
    write_events(
        connection,
        changes.touched | pending_of(connection, changes.contact_changed),
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


def accept(
    connection: Connection,
    vm_ids: Sequence[str],
    number: int,
    *,
    now: float,
    silent_time: SilentTime = BY_HEARTBEATS,
    conflicts: Mapping[str, str] | None = None,
) -> dict[str, Vm]:
    """Accept what VMs in conflict report of themselves; return each of them as it is then, by vmId.

    `conflicts` has the conflict that a person saw, by vmId: if it is another one by now, it stays.
    """
    loaded = load_conflicts(connection, vm_ids, silent_time)
    seen = conflicts or {}
    wanted = [
        vm_id
        for vm_id in vm_ids
        if vm_id in loaded.vms
        and loaded.vms[vm_id].conflict_at is not None
        and seen.get(vm_id) in (None, loaded.vms[vm_id].conflict_id)
    ]
    return _accept(connection, loaded, wanted, number, now=now)


def bind(
    connection: Connection,
    enrolled: Mapping[str, Mapping[str, Any]],
    number: int,
    *,
    now: float,
    silent_time: SilentTime = BY_HEARTBEATS,
) -> None:
    """Apply what an admin gave with an enrolment to VMs that are known already; `enrolled` has
    columns of `enrolment`, by vmId.
    """
    there = {
        row.vm_id: rows.vm_of(row) for row in _select_in(connection, tables.vm, "vm_id", enrolled)
    }
    loaded = Loaded(
        vms={
            vm_id: vms.with_enrolled_identity(vm, **_bound(enrolled[vm_id]))
            for vm_id, vm in there.items()
        },
        silent_time=silent_time,
    )
    names = {vms.bearing(vms.as_reported(vm)) for vm in loaded.vms.values()}
    _load_bearers(connection, loaded, names, there)
    # One after the other: a VM may take the name that another one gives up.
    _accept(connection, loaded, list(there), number, now=now)


def bind_tags(connection: Connection, tags: Mapping[str, Mapping[str, str]], number: int) -> None:
    """Replace the tags that were given to known VMs; `tags` by vmId."""
    known = [rows.vm_of(row) for row in _select_in(connection, tables.vm, "vm_id", tags)]
    given = [replace(vms.with_bound_tags(vm, tags[vm.vm_id]), changed=number) for vm in known]
    upsert(connection, tables.vm, [rows.vm_row(vm) for vm in given])


def _bound(enrolled: Mapping[str, Any]) -> dict[str, str | None]:
    return {"resource_id": enrolled.get("resource_id"), "site": enrolled.get("site")}


def _accept(
    connection: Connection, loaded: Loaded, vm_ids: Iterable[str], number: int, *, now: float
) -> dict[str, Vm]:
    taken = Fold(loaded)
    accepted: dict[str, Vm] = {}
    for vm_id in vm_ids:
        accepted[vm_id] = taken.accept(vm_id, now)
    write(connection, taken.changes, number, now=now)
    return accepted


def _move_preparations(
    connection: Connection, vm_id: str, before: str, after: str, number: int
) -> None:
    """Move the rows of a VM's preparations into the scope that the VM has now."""
    if before == after:
        return
    c = tables.preparation.c
    connection.execute(delete(tables.preparation).where(c.vm_id == vm_id, c.scope == after))
    moved = update(tables.preparation).where(c.vm_id == vm_id, c.scope == before)
    connection.execute(moved.values(scope=after, changed=number))


def write_passed_time(
    connection: Connection, number: int, *, now: float, silent_time: SilentTime = BY_HEARTBEATS
) -> bool:
    """Write what changes because time has passed; return whether anything has."""
    listening = read_listening(connection, now, silent_time)
    corrected = bring_back(connection, now=now, number=number)
    corrected += bring_back_decisions(connection, now=now, number=number)
    corrected += bring_back_turns(connection, now=now, number=number)
    moved = replace_silent_reporters(connection, now=now, listening=listening, number=number)
    retired = retire_deleted(connection, now=now, listening=listening, number=number)
    ended = end_forgotten(connection, now=now, listening=listening, number=number)
    return bool(corrected or moved or retired or ended)


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
    """Count a message that is not a record of ours. The last one of each source and reason is kept,
    cut short.
    """
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
    """Write when VMs last polled the HTTPS channel, in seconds since 1970; return those that are
    known. The first poll after a pause counts as a change of the VM.
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
    """Return, for each record id of a batch that is stored, the VM that sent it: another VM may
    have used the id.
    """
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
    # Only of the reporters in the batch: an event may have thousands of others.
    for some in portions(pairs, _PAIRS):
        wanted = select(tables.report).where(tuple_(c.event_id, c.vm_id).in_(some))
        for row in connection.execute(wanted):
            loaded.reports[(row.event_id, row.vm_id)] = rows.report_of(row)


def _load_open_events(connection: Connection, loaded: Loaded, batch: Iterable[Incoming]) -> None:
    """Load two counts of each VM of the batch that reports a further open event: how many it
    reports already, and how many names the open events have that it shows.
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
    for few in portions(new & set(loaded.vms)):
        query = select(c.vm_id, func.count()).where(c.vm_id.in_(few), c.over == 0)
        for vm_id, number in connection.execute(query.group_by(c.vm_id)):
            loaded.open_events[vm_id] = number
    e = tables.event.c
    r = tables.resource.c
    reporters = {_vm_id(each) for each in batch if _tells_of_event(each)}
    for few in portions(reporters & set(loaded.vms)):
        names = (
            select(c.vm_id, func.count())
            .join(tables.event, and_(e.event_id == c.event_id, e.scope == c.scope))
            .join(tables.resource, and_(r.event_id == c.event_id, r.scope == c.scope))
            .where(c.vm_id.in_(few), c.over == 0, e.shown_by == c.vm_id)
        )
        for vm_id, number in connection.execute(names.group_by(c.vm_id)):
            loaded.open_names[vm_id] = number


def _is_open(loaded: Loaded, event_id: str, vm_id: str) -> bool:
    """Check whether a VM reports an event that is not over."""
    before = loaded.reports.get((event_id, vm_id))
    return before is not None and before.report.state != "ended"


def _tells_of_event(each: Incoming) -> bool:
    if isinstance(each, IncomingRecord):
        return each.event is not None
    return isinstance(each, IncomingState) and bool(each.events)


def _load_receipts(connection: Connection, loaded: Loaded, batch: Iterable[Incoming]) -> None:
    """Count the stored receipts of those VMs about those events for which the batch has further
    ones.
    """
    c = tables.receipt.c
    pairs = {
        (each.receipt.event_id, each.vm.vm_id)
        for each in batch
        if isinstance(each, IncomingRecord)
        and each.receipt is not None
        and each.receipt.event_id is not None
    }
    for some in portions(pairs, _PAIRS):
        query = select(c.event_id, c.vm_id, func.count())
        query = query.where(tuple_(c.event_id, c.vm_id).in_(some))
        for event_id, vm_id, number in connection.execute(query.group_by(c.event_id, c.vm_id)):
            loaded.receipts[(event_id, vm_id)] = number


def _load_names(connection: Connection, loaded: Loaded, batch: Sequence[Incoming]) -> None:
    """Read which other VMs bear a name that a VM of the batch may take: a VM that is new, is back,
    or reports another identity than before. Most batches have none. Which of its records is the
    newest is found later, so every one of them counts here.
    """
    new = {_vm_id(each) for each in batch} - loaded.vms.keys()
    for vm_id, row in read_enrolled(connection, new).items():
        if row.resource_id or row.site:
            loaded.enrolled[vm_id] = vms.enrolled(
                vm_id, row.resource_id, row.site, at=row.enrolled_at or 0.0
            )
        if row.tags is not None:
            loaded.bound_tags[vm_id] = json.loads(row.tags)
    taking = set(new)
    for each in batch:
        vm = loaded.vms.get(_vm_id(each))
        if vm is None or vm.vm_id in taking:
            continue
        silent_seconds = loaded.silent_time.of(vm.interval)
        if not (vms.says_the_same(vm, each) and vms.is_there(vm, each.received_at, silent_seconds)):
            taking.add(vm.vm_id)
    found: dict[str, Vm] = {}
    names = set()
    for each in batch:
        vm_id = _vm_id(each)
        if vm_id in taking:
            before = found.get(vm_id) or loaded.vms.get(vm_id) or loaded.enrolled.get(vm_id)
            found[vm_id] = vms.as_if_newest(before, each)
            names |= {vms.bearing(one) for one in (before, found[vm_id]) if one is not None}
    _load_bearers(connection, loaded, names, taking - new)


def _load_bearers(
    connection: Connection, loaded: Loaded, names: Iterable[vms.Bearing], vm_ids: Iterable[str]
) -> None:
    """Read the VMs that bear these names, and what they and `vm_ids` report of open events."""
    reported = tables.report.c
    event = tables.event.c
    judged = set(vm_ids)
    for some in portions(names, _PAIRS):
        query = select(tables.vm).where(tuple_(tables.vm.c.place, tables.vm.c.folded).in_(some))
        for row in connection.execute(query):
            vm = loaded.vms.setdefault(row.vm_id, rows.vm_of(row))
            loaded.bearers.setdefault(vms.bearing(vm), set()).add(vm.vm_id)
            judged.add(vm.vm_id)
    is_open = exists().where(
        event.event_id == reported.event_id,
        event.scope == reported.scope,
        event.state.in_(("scheduled", "started")),
    )
    for few in portions(judged):
        query = select(tables.report).where(
            reported.vm_id.in_(few), or_(reported.over == 0, is_open)
        )
        for row in connection.execute(query):
            key = (row.event_id, row.vm_id)
            loaded.reports.setdefault(key, rows.report_of(row))


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
    """Yield the rows of a table whose column has one of these values."""
    for few in portions(values):
        yield from connection.execute(select(table).where(table.c[column].in_(few)))
