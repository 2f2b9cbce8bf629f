"""Enrols VMs and revokes what they were given; each is a row of the audit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from console.audit import log
from console.db import writing
from console.db.enrolment import newest_generation, read_generations, write_generations
from console.db.opening import Database
from console.db.transactions import write_to
from console.errors import RefusedError
from console.fleet.vms import is_resource_id
from console.ingest.enrolment import (
    EVERY_VM,
    is_vm_id,
    pull_token,
    secret_text,
    webhook_secret,
)

MOST_VMS: Final = 10_000
"""In one call."""
_LONGEST_SITE: Final = 64
_AT_ONCE: Final = 500
"""VMs in one transaction: writers of records wait for it."""


def enroll(
    database: Database,
    vm_ids: Iterable[str],
    *,
    actor: str,
    now: float,
    resource_ids: Mapping[str, str] | None = None,
    site: str | None = None,
    silent_after: float | None = None,
) -> dict[str, int]:
    """The generation of each VM's secrets, by vmId; one that is enrolled already keeps its own.

    `resource_ids`, by vmId, and `site` say who the VMs are, and where: that counts, whatever they
    say themselves. `now` in seconds since 1970; `silent_after` in seconds, if it is the same for
    every VM. Raises `RefusedError` if something is not a vmId, or not the ARM id of a VM,
    `StoreError`.
    """
    given = resource_ids or {}
    wrong = next((each for each in given.values() if not is_resource_id(each)), None)
    if wrong is not None:
        raise RefusedError(
            f"{wrong[:200]!r} is not the ARM id of a VM: /subscriptions/SUBSCRIPTION/"
            "resourceGroups/GROUP/providers/Microsoft.Compute/virtualMachines/NAME"
        )
    if site is not None and (not is_vm_id(site) or len(site) > _LONGEST_SITE):
        raise RefusedError(f"{site[:60]!r} is not a site: it is a word without / + and #")
    found: dict[str, int] = {}
    for some in portions(checked(vm_ids)):
        said: dict[str, dict[str, Any]] = {
            vm_id: {
                "enrolled_at": now,
                **({"resource_id": given[vm_id]} if vm_id in given else {}),
                **({} if site is None else {"site": site}),
            }
            for vm_id in some
            if vm_id in given or site is not None
        }
        with write_to(database) as (connection, number):
            known = read_generations(connection, [*some, EVERY_VM])
            generations = {vm_id: _of(known, vm_id) for vm_id in some}
            write_generations(connection, generations, number, revoked_at=None, said=said)
            writing.bind(connection, said, number, now=now, silent_after=silent_after)
            for vm_id, generation in generations.items():
                stated = {"resource_id": given.get(vm_id), "site": site}
                log.append(
                    connection,
                    at=now,
                    actor=actor,
                    action="vm_enrolled",
                    vm_id=vm_id,
                    generation=generation,
                    **{name: value for name, value in stated.items() if value is not None},
                )
        found |= generations
    return found


def revoke(database: Database, vm_ids: Iterable[str], *, actor: str, now: float) -> None:
    """End the secrets of some VMs: what `enroll` gives from now on are others.

    Raises as `enroll`.
    """
    for some in portions(checked(vm_ids)):
        with write_to(database) as (connection, number):
            known = read_generations(connection, [*some, EVERY_VM])
            generations = {vm_id: _of(known, vm_id) + 1 for vm_id in some}
            write_generations(connection, generations, number, revoked_at=now)
            for vm_id, generation in generations.items():
                log.append(
                    connection,
                    at=now,
                    actor=actor,
                    action="vm_revoked",
                    vm_id=vm_id,
                    generation=generation - 1,
                )


def revoke_all(database: Database, *, actor: str, now: float) -> None:
    """End the secrets of all VMs, known or not. Raises `StoreError`."""
    with write_to(database) as (connection, number):
        newest = newest_generation(connection)
        write_generations(connection, {EVERY_VM: newest + 1}, number, revoked_at=now)
        log.append(connection, at=now, actor=actor, action="all_vms_revoked", generation=newest)


def checked(vm_ids: Iterable[str]) -> list[str]:
    """Each once, in order. Raises `RefusedError` if one is not a vmId, or the list is empty."""
    found = list(dict.fromkeys(vm_ids))
    wrong = next((each for each in found if not is_vm_id(each)), None)
    if wrong is not None:
        raise RefusedError(
            f"{wrong[:60]!r} is not a vmId; Azure's look like 3f6a1c1e-8d55-4c0b-9a3e-5b1f0c7d2e90"
        )
    if not 0 < len(found) <= MOST_VMS:
        raise RefusedError(f"give 1 to {MOST_VMS:,} vmIds at once")
    return found


def settings_of(vm_id: str, generation: int, *, key: bytes, base: str) -> dict[str, str]:
    """The settings that let a VM's bridge speak with the console; two of them are secrets."""
    return {
        "SEB_SINK__CONSOLE__KIND": "webhook",
        "SEB_SINK__CONSOLE__URL": f"{base}/ingest/v1/records",
        "SEB_SINK__CONSOLE__SECRET": secret_text(webhook_secret(key, vm_id, generation)),
        "SEB_COMMANDS__PULL_URL": f"{base}/pull/v1/commands",
        "SEB_COMMANDS__PULL_TOKEN": pull_token(key, vm_id, generation),
    }


def items_of(generations: Mapping[str, int], *, key: bytes, base: str) -> list[dict[str, Any]]:
    """What is shown of enrolled VMs, once."""
    return [
        {
            "vmId": vm_id,
            "generation": generation,
            "settings": settings_of(vm_id, generation, key=key, base=base),
        }
        for vm_id, generation in generations.items()
    ]


def _of(known: Mapping[str, int], vm_id: str) -> int:
    return max(known.get(vm_id, 1), known.get(EVERY_VM, 1))


def portions(vm_ids: Sequence[str]) -> Iterable[list[str]]:
    """The vmIds in lists that are written in one transaction each."""
    rest = iter(vm_ids)
    while some := list(islice(rest, _AT_ONCE)):
        yield some
