"""Enrols VMs and revokes their secrets; each is a row of the audit."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from sqlalchemy import Connection

from console.audit import audit_log
from console.db.access.enrolment_rows import (
    newest_generation,
    read_enrolled,
    read_generations,
    write_generations,
)
from console.db.batches import vm_identities
from console.db.bulk import portions
from console.db.connection.opening import Database
from console.db.connection.transactions import write_to
from console.errors import RefusedError
from console.fleet.arm_ids import is_resource_id
from console.fleet.contact import BY_HEARTBEATS, SilentTime
from console.fleet.tags import merged_tags
from console.ingest.vm_secrets import (
    EVERY_VM,
    is_vm_id,
    pull_token,
    secret_text,
    webhook_secret,
)

MAX_VMS: Final = 10_000
"""The limit for one call."""
_MAX_SITE_CHARACTERS: Final = 64
# Azure's own limits.
_MAX_TAG_NAME_CHARACTERS: Final = 512
_MAX_TAG_VALUE_CHARACTERS: Final = 256
VMS_AT_ONCE: Final = 500
"""How many VMs one transaction has: writers of records wait for it."""


def enroll(
    database: Database,
    vm_ids: Iterable[str],
    *,
    actor: str,
    now: float,
    resource_ids: Mapping[str, str] | None = None,
    site: str | None = None,
    tags: Mapping[str, str] | None = None,
    silent_time: SilentTime = BY_HEARTBEATS,
) -> dict[str, int]:
    """Enrol VMs; return the generation of each VM's secrets, by vmId. One that is enrolled already
    keeps its own.

    `resource_ids`, by vmId, `site` and `tags` say who the VMs are and where; they replace what the
    VMs report. A tag with an empty value is removed; other tags from before stay. `now` in seconds
    since 1970. Raises `RefusedError` if something is not a vmId, not the ARM id of a VM, not a site
    or not a tag, `DatabaseFailedError`.
    """
    given = resource_ids or {}
    _require_valid(given.values(), site, tags or {})
    found: dict[str, int] = {}
    for portion in portions(require_vm_ids(vm_ids), VMS_AT_ONCE):
        identities_given: dict[str, dict[str, Any]] = {
            vm_id: {
                "enrolled_at": now,
                **({"resource_id": given[vm_id]} if vm_id in given else {}),
                **({} if site is None else {"site": site}),
            }
            for vm_id in portion
            if vm_id in given or site is not None
        }
        with write_to(database) as (connection, change_number):
            known = read_generations(connection, [*portion, EVERY_VM])
            generations = {vm_id: _of(known, vm_id) for vm_id in portion}
            bound = {} if tags is None else _with_tags(connection, portion, tags)
            columns = {
                vm_id: {
                    **identities_given.get(vm_id, {}),
                    **({"tags": json.dumps(bound[vm_id])} if bound else {}),
                }
                for vm_id in identities_given.keys() | bound.keys()
            }
            write_generations(
                connection, generations, change_number, revoked_at=None, given=columns
            )
            vm_identities.apply_enrolments(
                connection, identities_given, change_number, now=now, silent_time=silent_time
            )
            vm_identities.replace_bound_tags(connection, bound, change_number)
            for vm_id, generation in generations.items():
                stated = _audit_fields(given.get(vm_id), site, tags or {})
                _audit_enrolled(connection, vm_id, generation, stated, actor=actor, at=now)
        found |= generations
    return found


def _audit_fields(
    resource_id: str | None, site: str | None, tags: Mapping[str, str]
) -> dict[str, Any]:
    """Return what an admin says of a VM, as the audit has it."""
    stated = {
        "resource_id": resource_id,
        "site": site,
        "tags": [f"{name}={value}" for name, value in tags.items()] or None,
    }
    return {name: value for name, value in stated.items() if value is not None}


def _audit_enrolled(
    connection: Connection,
    vm_id: str,
    generation: int,
    stated: Mapping[str, Any],
    *,
    actor: str,
    at: float,
) -> None:
    audit_log.append(
        connection,
        at=at,
        actor=actor,
        action="vm_enrolled",
        vm_id=vm_id,
        generation=generation,
        **stated,
    )


def _require_valid(resource_ids: Iterable[str], site: str | None, tags: Mapping[str, str]) -> None:
    """Raise `RefusedError` as `enroll` says."""
    wrong = next((each for each in resource_ids if not is_resource_id(each)), None)
    if wrong is not None:
        raise RefusedError(
            f"{wrong[:200]!r} is not the ARM id of a VM: /subscriptions/SUBSCRIPTION/"
            "resourceGroups/GROUP/providers/Microsoft.Compute/virtualMachines/NAME"
        )
    if site is not None and (not is_vm_id(site) or len(site) > _MAX_SITE_CHARACTERS):
        raise RefusedError(f"{site[:60]!r} is not a site: it is a word without / + and #")
    for name, value in tags.items():
        _require_tag(name, value)


def _with_tags(
    connection: Connection, vm_ids: Iterable[str], tags: Mapping[str, str]
) -> dict[str, dict[str, str]]:
    """Return all tags that admins have given to each VM, together with new ones."""
    before = read_enrolled(connection, vm_ids)
    found = {}
    for vm_id in vm_ids:
        row = before.get(vm_id)
        kept = {} if row is None or row.tags is None else json.loads(row.tags)
        found[vm_id] = {name: value for name, value in merged_tags(kept, tags).items() if value}
    return found


def _require_tag(name: str, value: str) -> None:
    is_name = 0 < len(name) <= _MAX_TAG_NAME_CHARACTERS and name.isprintable()
    if not is_name or len(value) > _MAX_TAG_VALUE_CHARACTERS or not value.isprintable():
        raise RefusedError(
            f"{name[:60]!r} with the value {value[:60]!r} is not a tag: Azure's have a name of "
            f"1 to {_MAX_TAG_NAME_CHARACTERS} characters and a value of "
            f"at most {_MAX_TAG_VALUE_CHARACTERS}"
        )


def revoke(database: Database, vm_ids: Iterable[str], *, actor: str, now: float) -> None:
    """Revoke the secrets of these VMs: `enroll` gives new ones from now on. Raises what `enroll`
    raises.
    """
    for portion in portions(require_vm_ids(vm_ids), VMS_AT_ONCE):
        with write_to(database) as (connection, change_number):
            known = read_generations(connection, [*portion, EVERY_VM])
            generations = {vm_id: _of(known, vm_id) + 1 for vm_id in portion}
            write_generations(connection, generations, change_number, revoked_at=now)
            for vm_id, generation in generations.items():
                audit_log.append(
                    connection,
                    at=now,
                    actor=actor,
                    action="vm_revoked",
                    vm_id=vm_id,
                    generation=generation - 1,
                )


def revoke_all(database: Database, *, actor: str, now: float) -> None:
    """Revoke the secrets of all VMs, known or not. Raises `DatabaseFailedError`."""
    with write_to(database) as (connection, change_number):
        newest = newest_generation(connection)
        write_generations(connection, {EVERY_VM: newest + 1}, change_number, revoked_at=now)
        audit_log.append(
            connection, at=now, actor=actor, action="all_vms_revoked", generation=newest
        )


def require_vm_ids(vm_ids: Iterable[str]) -> list[str]:
    """Return the vmIds, each once, in order. Raises `RefusedError` if one is not a vmId, or the
    list is empty.
    """
    found = list(dict.fromkeys(vm_ids))
    wrong = next((each for each in found if not is_vm_id(each)), None)
    if wrong is not None:
        raise RefusedError(
            f"{wrong[:60]!r} is not a vmId; Azure's look like 3f6a1c1e-8d55-4c0b-9a3e-5b1f0c7d2e90"
        )
    if not 0 < len(found) <= MAX_VMS:
        raise RefusedError(f"give 1 to {MAX_VMS:,} vmIds at once")
    return found


def settings_of(vm_id: str, generation: int, *, key: bytes, base: str) -> dict[str, str]:
    """Return the settings that connect a VM's bridge to the console; two of them are secrets."""
    return {
        "SEB_SINK__CONSOLE__KIND": "webhook",
        "SEB_SINK__CONSOLE__URL": f"{base}/ingest/v1/records",
        "SEB_SINK__CONSOLE__SECRET": secret_text(webhook_secret(key, vm_id, generation)),
        "SEB_COMMANDS__PULL_URL": f"{base}/pull/v1/commands",
        "SEB_COMMANDS__PULL_TOKEN": pull_token(key, vm_id, generation),
    }


def items_of(generations: Mapping[str, int], *, key: bytes, base: str) -> list[dict[str, Any]]:
    """Return the answer for VMs that were just enrolled: their secrets are shown only now."""
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
