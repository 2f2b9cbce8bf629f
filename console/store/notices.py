"""Notices in the database: told once by all consoles together, delivered in order to each sink."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any, Final, Protocol

from sqlalchemy import Connection, func, insert, or_, select, update

from console.fleet.values import Past
from console.store import decision_tables, reading, rows, tables
from console.store.decision_tables import notice, notice_cursor
from sinks.record import EventRecord, read_record

_LEASE_SECONDS: Final = 60.0
_WATCH: Final = "*"


class Tellable(Protocol):
    """A notice that is not sealed yet."""

    @property
    def id(self) -> str:
        """The same for the same fact."""

    @property
    def kind(self) -> str:
        """What it is about."""

    @property
    def subject(self) -> str:
        """The id of what it is about."""

    @property
    def at(self) -> float:
        """Seconds since 1970."""

    def sealed(self, *, number: int, stream: str, base: str, site: str) -> EventRecord:
        """The record."""


def tell(connection: Connection, notices: Iterable[Tellable], *, base: str, site: str) -> int:
    """Store those that were not told before, each with the next number; how many were new.

    In a transaction that has taken its number: other consoles wait.
    """
    wanted = {each.id: each for each in notices}
    known = set(
        connection.execute(select(notice.c.id).where(notice.c.id.in_(list(wanted)))).scalars()
    )
    last = connection.execute(
        select(notice.c.number, notice.c.stream).order_by(notice.c.number.desc()).limit(1)
    ).first()
    number, stream = (0, str(uuid.uuid4())) if last is None else (last.number, last.stream)
    new = [each for key, each in wanted.items() if key not in known]
    for each in new:
        number += 1
        record = each.sealed(number=number, stream=stream, base=base, site=site)
        connection.execute(
            insert(notice).values(
                number=number,
                id=each.id,
                kind=each.kind,
                subject=each.subject,
                at=each.at,
                stream=stream,
                body=record.body,
            )
        )
    return len(new)


def last_told(connection: Connection, kinds: Iterable[str]) -> dict[str, str]:
    """By subject, the kind of the last notice of some kinds."""
    newest = (
        select(func.max(notice.c.number))
        .where(notice.c.kind.in_(list(kinds)))
        .group_by(notice.c.subject)
    )
    wanted = select(notice.c.subject, notice.c.kind).where(notice.c.number.in_(newest))
    return {row.subject: row.kind for row in connection.execute(wanted)}


def add_sinks(connection: Connection, sinks: Iterable[str]) -> None:
    """Give each new sink its place: behind what was told before it."""
    known = set(connection.execute(select(notice_cursor.c.sink)).scalars())
    newest = connection.execute(select(func.coalesce(func.max(notice.c.number), 0))).scalar_one()
    for sink in set(sinks) - known:
        connection.execute(insert(notice_cursor).values(sink=sink, number=newest))


def place(connection: Connection, sink: str) -> int:
    """How far a sink has come."""
    found: int = connection.execute(
        select(notice_cursor.c.number).where(notice_cursor.c.sink == sink)
    ).scalar_one()
    return found


def claim(connection: Connection, sink: str, console: str, now: float) -> bool:
    """Whether this console delivers to the sink for the next minute."""
    c = notice_cursor.c
    free = or_(c.claimed_by.is_(None), c.claimed_by == console, c.claimed_until < now)
    done = connection.execute(
        update(notice_cursor)
        .where(c.sink == sink, free)
        .values(claimed_by=console, claimed_until=now + _LEASE_SECONDS)
    )
    return done.rowcount == 1


def release(connection: Connection, console: str) -> None:
    """Let other consoles deliver at once."""
    c = notice_cursor.c
    connection.execute(
        update(notice_cursor)
        .where(c.claimed_by == console)
        .values(claimed_by=None, claimed_until=None)
    )


def waiting(connection: Connection, after: int, limit: int) -> list[EventRecord]:
    """The next notices behind a number, in order."""
    wanted = (
        select(notice.c.body).where(notice.c.number > after).order_by(notice.c.number).limit(limit)
    )
    return [read_record(body) for body in connection.execute(wanted).scalars()]


def advance(connection: Connection, sink: str, console: str, number: int) -> None:
    """The sink has acknowledged everything up to a number."""
    c = notice_cursor.c
    connection.execute(
        update(notice_cursor)
        .where(c.sink == sink, c.claimed_by == console, c.number < number)
        .values(number=number)
    )


def ended_since(connection: Connection, moment: float, limit: int) -> list[Past]:
    """Events that ended after a moment, the newest first."""
    c = tables.event.c
    wanted = (
        select(tables.event)
        .where(c.state == "ended", c.shown_at > moment)
        .order_by(c.shown_at.desc())
        .limit(limit)
    )
    events = [rows.event_of(row) for row in connection.execute(wanted)]
    witnesses = reading.sightings_of(connection, [event.event_id for event in events])
    return [
        Past(event=event, witnesses={each.vm_id: each for each in witnesses[event.event_id]})
        for event in events
    ]


def decisions_over(connection: Connection, moment: float, outcomes: Iterable[str]) -> list[Any]:
    """Rows of decisions that ended after a moment with one of some outcomes."""
    c = decision_tables.decision.c
    wanted = select(decision_tables.decision).where(
        c.state == "over", c.over_at > moment, c.outcome.in_(list(outcomes))
    )
    return list(connection.execute(wanted))


def begun(connection: Connection, now: float) -> float:
    """When any console on this database looked for the first time, in seconds since 1970."""
    c = notice_cursor.c
    found = connection.execute(select(c.number).where(c.sink == _WATCH)).scalar()
    if found is None:
        connection.execute(insert(notice_cursor).values(sink=_WATCH, number=int(now)))
        return now
    return float(found)
