"""Decisions and commands in the database, and what a decision is checked against there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from sqlalchemy import Connection, Row, insert, select, update

from console.fleet.values import UNDECIDED, Command, Decided, Decision, Event, Receipt, Sighting
from console.store import rows, tables
from console.store.decision_tables import command, decision
from console.store.statements import select_in

OVER: Final = "over"
_DECISION: Final = tuple(each.name for each in fields(Decision))
_COMMAND: Final = tuple(each.name for each in fields(Command))


@dataclass(frozen=True, slots=True, kw_only=True)
class EventNow:
    """An event as it is within the transaction."""

    event: Event
    shown: Sighting
    """Of the witness by which it is shown."""
    receipts: tuple[Receipt, ...]
    """Of the VMs that it names, oldest first: no other VM can say what became of it."""


def read_event(connection: Connection, event_id: str) -> EventNow | None:
    """The newest that is known of an event; None if there is none of that id."""
    row = connection.execute(
        select(tables.event).where(tables.event.c.event_id == event_id)
    ).first()
    if row is None:
        return None
    event, c = rows.event_of(row), tables.sighting.c
    shown = connection.execute(
        select(tables.sighting).where(c.event_id == event_id, c.vm_id == event.shown_by)
    ).first()
    if shown is None:
        return None
    found = select_in(connection, tables.receipt, "event_id", [event_id])
    receipts = sorted(map(rows.receipt_of, found), key=lambda receipt: receipt.at)
    said = read_sightings(connection, event_id, {each.vm_id for each in receipts})
    named = {vm_id for vm_id, sighting in said.items() if sighting.facts.affects}
    return EventNow(
        event=event,
        shown=rows.sighting_of(shown),
        receipts=tuple(each for each in receipts if each.vm_id in named),
    )


def read_sightings(
    connection: Connection, event_id: str, vm_ids: Iterable[str]
) -> dict[str, Sighting]:
    """What some VMs say of an event, by vmId."""
    c = tables.sighting.c
    wanted = select(tables.sighting).where(c.event_id == event_id, c.vm_id.in_(sorted(vm_ids)))
    return {row.vm_id: rows.sighting_of(row) for row in connection.execute(wanted)}


def read_open(connection: Connection, event_id: str) -> Decision | None:
    """The decision on an event that is not over; there is one at most."""
    c = decision.c
    wanted = select(decision).where(c.event_id == event_id, c.state != OVER)
    row = connection.execute(wanted).first()
    return None if row is None else decision_of(row)


def read_decision(connection: Connection, decision_id: str) -> Decision | None:
    """A decision by its id."""
    row = connection.execute(select(decision).where(decision.c.id == decision_id)).first()
    return None if row is None else decision_of(row)


def decisions_by_id(connection: Connection, ids: Iterable[str]) -> dict[str, Decision]:
    """Decisions by their ids."""
    found = select_in(connection, decision, "id", set(ids))
    return {row.id: decision_of(row) for row in found}


def read_all_open(connection: Connection) -> list[Decision]:
    """Every decision that is not over, the oldest first."""
    wanted = select(decision).where(decision.c.state.in_(("second", "open")))
    return [decision_of(row) for row in connection.execute(wanted.order_by(decision.c.at))]


def read_commands(connection: Connection, decision_id: str) -> list[Command]:
    """The commands of a decision, the oldest first."""
    wanted = select(command).where(command.c.decision_id == decision_id)
    return [command_of(row) for row in connection.execute(wanted.order_by(command.c.made_at))]


def read_command(connection: Connection, jti: str) -> tuple[Command, list[Receipt]] | None:
    """A command and the receipts that name it; None if there is none."""
    row = connection.execute(select(command).where(command.c.jti == jti)).first()
    if row is None:
        return None
    return command_of(row), receipts_of(connection, [jti])


def receipts_of(connection: Connection, jtis: Sequence[str]) -> list[Receipt]:
    """The receipts that name some commands, the oldest first."""
    found = [rows.receipt_of(row) for row in select_in(connection, tables.receipt, "jti", jtis)]
    return sorted(found, key=lambda receipt: receipt.at)


def commands_of(connection: Connection, jtis: Iterable[str]) -> list[Command]:
    """The commands of some jtis, where there are any."""
    return [command_of(row) for row in select_in(connection, command, "jti", jtis)]


def waiting_commands(connection: Connection, vm_id: str, channel: str, now: float) -> list[Command]:
    """The commands for a VM over a channel that can still be sent, the oldest first."""
    c = command.c
    wanted = (
        select(command)
        .join(decision, decision.c.id == c.decision_id)
        .where(c.vm_id == vm_id, c.channel == channel, c.expires_at > now + 1)
        .where(decision.c.state == "open", c.unanswered_at.is_(None))
    )
    return [command_of(row) for row in connection.execute(wanted.order_by(c.made_at))]


def decided_of(connection: Connection, event_ids: Iterable[str]) -> dict[str, Decided]:
    """All that was decided about some events; those without a decision are left out."""
    newest: dict[str, Decision] = {}
    for row in select_in(connection, decision, "event_id", event_ids):
        each = decision_of(row)
        known = newest.get(each.event_id)
        if known is None or known.at <= each.at:
            newest[each.event_id] = each
    commands: dict[str, list[Command]] = {}
    for row in select_in(connection, command, "event_id", list(newest)):
        commands.setdefault(row.event_id, []).append(command_of(row))
    return {
        event_id: Decided(
            decision=each,
            commands=tuple(sorted(commands.get(event_id, []), key=lambda one: one.made_at)),
        )
        for event_id, each in newest.items()
    }


def history_of(connection: Connection, event_id: str) -> tuple[list[Decision], Decided]:
    """Every decision on an event, the oldest first, and how it stands."""
    wanted = select(decision).where(decision.c.event_id == event_id).order_by(decision.c.at)
    every = [decision_of(row) for row in connection.execute(wanted)]
    return every, decided_of(connection, [event_id]).get(event_id, UNDECIDED)


def site_of(connection: Connection, vm_id: str) -> str | None:
    """The site of a VM, which is a part of its topics; None if the VM is not known."""
    wanted = select(tables.vm.c.site).where(tables.vm.c.vm_id == vm_id)
    return connection.execute(wanted).scalar_one_or_none()


def put_decision(connection: Connection, made: Decision, number: int) -> None:
    """A new decision."""
    values = {name: getattr(made, name) for name in _DECISION}
    connection.execute(insert(decision).values(**values, changed=number))


def put_command(connection: Connection, made: Command, number: int) -> None:
    """A new command."""
    values = {name: getattr(made, name) for name in _COMMAND}
    connection.execute(insert(command).values(**values, changed=number))


def change_decision(connection: Connection, after: Decision, number: int) -> None:
    """A decision's row as it is from now on; writers take turns, so nothing came between."""
    values = {name: getattr(after, name) for name in _DECISION}
    statement = update(decision).where(decision.c.id == after.id)
    connection.execute(statement.values(**values, changed=number))


def change_command(connection: Connection, after: Command, number: int) -> None:
    """A command's row as it is from now on."""
    values = {name: getattr(after, name) for name in _COMMAND}
    statement = update(command).where(command.c.jti == after.jti)
    connection.execute(statement.values(**values, changed=number))


def decision_of(row: Row[Any]) -> Decision:
    """A decision from its row."""
    return Decision(**{name: getattr(row, name) for name in _DECISION})


def command_of(row: Row[Any]) -> Command:
    """A command from its row."""
    return Command(**{name: getattr(row, name) for name in _COMMAND})
