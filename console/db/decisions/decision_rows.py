"""The rows of decisions and commands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

from sqlalchemy import Connection, Select, func, insert, or_, select, update

from console.db import rows
from console.db.bulk import rows_in
from console.db.schema import tables
from console.db.schema.decision_tables import command, decision
from console.fleet.values.decision import Decision, DecisionHistory, Receipt, VmCommand
from console.fleet.values.keys import EventKey

OVER: Final = "over"
PREPARE: Final = "prepare"
"""The act of a command that belongs to a turn and not to a decision."""


def read_open(connection: Connection, key: EventKey) -> Decision | None:
    """Return the decision on an event that is not over, or None; there is one at most."""
    c = decision.c
    wanted = select(decision).where(
        c.event_id == key.event_id, c.scope == key.scope, c.state != OVER
    )
    row = connection.execute(wanted).first()
    return None if row is None else rows.decision_of(row)


def read_decision(connection: Connection, decision_id: str) -> Decision | None:
    """Return the decision with this id, or None."""
    row = connection.execute(select(decision).where(decision.c.id == decision_id)).first()
    return None if row is None else rows.decision_of(row)


def decisions_by_id(connection: Connection, ids: Iterable[str]) -> dict[str, Decision]:
    """Return the decisions with these ids, by id."""
    found: dict[str, Decision] = {}
    for row in rows_in(connection, select(decision), decision.c.id, set(ids)):
        found[row.id] = rows.decision_of(row)
    return found


def read_all_open(connection: Connection) -> list[Decision]:
    """Return every decision that is not over, the oldest first."""
    wanted = select(decision).where(decision.c.state.in_(("second", "open")))
    return [rows.decision_of(row) for row in connection.execute(wanted.order_by(decision.c.at))]


def read_commands(connection: Connection, decision_id: str) -> list[VmCommand]:
    """Return the commands of a decision, the oldest first."""
    wanted = select(command).where(command.c.decision_id == decision_id)
    return _commands(connection, wanted.order_by(command.c.made_at))


def read_command(connection: Connection, jti: str) -> VmCommand | None:
    """Return a command, or None."""
    row = connection.execute(select(command).where(command.c.jti == jti)).first()
    return None if row is None else rows.command_of(row)


def receipts_of(connection: Connection, jtis: Iterable[str]) -> list[Receipt]:
    """Return the receipts for these commands, the oldest first."""
    found = rows_in(connection, select(tables.receipt), tables.receipt.c.jti, jtis)
    return sorted(map(rows.receipt_of, found), key=lambda receipt: receipt.at)


def commands_changed(connection: Connection, since: int) -> list[tuple[VmCommand, list[Receipt]]]:
    """Return the commands that a later transaction has changed or answered, each with its
    receipts.
    """
    r = tables.receipt.c
    answered = select(r.jti).where(r.change_number > since)
    wanted = select(command).where((command.c.change_number > since) | command.c.jti.in_(answered))
    found = _commands(connection, wanted)
    receipts = receipts_of(connection, [each.jti for each in found])
    return [(each, [one for one in receipts if one.content.jti == each.jti]) for each in found]


def waiting_commands(
    connection: Connection, channel: str, now: float, *, vm_id: str | None = None
) -> list[VmCommand]:
    """Return the commands over a channel that can still be sent, the oldest first. With `vm_id`
    they are only those to this VM.
    """
    c = command.c
    wanted = (
        select(command)
        .outerjoin(decision, decision.c.id == c.decision_id)
        .where(c.channel == channel, c.expires_at > now + 1)
        .where(or_(decision.c.state == "open", c.act == PREPARE), c.unanswered_at.is_(None))
    )
    if vm_id is not None:
        wanted = wanted.where(c.vm_id == vm_id)
    return _commands(connection, wanted.order_by(c.made_at))


def commands_to_fetch(connection: Connection, channel: str, since: int) -> list[VmCommand]:
    """Return the commands over a channel that a later transaction has changed and that are not
    given up. One that was fetched and is not answered counts too: the VM may not have received it.
    """
    c = command.c
    wanted = select(command).where(
        c.change_number > since, c.channel == channel, c.unanswered_at.is_(None)
    )
    return _commands(connection, wanted)


def decision_histories(
    connection: Connection, event_ids: Iterable[str]
) -> dict[EventKey, DecisionHistory]:
    """Return everything that was decided about these events; those without a decision are
    left out.
    """
    ids = list(event_ids)
    newest = newest_decisions(connection, ids)
    commands: dict[EventKey, list[VmCommand]] = {}
    query = select(command).where(command.c.act != PREPARE).order_by(command.c.made_at)
    for row in rows_in(connection, query, command.c.event_id, ids):
        commands.setdefault(rows.key_of(row), []).append(rows.command_of(row))
    return {
        key: DecisionHistory(decision=each, commands=tuple(commands.get(key, ())))
        for key, each in newest.items()
    }


def newest_decisions(connection: Connection, event_ids: Iterable[str]) -> dict[EventKey, Decision]:
    """Return the last decision on each of these events, if it has one."""
    found: dict[EventKey, Decision] = {}
    query = select(decision).order_by(decision.c.at)
    for row in rows_in(connection, query, decision.c.event_id, event_ids):
        found[rows.key_of(row)] = rows.decision_of(row)
    return found


def approval_counts(
    connection: Connection, event_ids: Iterable[str]
) -> Counter[tuple[str, str, str]]:
    """Return how often each state of these events was approved, by event id, scope and
    fingerprint.
    """
    found: Counter[tuple[str, str, str]] = Counter()
    c = decision.c
    query = select(c.event_id, c.scope, c.fingerprint).where(c.kind == "approve")
    for row in rows_in(connection, query, c.event_id, event_ids):
        found[(row.event_id, row.scope, row.fingerprint)] += 1
    return found


def decisions_on(connection: Connection, key: EventKey) -> list[Decision]:
    """Return every decision on an event, the oldest first."""
    c = decision.c
    wanted = select(decision).where(c.event_id == key.event_id, c.scope == key.scope).order_by(c.at)
    return [rows.decision_of(row) for row in connection.execute(wanted)]


def decisions_over(
    connection: Connection, moment: float, outcomes: Sequence[str]
) -> list[Decision]:
    """Return the decisions that ended after a moment with one of these outcomes."""
    c = decision.c
    wanted = select(decision).where(
        c.state == OVER, c.over_at > moment, c.outcome.in_(list(outcomes))
    )
    return [rows.decision_of(row) for row in connection.execute(wanted)]


def site_of(connection: Connection, vm_id: str) -> str | None:
    """Return the site of a VM's topics: that at which it was last online; None if the VM is not
    known.
    """
    c = tables.vm.c
    wanted = select(func.coalesce(c.status_site, c.site)).where(c.vm_id == vm_id)
    return connection.execute(wanted).scalar_one_or_none()


def insert_decision(connection: Connection, made: Decision, change_number: int) -> None:
    """Insert the row of a new decision."""
    connection.execute(insert(decision).values(**rows.decision_row(made, change_number)))


def insert_command(connection: Connection, made: VmCommand, change_number: int) -> None:
    """Insert the row of a new command."""
    connection.execute(insert(command).values(**rows.command_row(made, change_number)))


def update_decision(connection: Connection, after: Decision, change_number: int) -> None:
    """Update a decision's row. Writers take turns, so no other change is lost."""
    statement = update(decision).where(decision.c.id == after.id)
    connection.execute(statement.values(**rows.decision_row(after, change_number)))


def update_command(connection: Connection, after: VmCommand, change_number: int) -> None:
    """Update a command's row."""
    statement = update(command).where(command.c.jti == after.jti)
    connection.execute(statement.values(**rows.command_row(after, change_number)))


def _commands(connection: Connection, wanted: Select[Any]) -> list[VmCommand]:
    return [rows.command_of(row) for row in connection.execute(wanted)]
