"""Corrects times that lie in the future, as they do after the console's clock was set back."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from sqlalchemy import Connection, and_, case, func, or_, select, true, update

from console.db.connection.clock import MAX_DIFFERENCE_SECONDS
from console.db.decisions.decision_rows import PREPARE
from console.db.decisions.prepare_commands import COMMAND_SECONDS
from console.db.decisions.turn_rows import read_turns, upsert_turns
from console.db.schema.decision_tables import command, decision
from console.db.schema.tables import vm
from console.turns.facts import Turn

_VM_TIMES: Final = (
    "heard_at",
    "state_at",
    "pulled_at",
    "lost_at",
    "retired_at",
    "name_since",
    "accepted_at",
    "conflict_at",
)
"""The times of VMs that are compared with the current time or with each other."""
_DECISION_TIMES: Final = ("at", "over_at", "claimed_until")
_COMMAND_TIMES: Final = ("made_at", "sent_at", "expires_at", "unanswered_at")


def correct_future_times(connection: Connection, *, now: float, change_number: int) -> int:
    """Correct the times that lie in the future; return how many rows had any."""
    found = _cap_vms(connection, now=now, change_number=change_number)
    found += _cap_decisions(connection, now=now, change_number=change_number)
    return found + _cap_turns(connection, now=now, change_number=change_number)


def _cap_vms(connection: Connection, *, now: float, change_number: int) -> int:
    """Set times of VMs that lie in the future to now; return how many VMs had any.

    They lie in the future after the console's clock was set back. How long ago they were is not
    known. Without this, a VM that died would count as heard until the clock reaches that time
    again.
    """
    c = vm.c
    ahead = {name: c[name] > now + MAX_DIFFERENCE_SECONDS for name in _VM_TIMES}
    corrected = {name: case((ahead[name], now), else_=c[name]) for name in _VM_TIMES}
    done = connection.execute(
        update(vm).where(or_(*ahead.values())).values(**corrected, change_number=change_number)
    )
    return done.rowcount


def _cap_decisions(connection: Connection, *, now: float, change_number: int) -> int:
    """Correct times of decisions and their commands that lie in the future; return how many rows.

    They do after the console's clock was set back. The newest of them becomes now, and the others
    keep their distance from it. Otherwise a decision would wait until the clock reaches that time
    again.
    """
    d = decision.c
    c = command.c
    is_own = c.act != PREPARE
    # A claim lasts for seconds, even on a decision that is hours old.
    claimed = d.claimed_until > now + MAX_DIFFERENCE_SECONDS
    free = update(decision).where(claimed).values(claimed_until=None, change_number=change_number)
    found = connection.execute(free).rowcount
    newest = [
        connection.execute(select(func.max(column)).where(condition)).scalar()
        for column, condition in ((d.at, true()), (d.over_at, true()), (c.sent_at, is_own))
    ]
    ahead = max((each for each in newest if each is not None), default=now) - now
    if ahead <= MAX_DIFFERENCE_SECONDS:
        return found
    for table, columns in ((decision, _DECISION_TIMES), (command, _COMMAND_TIMES)):
        moved = {name: table.c[name] - ahead for name in columns}
        begun = table.c[columns[0]] > now
        if table is command:
            begun = and_(begun, is_own)
        done = connection.execute(
            update(table).where(begun).values(**moved, change_number=change_number)
        )
        found += done.rowcount
    return found


def _cap_turns(connection: Connection, *, now: float, change_number: int) -> int:
    """Correct times of open turns, and of commands to prepare, that lie in the future; return how
    many rows.

    They do after the console's clock was set back. They become a time a little after now, and keep
    their order. So they are later than everything that was heard before, and no VM counts as back,
    or as not answering, because of an earlier message.
    """
    latest = now + MAX_DIFFERENCE_SECONDS + 1.0
    known = [(each, _with_cap(each, latest)) for each in read_turns(connection)]
    ahead = [after for before, after in known if after != before]
    upsert_turns(connection, ahead, change_number)
    c = command.c
    values = {
        column.name: case((column > until, until), else_=column)
        for column, until in (
            (c.made_at, latest),
            (c.sent_at, latest),
            (c.unanswered_at, latest),
            (c.expires_at, latest + COMMAND_SECONDS),
        )
    }
    is_ahead = or_(c.made_at > latest, c.expires_at > latest + COMMAND_SECONDS)
    done = connection.execute(
        update(command)
        .where(c.act == PREPARE, is_ahead)
        .values(**values, change_number=change_number)
    )
    return len(ahead) + done.rowcount


def _with_cap(each: Turn, latest: float) -> Turn:
    """Return a turn with no time later than `latest`."""

    def until(moment: float | None) -> float | None:
        return None if moment is None else min(moment, latest)

    return replace(
        each,
        # Notices have shown this time, and nothing waits for it.
        since=each.since if each.state in ("stuck", "forced") else min(each.since, latest),
        taken_at=until(each.taken_at),
        over_at=until(each.over_at),
        vms=tuple(
            replace(
                part,
                ready_at=until(part.ready_at),
                back_at=until(part.back_at),
                unanswered_since=until(part.unanswered_since),
            )
            for part in each.vms
        ),
    )
