"""Retires VMs: a person says that they are gone, and the console waits for them no longer."""

from __future__ import annotations

from collections.abc import Iterable

from console.access.enrolment import checked, portions
from console.audit import log
from console.db.opening import Database
from console.db.transactions import write_to
from console.db.vms import retire_rows


def retire(
    database: Database, vm_ids: Iterable[str], *, actor: str, reason: str, now: float
) -> list[str]:
    """The VMs that were retired by this; those that are unknown, or retired already, are left out.

    A VM that is heard after `now` (seconds since 1970) is back. Each is a row of the audit. Raises
    `RefusedError` if something is not a vmId, `StoreError`.
    """
    found: list[str] = []
    for some in portions(checked(vm_ids)):
        with write_to(database) as (connection, number):
            retired = retire_rows(connection, some, by=actor, at=now, number=number)
            for vm_id in retired:
                log.append(
                    connection, at=now, actor=actor, action="vm_retired", vm_id=vm_id, reason=reason
                )
        found += retired
    return found
