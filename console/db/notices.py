"""Notices in the database: stored once by all consoles together, delivered in order to each sink.

Numbers are never used again: retention keeps the newest notice.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Final, Literal, NamedTuple, Protocol

from sqlalchemy import (
    ColumnElement,
    Connection,
    and_,
    bindparam,
    delete,
    exists,
    func,
    insert,
    or_,
    select,
    tuple_,
    update,
)

from console.db import rows
from console.db.bulk import PAIRS_AT_ONCE, portions, rows_in
from console.db.schema.decision_tables import incident, notice, notice_cursor
from console.db.schema.tables import event, report
from console.fleet.values.keys import EventKey
from wire.record import Record, read_record

_LEASE_SECONDS: Final = 60.0
_FIRST_START_CURSOR: Final = "*"
OVER: Final = "event-over"
_FAILED: Final = "approval-failed"
_AWAY: Final = ("vm-silent", "vm-not-back")
_DUE: Final = ("decision-due", "undecided")
_DUE_SECONDS: Final = 8 * 86_400.0
"""How long an event may be due for a decision after the notice about it: more than the longest
notice that Azure gives.
"""
MAX_OF_ONE: Final = 100
"""The limit of notices about the events that one VM shows, within some minutes."""
MAX_AWAY: Final = 3
"""The limit of notices that one VM is away, within some minutes."""
_MAX_ENDS: Final = 500
"""The limit of ended events at one check; the others follow at the next one."""


class PendingNotice(Protocol):
    """A notice before it is sealed as a record."""

    @property
    def id(self) -> str:
        """The id of the notice: the same fact always gets the same id."""

    @property
    def kind(self) -> str:
        """What happened, such as `vm-silent`."""

    @property
    def subject(self) -> str:
        """The id of the event or the VM."""

    @property
    def scope(self) -> str | None:
        """The scope of the event, if it is about one."""

    @property
    def at(self) -> float:
        """Seconds since 1970."""

    def sealed(self, *, number: int, stream: str, base: str, site: str) -> Record:
        """Return the notice as a record."""


IncidentSubject = Literal["contact", "identity"]
"""What an incident is about: a VM is not heard, or it reports another identity than before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """An open incident of a VM: a notice has opened it, and another one will end it."""

    vm_id: str
    key: str
    """The key of the notices that open and end it: the VM's id, or that of a group of VMs."""
    kind: str
    """The kind of the notice that opened it."""
    size: int = 1
    """The number of VMs in the notice with that key."""
    at: float = field(default=0.0, compare=False)
    """When that notice was made, in seconds since 1970."""


class EndCounts(NamedTuple):
    """How many notices said that an event is over, and how many of them came before the last notice
    that a decision about it is due.
    """

    total: int = 0
    before_last_due: int = 0


def insert_notices(
    connection: Connection, notices: Iterable[PendingNotice], *, base: str, site: str, now: float
) -> int:
    """Store those of these notices that are new, each with the next number; return how many were.
    Needs a transaction that has taken its number: other consoles wait for it. `now` in seconds
    since 1970.
    """
    wanted = {each.id: each for each in notices}
    known = set(
        connection.execute(select(notice.c.id).where(notice.c.id.in_(list(wanted)))).scalars()
    )
    last = connection.execute(
        select(notice.c.number, notice.c.stream).order_by(notice.c.number.desc()).limit(1)
    ).first()
    stream = str(uuid.uuid4()) if last is None else last.stream
    number = newest_notice_number(connection)
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
                scope=each.scope or "",
                at=now,
                stream=stream,
                body=record.body,
            )
        )
    return len(new)


def incidents(connection: Connection, about: IncidentSubject) -> dict[str, Incident]:
    """Return the open incidents about this, by vmId."""
    c = incident.c
    return {
        row.vm_id: Incident(vm_id=row.vm_id, key=row.key, kind=row.kind, size=row.size, at=row.at)
        for row in connection.execute(select(incident).where(c.about == about))
    }


def upsert_incidents(
    connection: Connection, about: IncidentSubject, opened: Iterable[Incident], at: float
) -> None:
    """Store incidents; each replaces an older one of the same VM. `at` in seconds since 1970."""
    new = [{**asdict(each), "about": about, "at": at} for each in opened]
    delete_incidents(connection, about, [each["vm_id"] for each in new])
    if new:
        connection.execute(insert(incident), new)


def delete_incidents(connection: Connection, about: IncidentSubject, vm_ids: Iterable[str]) -> None:
    """Delete the incidents of these VMs."""
    c = incident.c
    gone = [{"gone": vm_id} for vm_id in vm_ids]
    if gone:
        of_vm = and_(c.vm_id == bindparam("gone"), c.about == about)
        connection.execute(delete(incident).where(of_vm), gone)


def newest_notice_number(connection: Connection) -> int:
    """Return the highest number that was ever used. A sink may be further than the stored notices,
    if retention has deleted all of them.
    """
    stored = connection.execute(select(func.max(notice.c.number))).scalar()
    delivered = connection.execute(
        select(func.max(notice_cursor.c.number)).where(notice_cursor.c.sink != _FIRST_START_CURSOR)
    ).scalar()
    return max(stored or 0, delivered or 0)


def not_stored(connection: Connection, ids: Iterable[str]) -> set[str]:
    """Return those of these ids that no stored notice has."""
    wanted = set(ids)
    found = rows_in(connection, select(notice.c.id), notice.c.id, wanted)
    return wanted - {row.id for row in found}


def recent_event_notices(connection: Connection, since: float) -> Counter[str]:
    """Return how many notices about events were stored since then, by the vmId of the VM that shows
    the event.
    """
    e = event.c
    n = notice.c
    same = and_(n.subject == e.event_id, n.scope == e.scope)
    query = select(e.shown_by, func.count()).join(notice, same)
    query = query.where(n.at > since, n.kind != _FAILED).group_by(e.shown_by)
    return Counter({row[0]: row[1] for row in connection.execute(query)})


def at_away_limit(connection: Connection, since: float) -> set[str]:
    """Return the VMs about which no further notice may say that they are away: since then
    `MAX_AWAY` notices have said so.
    """
    n = notice.c
    query = select(n.subject).where(n.at > since, n.kind.in_(_AWAY)).group_by(n.subject)
    return set(connection.execute(query.having(func.count() >= MAX_AWAY)).scalars())


def first_noticed_scopes(connection: Connection, event_ids: Iterable[str]) -> dict[str, str]:
    """Return the scope of the first notice for each event id. If events of several scopes share an
    id, people know this one by it.
    """
    n = notice.c
    e = event.c
    found: dict[str, str] = {}
    same = and_(e.event_id == n.subject, e.scope == n.scope)
    query = select(n.subject, n.scope).join(event, same).order_by(n.number)
    for row in rows_in(connection, query, n.subject, event_ids):
        found.setdefault(row.subject, row.scope)
    return found


def ended_without_notice(connection: Connection, since: float, settled: float) -> list[EventKey]:
    """Return ended events that still need the notice of their end.

    - Those that ended after `since` without one.
    - Older ones for which a notice said that a decision is due, and none that they are over.

    One that ended after `settled` counts only once every VM that it names has seen the end.
    """
    e = event.c
    reported = report.c
    n = notice.c
    has_notice = exists().where(n.subject == e.event_id, n.scope == e.scope, n.kind == OVER)
    is_same = and_(reported.event_id == e.event_id, reported.scope == e.scope)
    is_open = exists().where(is_same, reported.is_own == 1, reported.over == 0)
    is_settled = or_(e.shown_at < settled, ~is_open)
    ended = and_(e.state == "ended", is_settled)
    found = _first_of_each(connection, ended, e.shown_at > since, ~has_notice)
    for portion in portions(_noticed_as_due(connection, settled), PAIRS_AT_ONCE):
        found |= _first_of_each(connection, ended, tuple_(e.event_id, e.scope).in_(portion))
    return list(found)


def _first_of_each(
    connection: Connection, *conditions: ColumnElement[bool]
) -> dict[EventKey, None]:
    """Return some of the events for which these conditions hold: the oldest ones of each VM that
    shows any, so that a VM with many does not delay the others.
    """
    e = event.c
    rank = func.row_number().over(partition_by=e.shown_by, order_by=e.shown_at).label("rank")
    ranked = select(e.event_id, e.scope, e.shown_at, rank).where(*conditions).subquery()
    some = select(ranked.c.event_id, ranked.c.scope).where(ranked.c.rank <= MAX_OF_ONE)
    some = some.order_by(ranked.c.rank, ranked.c.shown_at).limit(_MAX_ENDS)
    return {rows.key_of(row): None for row in connection.execute(some)}


def _noticed_as_due(connection: Connection, now: float) -> list[EventKey]:
    """Return the events for which a recent notice says that a decision is due, and no later notice
    says that they are over.
    """
    later = notice.alias("later")
    n = notice.c
    is_over = exists().where(
        later.c.subject == n.subject,
        later.c.scope == n.scope,
        later.c.kind == OVER,
        later.c.number > n.number,
    )
    wanted = select(n.subject, n.scope).distinct().where(n.kind.in_(_DUE), ~is_over)
    found = connection.execute(wanted.where(n.at > now - _DUE_SECONDS))
    return [EventKey(row.subject, row.scope) for row in found]


def count_end_notices(
    connection: Connection, event_ids: Iterable[str]
) -> dict[EventKey, EndCounts]:
    """Return, for each of these events, how many notices said that it is over: an event may be
    announced again after its end.
    """
    n = notice.c
    found: dict[EventKey, EndCounts] = {}
    query = select(n.subject, n.scope, n.kind).where(n.kind.in_((*_DUE, OVER))).order_by(n.number)
    for row in rows_in(connection, query, n.subject, event_ids):
        key = EventKey(row.subject, row.scope)
        total, before = found.get(key, EndCounts())
        is_end = row.kind == OVER
        found[key] = EndCounts(total + 1, before) if is_end else EndCounts(total, total)
    return found


def insert_cursors(connection: Connection, sinks: Iterable[str]) -> None:
    """Start each new sink after the notices that are stored already."""
    known = set(connection.execute(select(notice_cursor.c.sink)).scalars())
    newest = newest_notice_number(connection)
    for sink in set(sinks) - known:
        connection.execute(insert(notice_cursor).values(sink=sink, number=newest))


def is_waiting(connection: Connection, sink: str) -> bool:
    """Check whether there are notices that a sink has not acknowledged."""
    found = connection.execute(select(notice.c.number).where(_before(sink)).limit(1)).first()
    return found is not None


def claim(
    connection: Connection, sink: str, run_id: str, *, now: float, limit: int
) -> list[Record]:
    """Return the next notices of a sink, in order, for a console that delivers them within a
    minute. If another console has claimed the sink and its minute is not over, there are none.

    A claim that ends more than two minutes from now was made before the clock was set back, and
    does not count.
    """
    c = notice_cursor.c
    is_past = or_(c.claimed_until < now, c.claimed_until > now + 2 * _LEASE_SECONDS)
    free = or_(c.claimed_by.is_(None), c.claimed_by == run_id, is_past)
    done = connection.execute(
        update(notice_cursor)
        .where(c.sink == sink, free)
        .values(claimed_by=run_id, claimed_until=now + _LEASE_SECONDS)
    )
    if done.rowcount != 1:
        return []
    wanted = select(notice.c.body).where(_before(sink)).order_by(notice.c.number).limit(limit)
    return [read_record(body) for body in connection.execute(wanted).scalars()]


def _before(sink: str) -> ColumnElement[bool]:
    """Return the SQL for whether a sink has not acknowledged a notice."""
    number = select(notice_cursor.c.number).where(notice_cursor.c.sink == sink).scalar_subquery()
    return notice.c.number > number


def release(connection: Connection, run_id: str) -> None:
    """Release the claims of a console, so that others can deliver at once."""
    c = notice_cursor.c
    connection.execute(
        update(notice_cursor)
        .where(c.claimed_by == run_id)
        .values(claimed_by=None, claimed_until=None)
    )


def advance(connection: Connection, sink: str, run_id: str, number: int) -> None:
    """Note that the sink has acknowledged everything up to a number."""
    c = notice_cursor.c
    connection.execute(
        update(notice_cursor)
        .where(c.sink == sink, c.claimed_by == run_id, c.number < number)
        .values(number=number)
    )


def first_console_start(connection: Connection, now: float) -> float:
    """Return when a console of this database first looked for notices, in seconds since 1970.
    The table of cursors has it, as the number of a cursor that no sink has.
    """
    c = notice_cursor.c
    found = connection.execute(select(c.number).where(c.sink == _FIRST_START_CURSOR)).scalar()
    if found is None:
        connection.execute(insert(notice_cursor).values(sink=_FIRST_START_CURSOR, number=int(now)))
        return now
    return float(found)
