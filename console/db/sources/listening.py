"""The intervals in which consoles were connected to sources: their rows, and what they mean now."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, delete, func, or_, select, update

from console.db.bulk import upsert
from console.db.schema.tables import change, listening
from console.db.sources.checkpoints import read_since
from console.fleet.contact import Interval, Listening, SilentTime, merged

GRACE_SECONDS: Final = 12.0
"""A console that has not written for this long does not run, or does not work."""
_KEPT_SECONDS: Final = 8 * 86_400.0
"""More than the longest silent time that can be set."""
_JUST_SECONDS: Final = 10.0
"""For so long after a break of any length, a VM that sends by itself may not have tried again."""
_MAX_INTERVALS: Final = 500
"""How many intervals are read, the newest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListeningInterval:
    """An interval in which a console was connected to a source; `until` equals `since` if it is not
    connected yet.
    """

    source: str
    since: float
    until: float


def read_listening(
    connection: Connection, now: float, silent_time: SilentTime, *, has_break: bool = False
) -> Listening:
    """Return when the consoles of this database were connected to their sources, until `now`, in
    seconds since 1970. `has_break`: this console has lost the database, and has not written that it
    listens again.
    """
    c = listening.c
    kept = or_(c.until > now - _KEPT_SECONDS, c.seen_at > now - GRACE_SECONDS)
    newest = select(listening).where(kept).order_by(c.until.desc()).limit(_MAX_INTERVALS)
    intervals: dict[str, list[Interval]] = {}
    begun: dict[str, list[float]] = {}
    connected: dict[str, bool] = {}
    for row in connection.execute(newest):
        runs = row.seen_at >= now - GRACE_SECONDS
        is_connected = runs and row.until >= row.seen_at
        # A time in the future was written before the clock was set back.
        until = now if is_connected else min(now, row.until)
        begun.setdefault(row.source, []).append(row.since)
        if until > row.since:
            interval = Interval(since=row.since, until=until)
            intervals.setdefault(row.source, []).append(interval)
        if runs:
            connected[row.source] = connected.get(row.source, False) or is_connected
    is_broken = has_break or (bool(intervals) and not connected)
    together = {source: merged(found) for source, found in intervals.items()}
    again = {source: found for source, each in together.items() if (found := _again(each, now))}
    for source, since in read_since(connection, now).items():
        again[source] = max(since, again.get(source, 0.0))
    return Listening(
        intervals=together,
        again_since=again,
        # A console that was killed seems to run for a while, also beside its own next run.
        just_since={
            source: max(times)
            for source, times in begun.items()
            if len(times) > 1 and max(times) > now - _JUST_SECONDS
        },
        unbroken_since=now if is_broken else _unbroken_since(connection),
        connected=connected,
        silent_time=silent_time,
    )


def _again(intervals: Sequence[Interval], now: float) -> float | None:
    """Return when the last break ended that was longer than a moment; None without one. A VM may
    have prepared during the break, and its records may still be on their way.
    """
    until = now
    for each in reversed(intervals):
        if until - each.until > GRACE_SECONDS:
            return until
        until = each.since
    return None


def _unbroken_since(connection: Connection) -> float:
    since: float = connection.execute(select(change.c.unbroken_since)).scalar_one()
    return since


def was_nobody_listening(connection: Connection, now: float) -> bool:
    """Check whether consoles have listened before, and none has for a while, as far as is known: if
    the clock was set back since, it is not.
    """
    last: float | None = connection.execute(select(func.max(listening.c.until))).scalar()
    return last is not None and abs(now - last) > GRACE_SECONDS


def does_another_listen(connection: Connection, run_id: str, now: float) -> bool:
    """Check whether another console was running while this one was not, as far as it wrote that."""
    c = listening.c
    runs = select(c.console).where(
        c.console != run_id, c.seen_at.between(now - GRACE_SECONDS, now + GRACE_SECONDS)
    )
    return connection.execute(runs.limit(1)).first() is not None


def write_unbroken_since(connection: Connection, now: float) -> None:
    """Write that what VMs told before `now` may be lost."""
    connection.execute(update(change).values(unbroken_since=now))


def write_listening(
    connection: Connection, run_id: str, listened: Iterable[ListeningInterval], *, seen_at: float
) -> None:
    """Write the intervals of a run of a console; `seen_at` is its current time, or 0 at its end."""
    upsert(
        connection,
        listening,
        [
            {
                "console": run_id,
                "source": each.source,
                "since": each.since,
                "until": each.until,
                "seen_at": seen_at,
            }
            for each in listened
        ],
    )


def end_other_runs(connection: Connection, run_id: str) -> None:
    """Note that no other run uses this database any more: a SQLite file has one at a time."""
    c = listening.c
    connection.execute(update(listening).where(c.console != run_id).values(seen_at=0))


def delete_past_listening(connection: Connection, now: float) -> None:
    """Delete the intervals that are too old to matter."""
    c = listening.c
    connection.execute(
        delete(listening).where(c.until < now - _KEPT_SECONDS, c.seen_at < now - _KEPT_SECONDS)
    )
