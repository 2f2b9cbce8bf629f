"""The rows of turns, and of the commands that ask VMs to prepare."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, cast

from pydantic_core import from_json
from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    and_,
    bindparam,
    case,
    delete,
    func,
    literal,
    or_,
    select,
    update,
)

from console.db import rows
from console.db.bulk import Values, portions, upsert
from console.db.decision_tables import command, decision, turn
from console.db.decisions import PREPARE
from console.db.tables import event, preparation, receipt, record, report, vm
from console.fleet.values import Command, EventKey, EventTurn, TurnHolder
from console.turns.situation import HeldBy, Holder, Turn
from console.turns.transitions import State
from wire.preparation import RECOVERED

OVER: Final = "over"
REJECTED: Final = "rejected"
"""The state of the receipt for a command that a VM refused; it does not use the command up."""
_IS_OPEN: Final = event.c.state.in_(("scheduled", "started"))
ON_ITS_WAY_SECONDS: Final = 10.0
"""How long it may take until the first report arrives from a VM that follows a command."""
_AFTER_POST_SECONDS: Final = 10.0
"""How long an event that no document lists may still start after Azure was told to start it."""
COMMAND_SECONDS: Final = 60
"""The lifetime of a token of a command to prepare."""
FIRST_REPORT_SECONDS: Final = 3600.0
"""How long a VM counts as away after it has accepted a command to prepare, if it reports nothing.
"""
_HAS_CHANGED: Final = select(literal(1)).where(
    or_(
        *(
            select(literal(1)).where(table.c.changed > bindparam("since")).exists()
            for table in (event, report, receipt, preparation, decision, command, turn, vm)
        )
    )
)
_FOLLOWS: Final = receipt.c.state.in_(("accepted", "confirmed"))
Asked = tuple[EventKey, str, str]
"""An event's key and fingerprint, and a vmId."""


def read_turns(connection: Connection, *, of_open_events: bool = False) -> list[Turn]:
    """Return the turns that are not over. With `of_open_events` every turn of an open event is
    among them.
    """
    wanted = turn.c.state != OVER
    if of_open_events:
        wanted = or_(wanted, turn.c.event_id.in_(select(event.c.event_id).where(_IS_OPEN)))
    return [turn_of(row) for row in connection.execute(select(turn).where(wanted))]


def turns_of(connection: Connection, event_ids: Iterable[str]) -> dict[EventKey, Turn]:
    """Return the turns of these events, including those that are over."""
    found: dict[EventKey, Turn] = {}
    for few in portions(event_ids):
        for row in connection.execute(select(turn).where(turn.c.event_id.in_(few))):
            found[EventKey(row.event_id, row.scope)] = turn_of(row)
    return found


def shown_turns(connection: Connection, event_ids: Iterable[str]) -> dict[EventKey, EventTurn]:
    """Return the turns of these events in the form that pages and the API show."""
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
                    event_id=None if event_key is None else event_key.event_id,
                )
                for vm_id, event_key in held[key]
            ),
            reason=each.reason,
            by=each.by,
            asked=each.asked,
            is_free=each.is_free,
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
    """Write the rows of these turns."""
    upsert(connection, turn, [_row(each, number) for each in several])


def forget_preparations(connection: Connection, key: EventKey) -> None:
    """Delete what VMs have prepared for an event, so that none counts as away for it."""
    c = preparation.c
    connection.execute(delete(preparation).where(c.event_id == key.event_id, c.scope == key.scope))


def give_up_prepare_commands(
    connection: Connection, key: EventKey, now: float, number: int
) -> None:
    """Give up the open commands to prepare for an event: none is sent or fetched any more."""
    c = command.c
    connection.execute(
        update(command)
        .where(c.event_id == key.event_id, c.scope == key.scope, c.act == PREPARE)
        .where(c.unanswered_at.is_(None))
        .values(unanswered_at=now, changed=number)
    )


def asked_to_prepare(connection: Connection, now: float) -> dict[str, HeldBy]:
    """Return the VMs that may still follow a command to prepare although it was given up. By vmId,
    each has its vmId and the key of the event. They count as long as `followed_until` says. A
    person who ends a turn after its event is over says that its VMs are back: then a command that
    was accepted counts only while it is valid.
    """
    c = command.c
    t = turn.c
    is_over = select(t.event_id).where(
        t.event_id == c.event_id, t.scope == c.scope, t.over_at.is_not(None)
    )
    wanted = _followed(now, c.vm_id).where(
        c.act == PREPARE,
        c.unanswered_at.is_not(None),
        or_(c.expires_at > now - ON_ITS_WAY_SECONDS, ~is_over.exists()),
    )
    found = connection.execute(wanted)
    return {row.vm_id: (row.vm_id, EventKey(row.event_id, row.scope)) for row in found}


def followed_until(connection: Connection, now: float) -> dict[EventKey, float]:
    """Return until when events that are over may still start because of a command, by event key. A
    VM may act on a command that it has not answered, and its first report takes some time to
    arrive. Or a VM has just told Azure to start the event, and a document left the event out.
    """
    c = command.c
    wanted = _followed(now, func.max(_followed_to())).group_by(c.event_id, c.scope)
    found = connection.execute(wanted)
    until = {EventKey(row[0], row[1]): row[2] + ON_ITS_WAY_SECONDS for row in found}
    for key, posted_at in _posted_before_the_end(connection, now):
        until[key] = max(until.get(key, 0.0), posted_at + _AFTER_POST_SECONDS)
    return until


def _posted_before_the_end(connection: Connection, now: float) -> Iterator[tuple[EventKey, float]]:
    """Yield the keys of events that may start although they have ended, each with the time at which
    Azure was asked to start it. A VM that holds the event's turn asked a moment ago, also by a
    rule, and the event has ended since and was not seen to start.
    """
    t, e, r = turn.c, event.c, receipt.c
    wanted = (
        select(turn, r.vm_id, r.at)
        .join(event, and_(e.event_id == t.event_id, e.scope == t.scope))
        .join(receipt, r.event_id == t.event_id)
        .where(t.state != OVER, ~_IS_OPEN, e.status != "Completed")
        .where(r.state == "posted", r.at > now - _AFTER_POST_SECONDS)
        .where(or_(e.started_at.is_(None), e.started_at < r.time))
    )
    for row in connection.execute(wanted):
        each = turn_of(row)
        if any(holder.vm_id == row.vm_id for holder in each.holders):
            yield each.event_key, row.at


def _followed(now: float, column: ColumnElement[Any]) -> Select[Any]:
    """Return a query of the commands that a VM may still follow: event id, scope and a column.

    The receipts `accepted` and `confirmed` for a command to prepare are not answers: the VM counts
    as away from then on. It reports soon afterwards, unless its records do not arrive. `rejected`
    is no answer to any command: the VM may follow another copy of it while that is valid.
    """
    c = command.c
    p = preparation.c
    is_answer = and_(receipt.c.state != REJECTED, or_(c.act != PREPARE, ~_FOLLOWS))
    said = select(p.event_id).where(p.event_id == c.event_id, p.vm_id == c.vm_id, c.act == PREPARE)
    # It counts as away because of what it reports.
    has_begun = said.where(p.state != RECOVERED)
    # A VM may recover from an earlier announcement of the event while the command is on its way.
    # Its own records say in which order that was, whatever its clock says; a store that was put
    # back counts its records again, so a time after both the command and its receipt is enough.
    in_order = and_(record.c.stream == p.stream, record.c.sequence < p.sequence)
    has_recovered = (
        said.where(p.state == RECOVERED, receipt.c.jti == c.jti, _FOLLOWS)
        .where(or_(in_order, and_(receipt.c.time <= p.time, c.made_at <= p.time)))
        .join_from(preparation, receipt, receipt.c.vm_id == p.vm_id)
        .join(record, record.c.id == receipt.c.record_id, isouter=True)
    )
    return select(c.event_id, c.scope, column).where(
        c.expires_at > now - ON_ITS_WAY_SECONDS - FIRST_REPORT_SECONDS,
        _followed_to() > now - ON_ITS_WAY_SECONDS,
        ~_has_receipt(is_answer),
        ~has_begun.exists(),
        ~has_recovered.exists(),
    )


def _followed_to() -> ColumnElement[float]:
    """Return the SQL for when a VM that has reported nothing will not follow a command any more.
    What it accepted before its store was lost counts no longer than the command itself.
    """
    c = command.c
    r = receipt.c
    has_accepted = (
        select(r.jti)
        .join(vm, vm.c.vm_id == r.vm_id)
        .join(record, record.c.id == r.record_id, isouter=True)
        .where(r.jti == c.jti, r.vm_id == c.vm_id, _FOLLOWS)
        .where(or_(record.c.stream.is_(None), record.c.stream == vm.c.stream))
        .exists()
    )
    return case((has_accepted, c.expires_at + FIRST_REPORT_SECONDS), else_=c.expires_at)


def _has_receipt(*those: ColumnElement[bool]) -> ColumnElement[bool]:
    """Return the SQL for whether the VM of a command has answered it."""
    r = receipt.c
    return select(r.jti).where(r.jti == command.c.jti, r.vm_id == command.c.vm_id, *those).exists()


def prepare_commands(
    connection: Connection, event_ids: Iterable[str]
) -> tuple[dict[Asked, Command], Mapping[Asked, int]]:
    """Return the newest command to prepare for each state of these events and each VM, and how many
    there are.
    """
    found: dict[Asked, Command] = {}
    counts: Counter[Asked] = Counter()
    c = command.c
    for few in portions(event_ids):
        wanted = select(command).where(c.event_id.in_(few), c.act == PREPARE).order_by(c.made_at)
        for row in connection.execute(wanted):
            key = (EventKey(row.event_id, row.scope), row.fingerprint, row.vm_id)
            found[key] = rows.command_of(row)
            counts[key] += 1
    return found, counts


def has_changed(connection: Connection, since: int, heard: Mapping[str, float]) -> bool:
    """Check whether a transaction after `since` has written anything from which turns are decided,
    or a VM in `heard` was heard again. `heard` has the time at which each VM was heard before, by
    vmId.
    """
    if connection.execute(_HAS_CHANGED, {"since": since}).first() is not None:
        return True
    return any(
        heard[row.vm_id] != row.heard_at
        for few in portions(heard)
        for row in connection.execute(select(vm.c.vm_id, vm.c.heard_at).where(vm.c.vm_id.in_(few)))
    )


def is_anything_open(connection: Connection) -> bool:
    """Check whether any event or turn is open: otherwise there is nothing to decide."""
    wanted = select(event.c.event_id).where(_IS_OPEN).limit(1)
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
        state=cast("State", row.state),
        since=row.since,
        taken_at=row.taken_at,
        over_at=row.over_at,
        by=row.by,
        asked=row.asked,
        is_forced=bool(row.is_forced),
        reason=row.reason,
        ended_by=row.ended_by,
        is_free=bool(row.is_free),
        groups=tuple(from_json(row.groups)),
        holders=tuple(
            Holder(
                vm_id=vm_id,
                groups=frozenset(groups),
                back_at=back_at,
                ready_at=more[0] if more else None,
                asked_at=more[1] if len(more) > 1 else None,
            )
            for vm_id, groups, back_at, *more in from_json(row.holders)
        ),
        held_by=tuple((vm_id, key and EventKey(*key)) for vm_id, key in from_json(row.held_by)),
        behind=tuple(EventKey(*key) for key in from_json(row.behind)),
    )


def _row(each: Turn, number: int) -> Values:
    holders = [(h.vm_id, sorted(h.groups), h.back_at, h.ready_at, h.asked_at) for h in each.holders]
    return {
        "event_id": each.event_id,
        "scope": each.event_key.scope,
        "fingerprint": each.fingerprint,
        "state": each.state,
        "since": each.since,
        "taken_at": each.taken_at,
        "over_at": each.over_at,
        "by": each.by,
        "asked": each.asked,
        "is_forced": int(each.is_forced),
        "reason": each.reason,
        "ended_by": each.ended_by,
        "is_free": int(each.is_free),
        "groups": json.dumps(each.groups),
        "holders": json.dumps(holders),
        "held_by": json.dumps(each.held_by),
        "behind": json.dumps(each.behind),
        "changed": number,
    }
