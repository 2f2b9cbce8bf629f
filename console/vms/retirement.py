"""Retires VMs, when a person says that they are gone, and removes what they have sent."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from sqlalchemy import Connection

from console.audit import audit_log
from console.db.bulk import portions
from console.db.connection.opening import Database
from console.db.connection.transactions import write_to
from console.db.snapshot import Snapshots
from console.db.turn_facts.turn_facts import TurnSettings, read_turn_facts
from console.db.upkeep.removal import delete_past_reports, delete_some_records, delete_vm, is_known
from console.db.vms.vm_updates import retire_rows
from console.fleet.contact import Listening
from console.turns.away import AWAY_WORDS, away_by_group
from console.vms.enrolment import VMS_AT_ONCE, require_vm_ids


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgottenVms:
    """What became of VMs that were to be forgotten; unknown ones are left out."""

    removed: dict[str, int] = field(default_factory=dict)
    """The number of removed records of each, by vmId."""
    kept: dict[str, str] = field(default_factory=dict)
    """Why each of the others is away, by vmId: to forget it would make room for another VM."""


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


def forget(snapshots: Snapshots, vm_ids: Iterable[str], *, actor: str, reason: str) -> ForgottenVms:
    """Remove everything that VMs have sent; say what became of each.

    A VM that is away in a group of `snapshots`, or that holds a turn, is kept unless it is retired:
    only who says that it is gone makes room for another VM. Each VM that is removed is a row of the
    audit, which is written before the first record is removed. What a VM sends later is stored
    again. Raises `RefusedError` if something is not a vmId, `DatabaseFailedError`.
    """
    database = snapshots.database
    listening = Listening(silent_time=snapshots.silent_time)
    now = snapshots.clock()
    found = ForgottenVms()
    for vm_id in require_vm_ids(vm_ids):
        with write_to(database) as (connection, _):
            if not is_known(connection, vm_id) or _is_kept(connection, vm_id, snapshots, found):
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
            if _is_kept(connection, vm_id, snapshots, found):  # since a moment ago
                continue
            delete_vm(connection, vm_id, change_number, now=now, listening=listening)
        found.removed[vm_id] = 0
        more = True
        while more:
            with write_to(database) as (connection, _):
                count = delete_some_records(connection, vm_id, now)
            found.removed[vm_id] += count
            more = count > 0
    return found


def _is_kept(connection: Connection, vm_id: str, snapshots: Snapshots, found: ForgottenVms) -> bool:
    """Check whether a VM is not forgotten because it is away; note why."""
    why = _why_away(connection, vm_id, snapshots)
    if why is not None:
        found.kept[vm_id] = why
    return why is not None


def _why_away(connection: Connection, vm_id: str, snapshots: Snapshots) -> str | None:
    """Return why a VM is away, as a sentence; None if it is here, is retired or is of no group."""
    settings = TurnSettings(grouping=snapshots.grouping)
    facts = read_turn_facts(snapshots.of(connection), settings)
    if vm_id not in facts.vms:
        return None
    for turn in facts.turns.values():
        if turn.is_held and vm_id in turn.vm_ids:
            return f"it holds the turn of event {turn.event_id}"
    for group, away in away_by_group(facts).items():
        if vm_id in away:
            return f"it is away in group {group}: {AWAY_WORDS[away[vm_id].why]}"
    return None
