"""Retires VMs, when a person says that they are gone, and removes what they have sent."""

from __future__ import annotations

from collections.abc import Iterable

from console.audit import audit_log
from console.db.bulk import portions
from console.db.connection.opening import Database
from console.db.connection.transactions import write_to
from console.db.upkeep.removal import delete_past_reports, delete_some_records, delete_vm, is_known
from console.db.vms.vm_updates import retire_rows
from console.fleet.contact import BY_HEARTBEATS, Listening, SilentTime
from console.vms.enrolment import VMS_AT_ONCE, require_vm_ids


def retire(
    database: Database, vm_ids: Iterable[str], *, actor: str, reason: str, now: float
) -> list[str]:
    """Retire VMs; return those that were not retired before. Unknown ones are left out.

    A VM that is heard after `now` (seconds since 1970) is back. Each is a row of the audit. Raises
    `RefusedError` if something is not a vmId, `DatabaseFailedError`.
    """
    found: list[str] = []
    for portion in portions(require_vm_ids(vm_ids), VMS_AT_ONCE):
        with write_to(database) as (connection, change_number):
            retired = retire_rows(
                connection, portion, by=actor, at=now, change_number=change_number
            )
            for vm_id in retired:
                audit_log.append(
                    connection, at=now, actor=actor, action="vm_retired", vm_id=vm_id, reason=reason
                )
        found += retired
    return found


def forget(
    database: Database,
    vm_ids: Iterable[str],
    *,
    actor: str,
    reason: str,
    now: float,
    silent_time: SilentTime = BY_HEARTBEATS,
) -> dict[str, int]:
    """Remove everything that VMs have sent; return the number of removed records, by vmId. Unknown
    VMs are left out.

    Each is a row of the audit, which is written before the first record is removed. What a VM sends
    later is stored again. `now` in seconds since 1970. Raises `RefusedError` if something is not a
    vmId, `DatabaseFailedError`.
    """
    found: dict[str, int] = {}
    listening = Listening(silent_time=silent_time)
    for vm_id in require_vm_ids(vm_ids):
        with write_to(database) as (connection, _):
            if not is_known(connection, vm_id):
                continue
            audit_log.append(
                connection, at=now, actor=actor, action="vm_forgotten", vm_id=vm_id, reason=reason
            )
        more = True
        while more:  # a few at a time: writers of records wait for each transaction
            with write_to(database) as (connection, change_number):
                more = delete_past_reports(
                    connection, vm_id, change_number, now=now, listening=listening
                )
        with write_to(database) as (connection, change_number):
            delete_vm(connection, vm_id, change_number, now=now, listening=listening)
        found[vm_id] = 0
        more = True
        while more:
            with write_to(database) as (connection, _):
                count = delete_some_records(connection, vm_id, now)
            found[vm_id] += count
            more = count > 0
    return found
