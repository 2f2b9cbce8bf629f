"""Who VMs are: what a person accepts, and what an admin gave with an enrolment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, select

from console.db import rows
from console.db.batches.batch_transaction import write_changes
from console.db.batches.loaded_rows import load_bearers
from console.db.bulk import rows_in, upsert
from console.db.schema import tables
from console.fleet import vms
from console.fleet.batch import LoadedRows
from console.fleet.contact import BY_HEARTBEATS, SilentTime
from console.fleet.enrolled_vms import with_enrolled_identity
from console.fleet.fold import Fold
from console.fleet.tags import with_bound_tags
from console.fleet.values.vm import Vm


def accept_identities(
    connection: Connection,
    vm_ids: Sequence[str],
    change_number: int,
    *,
    now: float,
    silent_time: SilentTime = BY_HEARTBEATS,
    conflicts: Mapping[str, str] | None = None,
) -> dict[str, Vm]:
    """Accept what VMs in conflict report of themselves; return each of them as it is then, by vmId.

    `conflicts` has the conflict that a person saw, by vmId: if it is another one by now, it stays.
    """
    loaded = _load_conflicts(connection, vm_ids, silent_time)
    conflict_ids = conflicts or {}
    wanted = [
        vm_id
        for vm_id in vm_ids
        if vm_id in loaded.vms and conflict_ids.get(vm_id) in (None, loaded.vms[vm_id].conflict_id)
    ]
    return _accept(connection, loaded, wanted, change_number, now=now)


def apply_enrolments(
    connection: Connection,
    enrolled: Mapping[str, Mapping[str, Any]],
    change_number: int,
    *,
    now: float,
    silent_time: SilentTime = BY_HEARTBEATS,
) -> None:
    """Apply what an admin gave with an enrolment to VMs that are known already; `enrolled` has
    columns of `enrolment`, by vmId.
    """
    there = {vm.vm_id: vm for vm in _read(connection, enrolled)}
    loaded = LoadedRows(
        vms={
            vm_id: with_enrolled_identity(vm, **_bound(enrolled[vm_id]))
            for vm_id, vm in there.items()
        },
        silent_time=silent_time,
    )
    names = {vms.borne_name(vms.as_reported(vm)) for vm in loaded.vms.values()}
    load_bearers(connection, loaded, names, there)
    # One after the other: a VM may take the name that another one gives up.
    _accept(connection, loaded, list(there), change_number, now=now)


def replace_bound_tags(
    connection: Connection, tags: Mapping[str, Mapping[str, str]], change_number: int
) -> None:
    """Replace the tags that were given to known VMs; `tags` by vmId."""
    known = _read(connection, tags)
    given = [
        replace(with_bound_tags(vm, tags[vm.vm_id]), change_number=change_number) for vm in known
    ]
    upsert(connection, tables.vm, [rows.vm_row(vm) for vm in given])


def _load_conflicts(
    connection: Connection, vm_ids: Iterable[str], silent_time: SilentTime
) -> LoadedRows:
    """Read what the database has of those of these VMs that are in conflict about their names."""
    found = [vm for vm in _read(connection, vm_ids) if vm.conflict_at is not None]
    loaded = LoadedRows(vms={vm.vm_id: vm for vm in found}, silent_time=silent_time)
    names = {vms.borne_name(vm) for vm in found}
    names |= {vms.borne_name(vms.as_reported(vm)) for vm in found}
    load_bearers(connection, loaded, names, {*loaded.vms})
    return loaded


def _accept(
    connection: Connection,
    loaded: LoadedRows,
    vm_ids: Iterable[str],
    change_number: int,
    *,
    now: float,
) -> dict[str, Vm]:
    folding = Fold(loaded)
    accepted = {vm_id: folding.accept(vm_id, now) for vm_id in vm_ids}
    write_changes(connection, folding.changes, change_number, now=now)
    return accepted


def _read(connection: Connection, vm_ids: Iterable[str]) -> list[Vm]:
    """Return those of these VMs that are known."""
    query = select(tables.vm)
    return [rows.vm_of(row) for row in rows_in(connection, query, tables.vm.c.vm_id, vm_ids)]


def _bound(enrolled: Mapping[str, Any]) -> dict[str, str | None]:
    return {"resource_id": enrolled.get("resource_id"), "site": enrolled.get("site")}
