"""Turns in the database, and the commands that ask VMs to prepare."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final, cast

from sqlalchemy import Connection, Row, delete, select

from console.db import rows
from console.db.decision_tables import command, turn
from console.db.decisions import PREPARE
from console.db.tables import event, preparation, vm
from console.db.upsert import Values, portions, upsert
from console.fleet.values import Command, EventTurn, TurnHolder
from console.turns.machine import State
from console.turns.situation import HeldBy, Holder, Turn, event_id_of, key_of

OVER: Final = "over"
Key = tuple[str, str]
"""An event's id and scope."""
Asked = tuple[str, str, str, str]
"""An event's id, scope and fingerprint, and a vmId."""


def read_turns(connection: Connection) -> list[Turn]:
    """Those that are not over."""
    return [turn_of(row) for row in connection.execute(select(turn).where(turn.c.state != OVER))]


def turns_of(connection: Connection, event_ids: Iterable[str]) -> dict[Key, Turn]:
    """The turns of some events, also those that are over."""
    found: dict[Key, Turn] = {}
    for few in portions(event_ids):
        for row in connection.execute(select(turn).where(turn.c.event_id.in_(few))):
            found[(row.event_id, row.scope)] = turn_of(row)
    return found


def shown_turns(connection: Connection, event_ids: Iterable[str]) -> dict[Key, EventTurn]:
    """The turns of some events as they are shown."""
    found = turns_of(connection, event_ids)
    held = {key: _held(each) for key, each in found.items()}
    names = _names(connection, {vm_id for several in held.values() for vm_id, _ in several})
    return {
        key: EventTurn(
            state=each.state,
            since=each.since,
            groups=each.groups,
            held_by=tuple(
                TurnHolder(
                    vm_id=vm_id,
                    name=names.get(vm_id, vm_id),
                    event_id=None if event_key is None else event_id_of(event_key),
                )
                for vm_id, event_key in held[key]
            ),
            reason=each.reason,
            by=each.by,
            asked=each.asked,
            needs_people=each.needs_people,
        )
        for key, each in found.items()
    }


def _held(turn: Turn) -> tuple[HeldBy, ...]:
    if turn.is_held:
        return tuple((one.vm_id, turn.event_key) for one in turn.still_away)
    return turn.held_by if turn.state == "waiting" else ()


def _names(connection: Connection, vm_ids: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for few in portions(vm_ids):
        wanted = select(vm.c.vm_id, vm.c.name).where(vm.c.vm_id.in_(few))
        found |= {row.vm_id: row.name for row in connection.execute(wanted)}
    return found


def put_turns(connection: Connection, several: Iterable[Turn], number: int) -> None:
    """The rows of some turns as they are from now on."""
    upsert(connection, turn, [_row(each, number) for each in several])


def forget_preparations(connection: Connection, key: Key) -> None:
    """Count no VM as away any more for what it has prepared for an event."""
    c = preparation.c
    connection.execute(delete(preparation).where(c.event_id == key[0], c.scope == key[1]))


def prepare_commands(connection: Connection, event_ids: Iterable[str]) -> dict[Asked, Command]:
    """The newest prepare command for each state of some events and each VM."""
    found: dict[Asked, Command] = {}
    c = command.c
    for few in portions(event_ids):
        wanted = select(command).where(c.event_id.in_(few), c.act == PREPARE).order_by(c.made_at)
        for row in connection.execute(wanted):
            key = (row.event_id, row.scope, row.fingerprint, row.vm_id)
            found[key] = rows.command_of(row)
    return found


def is_anything_open(connection: Connection) -> bool:
    """Whether an event or a turn is not over: else nothing is to be decided."""
    turns = select(turn.c.event_id).where(turn.c.state != OVER).limit(1)
    events = select(event.c.event_id).where(event.c.state != "ended").limit(1)
    return any(connection.execute(each).first() is not None for each in (turns, events))


def turn_of(row: Row[Any]) -> Turn:
    """A turn from its row."""
    return Turn(
        event_key=key_of(row.event_id, row.scope),
        event_id=row.event_id,
        scope=row.scope,
        fingerprint=row.fingerprint,
        state=cast("State", row.state),
        since=row.since,
        taken_at=row.taken_at,
        over_at=row.over_at,
        by=row.by,
        asked=row.asked,
        is_forced=bool(row.is_forced),
        reason=row.reason,
        ended_by=row.ended_by,
        needs_people=bool(row.needs_people),
        groups=tuple(json.loads(row.groups)),
        holders=tuple(
            Holder(vm_id=vm_id, groups=frozenset(groups), back_at=back_at)
            for vm_id, groups, back_at in json.loads(row.holders)
        ),
        held_by=tuple((vm_id, key) for vm_id, key in json.loads(row.held_by)),
        behind=tuple(json.loads(row.behind)),
    )


def _row(turn: Turn, number: int) -> Values:
    holders = [(one.vm_id, sorted(one.groups), one.back_at) for one in turn.holders]
    return {
        "event_id": turn.event_id,
        "scope": turn.scope,
        "fingerprint": turn.fingerprint,
        "state": turn.state,
        "since": turn.since,
        "taken_at": turn.taken_at,
        "over_at": turn.over_at,
        "by": turn.by,
        "asked": turn.asked,
        "is_forced": int(turn.is_forced),
        "reason": turn.reason,
        "ended_by": turn.ended_by,
        "needs_people": int(turn.needs_people),
        "groups": json.dumps(turn.groups),
        "holders": json.dumps(holders),
        "held_by": json.dumps(turn.held_by),
        "behind": json.dumps(turn.behind),
        "changed": number,
    }
