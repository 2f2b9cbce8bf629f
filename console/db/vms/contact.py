"""Contact in SQL: from a VM's row, the intervals in which consoles listened, and the time.

A VM is `silent` if it has sent nothing for its silent time while a console was connected to its
source for as long; `learning` if it may have sent something while no console was connected. It is
`late` after half of that time, if a console was connected for that half: after a console was away
for a minute, no VM is late.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    and_,
    case,
    false,
    func,
    literal,
    literal_column,
    or_,
    select,
)

from console.db.schema.tables import gap
from console.fleet.contact import (
    DEFAULT_INTERVAL_SECONDS,
    INTERVALS,
    Interval,
    Listening,
    SilentTime,
    merged,
)

_STATE_SECONDS: Final = 120.0
"""How long a VM's state document is waited for: two heartbeats of the usual interval, since a VM
that is heard is asked for it.
"""
_WAITED_SECONDS: Final = 5.0
"""What waited so long at the VM shows that it was cut off: more may follow."""


def contact_of(vm: Any, now: float, listening: Listening) -> ColumnElement[str]:
    """Return the SQL for the contact of each VM; `vm` is the table of VMs, or an alias of it."""
    c = vm.c
    silent_seconds = silent_seconds_of(vm, listening.silent_time)
    age = literal(now) - c.heard_at
    return case(
        (c.retired_at.is_not(None), _word("retired")),
        (c.stopped_at.is_not(None), _word("stopped")),
        (c.lost_at.is_not(None), _word("silent")),
        (age <= silent_seconds / 2, _word("heard")),
        (
            and_(age <= silent_seconds, _was_missed(vm, silent_seconds / 2, listening)),
            _word("late"),
        ),
        (age <= silent_seconds, _word("heard")),
        (_was_missed(vm, silent_seconds, listening), _word("silent")),
        else_=_word("learning"),
    )


def may_have_unread(
    vm: Any, now: float, listening: Listening, *, retaining: Collection[str]
) -> ColumnElement[bool]:
    """Return the SQL for whether a VM may have told something that no console knows, or will: it
    was not heard since something may have been lost, or its state document was not read since, or
    since records of it are missing, or its newest record is an old one.

    `retaining`: the names of the sources that keep the state documents. A document that has not
    come after two minutes does not exist, and is not waited for any more.
    """
    c = vm.c
    unheard = [c.heard_at < listening.unbroken_since]
    unheard += [
        and_(c.heard_source == source, c.heard_at < since)
        for source, since in listening.again_since.items()
    ]
    unheard += [
        and_(c.heard_source == source, c.heard_at < since)
        for source, since in listening.just_since.items()
        if source not in retaining
    ]
    awaited = [
        and_(c.heard_source == source, c.state_at < since)
        for source in retaining
        if (since := _broken_until(listening, source)) > now - _STATE_SECONDS
    ]
    catches_up = and_(c.record_waited > _WAITED_SECONDS, c.heard_at > now - _STATE_SECONDS)
    missing = select(gap.c.vm_id).where(
        gap.c.vm_id == c.vm_id,
        gap.c.stream == c.stream,
        gap.c.found_at > c.state_at,
        gap.c.found_at > now - _STATE_SECONDS,
    )
    return or_(*unheard, *awaited, catches_up, and_(c.missing_records > 0, missing.exists()))


def _broken_until(listening: Listening, source: str) -> float:
    return max(listening.unbroken_since, listening.again_since.get(source, 0.0))


def silent_seconds_of(vm: Any, silent_time: SilentTime) -> ColumnElement[float]:
    """Return the SQL for the silent time of each VM, in seconds."""
    if silent_time.seconds is not None:
        return literal(silent_time.seconds)
    return INTERVALS * func.coalesce(vm.c.interval, DEFAULT_INTERVAL_SECONDS)


def _was_missed(vm: Any, seconds: Any, listening: Listening) -> ColumnElement[bool]:
    """Return the SQL for whether a console was connected to the VM's source for `seconds`
    and heard nothing of it.
    """
    c = vm.c
    by_source = [
        and_(c.heard_source == source, _is_covered(c.heard_at, seconds, intervals))
        for source, intervals in listening.intervals.items()
    ]
    # For a source that was removed or renamed, the time of every source counts.
    everything = merged(each for several in listening.intervals.values() for each in several)
    unknown = and_(
        c.heard_source.not_in(sorted(listening.intervals)),
        _is_covered(c.heard_at, seconds, everything),
    )
    return or_(false(), *by_source, unknown)


def _is_covered(heard_at: Any, seconds: Any, intervals: Iterable[Interval]) -> ColumnElement[bool]:
    return or_(
        false(),
        *(
            and_(
                literal(each.until - each.since) >= seconds,
                heard_at <= literal(each.until) - seconds,
            )
            for each in intervals
        ),
    )


def _word(word: str) -> ColumnElement[str]:
    return literal_column(f"'{word}'")
