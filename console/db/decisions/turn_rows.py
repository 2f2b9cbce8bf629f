"""The rows of turns."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from pydantic_core import from_json
from sqlalchemy import (
    Connection,
    Row,
    bindparam,
    delete,
    literal,
    or_,
    select,
)

from console.db.bulk import Values, rows_in, upsert
from console.db.schema.access_tables import token
from console.db.schema.decision_tables import command, decision, turn
from console.db.schema.tables import event, preparation, receipt, report, vm
from console.fleet.values.keys import EventKey
from console.fleet.values.turn import EventTurn, TurnHolder, TurnState
from console.turns.facts import HeldBy, Turn, TurnVm

OVER: Final = "over"
IS_OPEN: Final = event.c.state.in_(("scheduled", "started"))
_HAS_CHANGED: Final = select(literal(1)).where(
    or_(
        *(
            select(literal(1)).where(table.c.change_number > bindparam("since")).exists()
            for table in (event, report, receipt, preparation, decision, command, turn, vm, token)
        )
    )
)


def read_turns(connection: Connection, *, of_open_events: bool = False) -> list[Turn]:
    """Return the turns that are not over. With `of_open_events` every turn of an open event is
    among them.
    """
    wanted = turn.c.state != OVER
    if of_open_events:
        wanted = or_(wanted, turn.c.event_id.in_(select(event.c.event_id).where(IS_OPEN)))
    return [turn_of(row) for row in connection.execute(select(turn).where(wanted))]


def turns_of(connection: Connection, event_ids: Iterable[str]) -> dict[EventKey, Turn]:
    """Return the turns of these events, including those that are over."""
    found = rows_in(connection, select(turn), turn.c.event_id, event_ids)
    return {EventKey(row.event_id, row.scope): turn_of(row) for row in found}


def shown_turns(connection: Connection, event_ids: Iterable[str]) -> dict[EventKey, EventTurn]:
    """Return the turns of these events in the form that pages and the API show."""
    found = turns_of(connection, event_ids)
    held = {key: _holders(each) for key, each in found.items()}
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
                    event_id=None if event_key is None else event_key.event_id,
                )
                for vm_id, event_key in held[key]
            ),
            reason=each.reason,
            actor=each.actor,
            person_reason=each.person_reason,
            person_may_approve=each.person_may_approve,
        )
        for key, each in found.items()
    }


def _holders(turn: Turn) -> tuple[HeldBy, ...]:
    if turn.is_held:
        return tuple((one.vm_id, turn.event_key) for one in turn.still_away)
    return turn.held_by if turn.state == "waiting" else ()


def _names(connection: Connection, vm_ids: Iterable[str]) -> dict[str, str]:
    found = rows_in(connection, select(vm.c.vm_id, vm.c.name), vm.c.vm_id, vm_ids)
    return {row.vm_id: row.name for row in found}


def upsert_turns(connection: Connection, several: Iterable[Turn], change_number: int) -> None:
    """Write the rows of these turns."""
    upsert(connection, turn, [_row(each, change_number) for each in several])


def delete_preparations(connection: Connection, key: EventKey) -> None:
    """Delete what VMs have prepared for an event, so that none counts as away for it."""
    c = preparation.c
    connection.execute(delete(preparation).where(c.event_id == key.event_id, c.scope == key.scope))


def has_changed(connection: Connection, since: int, heard: Mapping[str, float]) -> bool:
    """Check whether a transaction after `since` has written anything from which turns are decided,
    or a VM in `heard` was heard again. `heard` has the time at which each VM was heard before, by
    vmId.
    """
    if connection.execute(_HAS_CHANGED, {"since": since}).first() is not None:
        return True
    heard_at = select(vm.c.vm_id, vm.c.heard_at)
    found = rows_in(connection, heard_at, vm.c.vm_id, heard)
    return any(heard[row.vm_id] != row.heard_at for row in found)


def is_anything_open(connection: Connection) -> bool:
    """Check whether any event or turn is open: otherwise there is nothing to decide."""
    wanted = select(event.c.event_id).where(IS_OPEN).limit(1)
    return is_any_turn_open(connection) or connection.execute(wanted).first() is not None


def is_any_turn_open(connection: Connection) -> bool:
    """Check whether any turn is not over."""
    wanted = select(turn.c.event_id).where(turn.c.state != OVER).limit(1)
    return connection.execute(wanted).first() is not None


def turn_of(row: Row[Any]) -> Turn:
    """Return the turn of a row."""
    return Turn(
        event_key=EventKey(row.event_id, row.scope),
        fingerprint=row.fingerprint,
        state=cast("TurnState", row.state),
        since=row.since,
        taken_at=row.taken_at,
        over_at=row.over_at,
        actor=row.actor,
        person_reason=row.person_reason,
        is_overridden=bool(row.is_overridden),
        reason=row.reason,
        ended_by=row.ended_by,
        person_may_approve=bool(row.person_may_approve),
        groups=tuple(from_json(row.groups)),
        vms=tuple(
            TurnVm(
                vm_id=vm_id,
                groups=frozenset(groups),
                back_at=back_at,
                ready_at=more[0] if more else None,
                unanswered_since=more[1] if len(more) > 1 else None,
                runs=tuple(*more[2:]),
            )
            for vm_id, groups, back_at, *more in from_json(row.vms)
        ),
        held_by=tuple((vm_id, key and EventKey(*key)) for vm_id, key in from_json(row.held_by)),
        behind=tuple(EventKey(*key) for key in from_json(row.behind)),
    )


def _row(each: Turn, change_number: int) -> Values:
    vms = [
        (vm.vm_id, sorted(vm.groups), vm.back_at, vm.ready_at, vm.unanswered_since, vm.runs)
        for vm in each.vms
    ]
    return {
        "event_id": each.event_id,
        "scope": each.event_key.scope,
        "fingerprint": each.fingerprint,
        "state": each.state,
        "since": each.since,
        "taken_at": each.taken_at,
        "over_at": each.over_at,
        "actor": each.actor,
        "person_reason": each.person_reason,
        "is_overridden": int(each.is_overridden),
        "reason": each.reason,
        "ended_by": each.ended_by,
        "person_may_approve": int(each.person_may_approve),
        "groups": json.dumps(each.groups),
        "vms": json.dumps(vms),
        "held_by": json.dumps(each.held_by),
        "behind": json.dumps(each.behind),
        "change_number": change_number,
    }
