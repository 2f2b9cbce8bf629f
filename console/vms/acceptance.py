"""Accepts what VMs report of themselves, if that differs from what the console knows them by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict

from console.audit import audit_log
from console.db.batches import vm_identities
from console.db.bulk import portions
from console.db.connection.opening import Database
from console.db.connection.transactions import write_to
from console.fleet.contact import BY_HEARTBEATS, SilentTime
from console.fleet.values.vm import Vm
from console.vms.enrolment import VMS_AT_ONCE, require_vm_ids


def accept(
    database: Database,
    vm_ids: Iterable[str],
    *,
    actor: str,
    now: float,
    silent_time: SilentTime = BY_HEARTBEATS,
    conflicts: Mapping[str, str] | None = None,
) -> dict[str, Vm]:
    """Accept the name, scope and site that these VMs report; return each VM as it is then, by vmId.

    A VM that is unknown or not in conflict is left out. `conflicts` has the conflict that a person
    saw, by vmId: a VM that reports something else by now is left out too. Each acceptance is a row
    of the audit. `now` in seconds since 1970. Raises `RefusedError` if something is not a vmId,
    `DatabaseFailedError`.
    """
    found: dict[str, Vm] = {}
    for portion in portions(require_vm_ids(vm_ids), VMS_AT_ONCE):
        with write_to(database) as (connection, number):
            accepted = vm_identities.accept_identities(
                connection,
                portion,
                number,
                now=now,
                silent_time=silent_time,
                conflicts=conflicts,
            )
            for vm_id, vm in accepted.items():
                known_as = {name: value for name, value in asdict(vm.known_as).items() if value}
                audit_log.append(
                    connection, at=now, actor=actor, action="vm_accepted", vm_id=vm_id, **known_as
                )
        found |= accepted
    return found
