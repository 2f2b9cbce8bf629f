"""The rows of the commands that ask VMs to prepare, and until when a VM may follow a command."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Select, and_, case, func, or_, select, update

from console.db import rows
from console.db.bulk import rows_in
from console.db.decisions.decision_rows import PREPARE
from console.db.decisions.turn_rows import IS_OPEN, OVER, turn_of
from console.db.schema.decision_tables import command, turn
from console.db.schema.tables import event, preparation, receipt, record, vm
from console.fleet.values.decision import VmCommand
from console.fleet.values.keys import EventKey
from wire.preparation import RECOVERED

REJECTED: Final = "rejected"
"""The state of the receipt for a command that a VM refused; it does not use the command up."""
ON_ITS_WAY_SECONDS: Final = 10.0
"""How long the first report of a VM that follows a command may take to arrive."""
_AFTER_POST_SECONDS: Final = 10.0
"""How long an event that no document lists may still start after Azure was told to start it."""
_REQUEST_SECONDS: Final = 60.0
"""How long it may take until a VM reports how its request to Azure ended, which it has begun."""
FIRST_REPORT_SECONDS: Final = 3600.0
"""How long a VM that has accepted a command to prepare, and reports nothing, counts as away."""
COMMAND_SECONDS: Final = 60
"""The lifetime of a token of a command to prepare."""
_FOLLOWS: Final = receipt.c.state.in_(("accepted", "confirmed"))
_MAY_HAVE_TOLD: Final = and_(
    receipt.c.state == "failed", receipt.c.reason.in_(("imds_unreachable", "imds_refused"))
)
"""Azure's answer was lost or an error of its server: it may have received the approval."""
PrepareTarget = tuple[EventKey, str, str]
"""An event's key and fingerprint, and a vmId."""


def read(connection: Connection, event_ids: Iterable[str]) -> dict[PrepareTarget, list[VmCommand]]:
    """Return the commands to prepare for each state of these events and each VM, oldest first."""
    found: dict[PrepareTarget, list[VmCommand]] = {}
    c = command.c
    wanted = select(command).where(c.act == PREPARE).order_by(c.made_at)
    for row in rows_in(connection, wanted, c.event_id, event_ids):
        target = (EventKey(row.event_id, row.scope), row.fingerprint, row.vm_id)
        found.setdefault(target, []).append(rows.command_of(row))
    return found


def last_confirmed(connection: Connection, event_ids: Iterable[str]) -> dict[PrepareTarget, float]:
    """Return when the last command was made to which a VM has answered that it is prepared, for
    each state of these events and each VM.
    """
    c, r = command.c, receipt.c
    state = (c.event_id, c.scope, c.fingerprint, c.vm_id)
    confirmed = (
        select(*state, func.max(c.made_at))
        .join(receipt, and_(r.jti == c.jti, r.vm_id == c.vm_id))
        .where(c.act == PREPARE, r.state == "confirmed")
        .group_by(*state)
    )
    return {
        (EventKey(event_id, scope), fingerprint, vm_id): made_at
        for event_id, scope, fingerprint, vm_id, made_at in rows_in(
            connection, confirmed, c.event_id, event_ids
        )
    }


def give_up(connection: Connection, key: EventKey, now: float, change_number: int) -> None:
    """Give up the open commands to prepare for an event: none is sent or fetched any more."""
    c = command.c
    connection.execute(
        update(command)
        .where(c.event_id == key.event_id, c.scope == key.scope, c.act == PREPARE)
        .where(c.unanswered_at.is_(None))
        .values(unanswered_at=now, change_number=change_number)
    )


def asked_to_prepare(connection: Connection, now: float) -> dict[str, EventKey]:
    """Return the VMs that may still follow a command to prepare which was given up: by vmId, the
    key of the event. They count as long as `followed_until` says. A person who ends a
    turn after its event is over says that its VMs are back: then a command that was accepted counts
    only while it is valid.
    """
    c = command.c
    t = turn.c
    is_over = select(t.event_id).where(
        t.event_id == c.event_id, t.scope == c.scope, t.over_at.is_not(None)
    )
    wanted = _followed_commands(now, c.vm_id).where(
        c.act == PREPARE,
        c.unanswered_at.is_not(None),
        or_(c.expires_at > now - ON_ITS_WAY_SECONDS, ~is_over.exists()),
    )
    found = connection.execute(wanted)
    return {row.vm_id: EventKey(row.event_id, row.scope) for row in found}


def may_follow_approval(connection: Connection, key: EventKey, now: float) -> bool:
    """Check whether a VM may still follow a command to approve the event that it has not answered,
    also if no document has the event at this moment.
    """
    c = command.c
    wanted = _followed_commands(now, c.vm_id).where(
        c.act != PREPARE, c.event_id == key.event_id, c.scope == key.scope
    )
    return connection.execute(wanted.limit(1)).first() is not None


def followed_until(connection: Connection, now: float) -> dict[EventKey, float]:
    """Return, by event key, until when an event may still start by our doing, although it is over:
    a VM may act on a command that it has not answered, plus the time for its first report to
    arrive; or one has just told Azure, or may have, and a document left the event out.
    """
    c = command.c
    wanted = _followed_commands(now, func.max(_followed_to())).group_by(c.event_id, c.scope)
    found = connection.execute(wanted)
    until = {EventKey(row[0], row[1]): row[2] + ON_ITS_WAY_SECONDS for row in found}
    for key, may_start_to in _approved(connection, now):
        until[key] = max(until.get(key, 0.0), may_start_to)
    return until


def _approved(connection: Connection, now: float) -> Iterator[tuple[EventKey, float]]:
    """Yield the events of open turns that a VM of the turn has approved, also by a rule, and that
    have not been seen to start since; and until when they may start, also if a document left them
    out meanwhile.
    """
    t, e, r = turn.c, event.c, receipt.c
    # A VM also confirms its approval if the event is gone after a request without a good answer.
    is_unseen = and_(r.state == "confirmed", e.started_at.is_(None))
    has_told = or_(r.state == "posted", _MAY_HAVE_TOLD, is_unseen)
    later = receipt.alias("later")
    is_answered = select(later.c.jti).where(
        later.c.jti == r.jti, later.c.vm_id == r.vm_id, later.c.state.not_in(("accepted", REJECTED))
    )
    is_working = and_(r.state == "accepted", ~is_answered.exists(), ~IS_OPEN)
    may_start_to = case(
        (has_told, r.at + _AFTER_POST_SECONDS), else_=e.shown_at + _REQUEST_SECONDS
    ).label("may_start_to")
    wanted = (
        select(turn, r.vm_id, may_start_to)
        .join(event, and_(e.event_id == t.event_id, e.scope == t.scope))
        .join(receipt, r.event_id == t.event_id)
        .where(t.state != OVER, e.status != "Completed")
        .where(func.coalesce(r.act, "") != PREPARE, or_(has_told, is_working), may_start_to > now)
        .where(or_(e.started_at.is_(None), e.started_at < r.time))
    )
    for row in connection.execute(wanted):
        each = turn_of(row)
        if any(part.vm_id == row.vm_id for part in each.vms):
            yield each.event_key, row.may_start_to


def _followed_commands(now: float, column: ColumnElement[Any]) -> Select[Any]:
    """Return a query of the commands that a VM may still follow: event id, scope and a column.

    The receipts `accepted` and `confirmed` for a command to prepare are not answers: the VM counts
    as away from then on. It reports soon afterwards, unless its records do not arrive. `rejected`
    is no answer to any command: the VM may follow another copy of it while that is valid.
    """
    c = command.c
    p = preparation.c
    is_answer = and_(receipt.c.state != REJECTED, or_(c.act != PREPARE, ~_FOLLOWS))
    reported = select(p.event_id).where(
        p.event_id == c.event_id, p.vm_id == c.vm_id, c.act == PREPARE
    )
    # It counts as away because of what it reports.
    has_begun = reported.where(p.state != RECOVERED)
    # A VM may recover from an earlier announcement of the event while the command is on its way.
    # Its own records say in which order that was, whatever its clock says; a store that was put
    # back counts its records again, so a time after both the command and its receipt is enough.
    in_order = and_(record.c.stream == p.stream, record.c.sequence < p.sequence)
    has_recovered = (
        reported.where(p.state == RECOVERED, receipt.c.jti == c.jti, _FOLLOWS)
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
