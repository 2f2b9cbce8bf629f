"""Queries of events: each event with everything that its rows have at one moment."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    Subquery,
    and_,
    case,
    func,
    literal,
    null,
    or_,
    select,
    tuple_,
    union,
)

from console.db import assignments, decisions, rows
from console.db.bearers import BEARER, bearers_query
from console.db.bulk import portions, rows_in
from console.db.contact import contact_of
from console.db.decision_tables import command, decision, turn
from console.db.event_filters import (
    WantedEvents,
    filtered,
    in_names,
    is_named_like,
    sorted_by,
)
from console.db.grouping import columns_of, keys_of
from console.db.search import has_tag, is_pattern, is_text, tag_of
from console.db.tables import (
    assignment,
    event,
    preparation,
    receipt,
    record,
    report,
    resource,
    vm,
)
from console.db.turns import shown_turns
from console.fleet.candidates import PULL_SECONDS
from console.fleet.commands import WORKING, counting
from console.fleet.contact import Listening
from console.fleet.event_ids import main_of
from console.fleet.outcomes import BY_CONSOLE
from console.fleet.preparations import OF_THE_EVENT
from console.fleet.values import (
    OPEN,
    UNDECIDED,
    DecisionHistory,
    EventKey,
    KnownEvent,
    LatestReport,
    Named,
    Receipt,
)
from console.turns.groups import Grouping

NO_GROUPS: Final = Grouping(())
ENDED: Final = "ended"
LOST_SECONDS: Final = 900.0
"""How long an approval still counts if the VM that began it has lost its store, from the first
message of the new store on: Azure may have been told to start the event, and starts it meanwhile.
"""
NEVER: Final = 1e18
"""Sorts after the notBefore of every event."""
_MAX_WORDS: Final = 50
_MAX_SIGNS: Final = 1_000_000
"""The limit of all names of the past events in one answer, in characters. With short names the
whole answer is fifty times as long.
"""
_COMMON: Final = 0.2
"""If the wanted VMs are at least this share of all VMs, the database looks at one event after the
other, which is quicker.
"""
_AHEAD: Final = 6
"""How many events it then looks at for each event that is wanted."""
COUNTED: Final = 1000
"""The limit up to which events are counted in that case."""
ListPosition = tuple[float, str, str]
"""Where a listing continues: the sort value, the id and the scope of the event before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """The number of events; with `has_more` there are more than that."""

    number: int
    has_more: bool = False


def stored_spellings(connection: Connection, event_ids: Iterable[str]) -> dict[str, str]:
    """Return, for event ids in any case, the spelling that was stored first, or else the first of
    those given. An id that is stored exactly as given stays: a console up to version 0.2.0 stored
    each spelling as an event of its own.
    """
    given = list(dict.fromkeys(event_ids))
    known: dict[str, list[str]] = {}
    c = event.c
    query = select(c.event_id).order_by(c.first_seen_at, c.event_id)
    lower = {each.lower() for each in given}
    for row in rows_in(connection, query, func.lower(c.event_id), lower):
        known.setdefault(row.event_id.lower(), []).append(row.event_id)
    written = {}
    for each in given:
        same = known.setdefault(each.lower(), [each])
        written[each] = each if each in same else same[0]
    return written


class Events:
    """Queries of events within one transaction."""

    def __init__(
        self,
        connection: Connection,
        now: float,
        listening: Listening,
        *,
        grouping: Grouping = NO_GROUPS,
    ) -> None:
        """`grouping`: the groups for which events wait."""
        self._grouping = grouping
        self._connection = connection
        self._now = now
        self._listening = listening

    def one(self, event_id: str, scope: str | None = None) -> KnownEvent | None:
        """Return the event with this id, in upper or lower case, or None.

        If several scopes have the id and none is given, it is the event whose named VM has been
        known longest.
        """
        return main_of(self.of_id(event_id), scope)

    def of_id(self, event_id: str) -> list[KnownEvent]:
        """Return the events with this id, in any case, in every scope."""
        return self.some(stored_spellings(self._connection, [event_id]).values())

    def some(self, event_ids: Iterable[str]) -> list[KnownEvent]:
        """Return the events with these ids in every scope, open or over."""
        found: list[KnownEvent] = []
        for few in portions(event_ids):
            found += self._known(_events().where(event.c.event_id.in_(few)))
        return found

    def of(self, keys: Iterable[EventKey]) -> dict[EventKey, KnownEvent]:
        """Return those of these events that exist, by key."""
        wanted = set(keys)
        found = self.some({event_id for event_id, _ in wanted})
        return {each.event.key: each for each in found if each.event.key in wanted}

    def open(
        self,
        wanted: WantedEvents | None = None,
        *,
        limit: int | None = None,
        after: ListPosition | None = None,
    ) -> list[KnownEvent]:
        """Return open events: started ones first, then by the time that is left. `after` is the
        last one of the page before: its `time_left`, id and scope.
        """
        left = _time_left()
        query = _events().where(event.c.state.in_(OPEN))
        query = filtered(query, wanted, by_event=True)  # they are few
        if after is not None:
            order = tuple_(left, event.c.event_id, event.c.scope)
            query = query.where(order > tuple_(*map(literal, after)))
        query = query.order_by(left, event.c.event_id, event.c.scope)
        return self._known(query.limit(limit))

    def pending(self) -> list[KnownEvent]:
        """Return open events, without what only pages show."""
        is_open = event.c.state.in_(OPEN)
        found = self._connection.execute(_events().where(is_open)).all()
        names = self._named([is_open])
        decided, receipts = self._of_now(found)
        return [
            KnownEvent(
                event=rows.event_of(row),
                shown=_shown_of(row),
                seen_by=0,
                differing=False,
                named=names.get(rows.key_of(row), {}),
                receipts=receipts.get(rows.key_of(row), ()),
                decided=decided[rows.key_of(row)],
            )
            for row in found
        ]

    def over(
        self,
        wanted: WantedEvents | None = None,
        *,
        limit: int | None = None,
        after: ListPosition | None = None,
    ) -> list[KnownEvent]:
        """Return ended events, the newest first; `after` is the place of the last one of the page
        before.
        """
        return self._known(self._over(_events(), wanted, after).limit(limit))

    def page_over(
        self, wanted: WantedEvents, *, limit: int, after: ListPosition | None = None
    ) -> tuple[list[KnownEvent], bool]:
        """Return the first events that `over` finds, and whether there are more: at least one, and
        not more than fit into one answer, as each may name thousands of VMs.
        """
        c = event.c
        query = select(c.event_id, c.scope, func.length(c.search_text).label("size"))
        found = self._connection.execute(self._over(query, wanted, after).limit(limit + 1)).all()
        shown: list[Row[Any]] = []
        size = 0
        for row in found[:limit]:
            size += row.size
            if shown and size > _MAX_SIGNS:
                break
            shown.append(row)
        return self._in_order(shown), len(found) > len(shown)

    def _over(
        self, query: Select[Any], wanted: WantedEvents | None, after: ListPosition | None
    ) -> Select[Any]:
        """Return the query of ended events, the newest first, after a place in that order."""
        c = event.c
        is_common = wanted is not None and self._is_common(wanted)
        query = filtered(query.where(c.state == ENDED), wanted, by_event=is_common)
        if after is not None:
            order = tuple_(c.shown_at, c.event_id, c.scope)
            query = query.where(order < tuple_(*map(literal, after)))
        return query.order_by(c.shown_at.desc(), c.event_id.desc(), c.scope.desc())

    def past(
        self, wanted: WantedEvents, *, sort: str, descending: bool, limit: int, skip: int = 0
    ) -> tuple[list[KnownEvent], Total]:
        """Return events, open or over, by one of `SORTS`, and how many there are in all. Events
        without a value come last. In the order of time, events with a matching name come before
        those with a matching id. Beyond the last event the number is zero.
        """
        ordered = sorted_by(sort, descending=descending)
        if wanted.q is not None and sort == "at" and is_text(wanted.q):
            ordered.insert(0, case((in_names(wanted.q), 0), else_=1))
        # Sorted without the reports: only those of the events that are returned are read.
        order = (*ordered, event.c.event_id)
        if skip + limit <= COUNTED and self._is_common(wanted):
            first = self._first(wanted, order, COUNTED + 1)
            if len(first) > COUNTED:
                total = Total(number=COUNTED, has_more=True)
                return self._in_order(first[skip : skip + limit]), total
        # With a filter, the rows are counted in the same query; without one, `count` is quicker.
        in_one_go = wanted != WantedEvents()
        counted = func.count().over() if in_one_go else null()
        query = filtered(select(event.c.event_id, event.c.scope, counted), wanted)
        query = query.order_by(*order).limit(limit).offset(skip)
        found = self._connection.execute(query).all()
        number = (found[0][2] if found else 0) if in_one_go else self.count(wanted)
        return self._in_order(found), Total(number=number)

    def _in_order(self, found: Iterable[Row[Any]]) -> list[KnownEvent]:
        """Return the events of these ids and scopes, in the same order."""
        keys = [rows.key_of(row) for row in found]
        known = self.of(keys)
        return [known[key] for key in keys if key in known]

    def count(self, wanted: WantedEvents) -> int:
        """Return how many events are wanted, open or over."""
        query = filtered(select(func.count()).select_from(event), wanted)
        found: int = self._connection.execute(query).scalar_one()
        return found

    def _first(
        self, wanted: WantedEvents, order: Sequence[ColumnElement[Any]], limit: int
    ) -> Sequence[Row[Any]]:
        """Return the first matching events of an order, for filters that match many VMs. It reads
        the head of the order, because looking up the events of each VM would be slower.
        """
        columns = (event.c.event_id, event.c.scope)
        q = wanted.q if wanted.q is not None and is_text(wanted.q) else None
        some = filtered(select(*columns), replace(wanted, q=q, tag=None))
        some = some.order_by(*order).limit(limit * _AHEAD)
        query = filtered(select(*columns), wanted, by_event=True)
        query = query.where(tuple_(*columns).in_(some)).order_by(*order).limit(limit)
        return self._connection.execute(query).all()

    def _is_common(self, wanted: WantedEvents) -> bool:
        """Check whether the wanted tag or name is so common that scanning events in order is
        quicker than looking up all events of those VMs.
        """
        those = [has_tag(vm, tag) for tag in (wanted.tag, tag_of(wanted.q or "")) if tag]
        if wanted.q is not None and is_pattern(wanted.q) and tag_of(wanted.q) is None:
            those.append(is_named_like(vm, wanted.q))
        if not those:
            return False
        count = select(func.count(), func.sum(case((and_(*those), 1), else_=0))).select_from(vm)
        every, some = self._connection.execute(count).one()
        return bool(every and some >= _COMMON * every)

    def words_of(self, name: str) -> list[str]:
        """Return the most frequent values of a column, sorted: `event_type` or `status`. Azure has
        a few values; a VM may make up others.
        """
        column = event.c[name]
        query = select(column).group_by(column).order_by(func.count().desc(), column)
        found = self._connection.execute(query.limit(_MAX_WORDS)).scalars()
        return sorted(value for value in found if value)

    def askable(self) -> list[KnownEvent]:
        """Return scheduled events about which a VM can be asked: one that is heard, is named by the
        event, has reported it, and takes commands.
        """
        contact = contact_of(BEARER, self._now, self._listening)
        names = (
            bearers_query(contact.label("contact"), heard=contact == "heard")
            .where(event.c.state == "scheduled", event.c.is_news == 0)
            .subquery()
        )
        polls = func.coalesce(names.c.pulled_at, 0) > self._now - PULL_SECONDS
        query = select(names.c.event_id, names.c.scope).where(
            names.c.rank == 1,
            names.c.contact == "heard",
            names.c.content_hash.is_not(None),
            or_(names.c.command_source.is_not(None), polls),
        )
        keys = {rows.key_of(row) for row in self._connection.execute(query)}
        return list(self.of(keys).values())

    def count_open(self) -> int:
        """Return how many events are not over."""
        query = select(func.count()).select_from(event).where(event.c.state.in_(OPEN))
        found: int = self._connection.execute(query).scalar_one()
        return found

    def reports(self, key: EventKey) -> list[LatestReport]:
        """Return the latest report of every reporter of an event, the oldest first."""
        c = report.c
        wanted = select(report).where(c.event_id == key.event_id, c.scope == key.scope)
        wanted = wanted.order_by(c.time, c.vm_id)
        return [rows.report_of(row) for row in self._connection.execute(wanted)]

    def own_reports(self, keys: Iterable[EventKey]) -> dict[EventKey, list[LatestReport]]:
        """Return, by event, the latest reports of the VMs that the event names."""
        c = report.c
        found: dict[EventKey, list[LatestReport]] = {}
        query = select(report).where(c.is_own == 1)
        for row in rows_in(self._connection, query, tuple_(c.event_id, c.scope), keys):
            found.setdefault(rows.key_of(row), []).append(rows.report_of(row))
        return found

    def named_by(self, event_ids: Iterable[str]) -> set[str]:
        """Return the vmIds of the VMs that these events name, open or over."""
        names = bearers_query().subquery()
        query = select(names.c.vm_id).where(names.c.rank == 1)
        found = rows_in(self._connection, query, names.c.event_id, event_ids)
        return {row.vm_id for row in found}

    def changed_since(self, number: int) -> list[str]:
        """Return the ids of events about which a later transaction has written anything."""
        several = union(
            *(
                select(table.c.event_id).where(table.c.change_number > number)
                for table in (event, report, receipt, preparation, decision, command, turn)
            )
        )
        assigned = select(assignment.c.subject).where(
            assignment.c.change_number > number, assignment.c.kind == assignments.EVENT
        )
        found = {*self._connection.execute(several).scalars()}
        found |= {*self._connection.execute(assigned).scalars()}
        return sorted(filter(None, found))

    def _known(self, query: Select[Any]) -> list[KnownEvent]:
        """Return the events of a query, in its order, with what other tables have of them."""
        found = self._connection.execute(query).all()
        ids = [row.event_id for row in found]
        assigned = assignments.assignments_of(self._connection, assignments.EVENT, ids, self._now)
        counts = self._counts(ids)
        names = self._named(resource.c.event_id.in_(few) for few in portions(ids))
        scopes = self._scopes(ids)
        decided, receipts = self._of_now(found)
        disputed = self._disputed(ids)
        turns = shown_turns(self._connection, ids)
        known = []
        for row in found:
            key = rows.key_of(row)
            seen_by, ways = counts.get(key, (0, 0))
            decision = decided[key]
            bearers = names.get(key, {})
            known.append(
                KnownEvent(
                    event=rows.event_of(row),
                    shown=_shown_of(row),
                    seen_by=seen_by,
                    differing=ways > 1,
                    named=bearers,
                    receipts=counting(
                        receipts.get(key, ()),
                        bearers,
                        decision.commands,
                        scheduled_at=self._now if row.state == "scheduled" else None,
                    ),
                    decided=decision,
                    other_scopes=tuple(sorted(scopes.get(row.event_id, set()) - {row.scope})),
                    disputed=tuple(disputed.get(key, ())),
                    turn=turns.get(key),
                    assigned=assigned.get(key),
                )
            )
        return known

    def _counts(self, event_ids: Sequence[str]) -> dict[EventKey, tuple[int, int]]:
        """Return, for each event, how many VMs have reported it, and at least how many versions of
        it.
        """
        c = report.c
        found: dict[EventKey, tuple[int, int]] = {}
        ways = (func.count(c.content_hash.distinct()), func.count(c.wording_hash.distinct()))
        query = select(c.event_id, c.scope, func.count(), *ways).group_by(c.event_id, c.scope)
        counted = rows_in(self._connection, query, c.event_id, event_ids)
        for event_id, scope, seen_by, contents, wordings in counted:
            found[EventKey(event_id, scope)] = (seen_by, max(contents, wordings))
        return found

    def _disputed(self, event_ids: Sequence[str]) -> dict[EventKey, list[tuple[str, str]]]:
        """Return the VMs in conflict that have reported each event; these VMs are few, so they are
        read first.
        """
        found: dict[EventKey, list[tuple[str, str]]] = {}
        in_conflict = select(vm.c.vm_id, vm.c.name).where(vm.c.conflict_at.is_not(None))
        names = {row.vm_id: row.name for row in self._connection.execute(in_conflict)}
        if not names:
            return found
        c = report.c
        for few in portions(event_ids):
            query = select(c.event_id, c.scope, c.vm_id).where(c.event_id.in_(few))
            for some in portions(names):
                reported = query.where(c.vm_id.in_(some)).order_by(c.vm_id)
                for row in self._connection.execute(reported):
                    several = found.setdefault(rows.key_of(row), [])
                    several.append((row.vm_id, names[row.vm_id]))
        return found

    def _scopes(self, event_ids: Sequence[str]) -> dict[str, set[str]]:
        """Return, for each event id, the scopes that have an event with it."""
        found: dict[str, set[str]] = {}
        query = select(event.c.event_id, event.c.scope)
        for event_id, scope in rows_in(self._connection, query, event.c.event_id, event_ids):
            found.setdefault(event_id, set()).add(scope)
        return found

    def _named(self, several: Iterable[ColumnElement[bool]]) -> dict[EventKey, dict[str, Named]]:
        """Return the VMs that events name, by event and by folded name. Only events are read for
        which one of these conditions holds.
        """
        contact = contact_of(BEARER, self._now, self._listening)
        seen = [
            column.label(f"seen_{number}")
            for number, column in enumerate(columns_of(self._grouping, BEARER))
        ]
        found: dict[EventKey, dict[str, Named]] = {}
        for those in several:
            names = (
                bearers_query(contact.label("contact"), *seen, heard=contact == "heard")
                .where(those)
                .subquery()
            )
            for row in self._connection.execute(_with_failures(names)):
                keys = keys_of(self._grouping, row[len(row) - len(seen) :])
                found.setdefault(rows.key_of(row), {})[row.folded] = Named(
                    folded=row.folded,
                    vm_id=row.vm_id,
                    contact=row.contact,
                    heard_at=row.heard_at,
                    command_source=row.command_source,
                    pulled_at=row.pulled_at,
                    content_hash=row.content_hash,
                    is_over=bool(row.over),
                    name_since=row.name_since,
                    site=row.site,
                    prepares=bool(row.prepares),
                    gave_up_on=row.gave_up_on,
                    is_grouped=bool(keys) and row.contact != "retired",
                )
        return found

    def _of_now(
        self, found: Iterable[Row[Any]]
    ) -> tuple[dict[EventKey, DecisionHistory], dict[EventKey, list[Receipt]]]:
        """Return, for events as they are announced now, what was decided and the receipts that
        count.
        """
        states = {rows.key_of(row): row.state for row in found}
        ids = list(dict.fromkeys(event_id for event_id, _ in states))
        receipts, past = self._receipts(ids)
        decided = decisions.decision_histories(self._connection, ids)
        histories = {
            key: _without_past_decision(
                decided.get(key, UNDECIDED), state, receipts.get(key, ()), past
            )
            for key, state in states.items()
        }
        return histories, receipts

    def _receipts(
        self, event_ids: Sequence[str]
    ) -> tuple[dict[EventKey, list[Receipt]], set[tuple[str, str]]]:
        """Return the receipts of the VMs that each event names by their own reports, the oldest
        first, and the approvals that no longer count, by vmId and jti. An approval no longer counts
        if the event was announced as Scheduled again after the VM had seen it begin or go. Receipts
        for what no VM can continue are left out.
        """
        own = and_(
            report.c.event_id == receipt.c.event_id,
            report.c.vm_id == receipt.c.vm_id,
            report.c.is_own == 1,
        )
        same = and_(event.c.event_id == report.c.event_id, event.c.scope == report.c.scope)
        # The second one is also the end of an approval that a change overtook.
        has_begun = or_(
            receipt.c.state == "confirmed",
            and_(
                receipt.c.state == "failed",
                receipt.c.reason == "imds_unreachable",
                event.c.started_at.is_not(None),
            ),
        )
        is_past = and_(
            has_begun,
            event.c.state == "scheduled",
            report.c.over == 0,
            report.c.first_seen_at <= receipt.c.time,
            report.c.time > receipt.c.time,
        )
        found: dict[EventKey, list[Receipt]] = {}
        past: dict[tuple[str, str], float] = {}
        for few in portions(event_ids):
            columns = (
                report.c.scope.label("of_event"),
                is_past.label("is_past"),
                _lost_at().label("lost_at"),
            )
            query = select(receipt, *columns).join(report, own).join(event, same)
            query = query.join(vm, vm.c.vm_id == receipt.c.vm_id)
            query = query.join(record, record.c.id == receipt.c.record_id, isouter=True)
            # The receipt of a prepare command says nothing about an approval.
            is_approval = func.coalesce(receipt.c.act, "") != "prepare"
            query = query.where(receipt.c.event_id.in_(few), is_approval).order_by(receipt.c.at)
            for row in self._connection.execute(query):
                if row.lost_at is not None and row.lost_at < self._now - LOST_SECONDS:
                    continue
                found_receipt = rows.receipt_of(row)
                found.setdefault(EventKey(row.event_id, row.of_event), []).append(found_receipt)
                if row.is_past:
                    past[(found_receipt.vm_id, found_receipt.facts.jti)] = found_receipt.time
        if past:
            found = {key: _without_past(several, past) for key, several in found.items()}
        return found, set(past)


def _lost_at() -> ColumnElement[Any]:
    """Return the SQL for the time at which it was known that no VM continues what a receipt says
    was begun; NULL if a VM may. None does if the VM is retired, or has another store by which the
    event is still Scheduled.
    """
    is_begun = and_(receipt.c.state.in_(WORKING), event.c.state == "scheduled")
    has_new_store = and_(
        record.c.stream != vm.c.stream, report.c.stream == vm.c.stream, report.c.over == 0
    )
    new = record.alias("of_new_store")
    since = (
        select(func.min(new.c.received_at))
        .where(new.c.vm_id == vm.c.vm_id, new.c.stream == vm.c.stream)
        .correlate(vm)
        .scalar_subquery()
    )
    return case(
        (and_(is_begun, vm.c.retired_at.is_not(None)), vm.c.retired_at),
        # An event that is as it was has a record already, with the id that this store gives it too.
        (and_(is_begun, has_new_store), func.coalesce(since, report.c.time)),
        else_=None,
    )


def _without_past(
    receipts: Iterable[Receipt], past: Mapping[tuple[str, str], float]
) -> list[Receipt]:
    """Return the receipts without those up to the confirmation of an approval that no longer
    counts.
    """
    return [each for each in receipts if each.time > past.get((each.vm_id, each.facts.jti), -1.0)]


def _without_past_decision(
    decided: DecisionHistory,
    event_state: str,
    receipts: Iterable[Receipt],
    past: Collection[tuple[str, str]],
) -> DecisionHistory:
    """Return what was decided, without a decision that ended before the event was announced again:
    its approval no longer counts, or it was overtaken by the start or end of the event.
    """
    last = decided.decision
    if last is None or last.outcome is None:
        return decided
    own = (each for each in decided.commands if each.decision_id == last.id)
    is_past = any((each.vm_id, each.jti) in past for each in own)
    if event_state == "scheduled" and last.outcome == "overtaken":
        actors = {each.facts.actor for each in receipts}
        is_past |= last.outcome_reason not in {*BY_CONSOLE, *actors}
    return replace(decided, decision=None) if is_past else decided


def time_left(known: KnownEvent) -> float:
    """Return the sort value of an open event: started ones first, then by notBefore."""
    if known.event.state == "started":
        return 0.0
    return NEVER if known.event.not_before is None else known.event.not_before


def _time_left() -> ColumnElement[float]:
    c = event.c
    return case((c.state == "started", 0.0), else_=func.coalesce(c.not_before, NEVER))


def _with_failures(names: Subquery) -> Select[Any]:
    """Return the VMs that count, and for which state of its event each one's program gave up."""
    its_failure = and_(
        preparation.c.event_id == names.c.event_id,
        preparation.c.scope == names.c.scope,
        preparation.c.vm_id == names.c.vm_id,
        preparation.c.state == "failed",
        func.coalesce(preparation.c.reason, "").not_in(OF_THE_EVENT),
    )
    return (
        select(preparation.c.fingerprint.label("gave_up_on"), names)
        .outerjoin_from(names, preparation, its_failure)
        .where(names.c.rank == 1)
    )


def _events() -> Select[Any]:
    """Return a query of every event with the report that it is shown by."""
    reported = report.c
    shown = and_(
        reported.event_id == event.c.event_id,
        reported.vm_id == event.c.shown_by,
        reported.scope == event.c.scope,
    )
    columns = [column.label(f"shown_{column.name}") for column in report.columns]
    return select(event, *columns).join(report, shown)


def _shown_of(row: Any) -> LatestReport:
    return rows.report_of(row, prefix="shown_")
