"""Known events: each event with everything that the rows of other tables have of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, func, select

from console.db import rows
from console.db.bulk import portions, rows_in
from console.db.decisions import assignments
from console.db.decisions.latest_groups import are_latest
from console.db.decisions.turn_rows import shown_turns
from console.db.events import named_vms
from console.db.events.current_decisions import current_decisions
from console.db.events.spellings import stored_spellings
from console.db.schema.tables import event, report, resource, vm
from console.fleet.commands import receipts_that_count
from console.fleet.contact import Listening
from console.fleet.event_choice import choose_event
from console.fleet.values.decision import Assignment, DecisionHistory, Receipt
from console.fleet.values.event import OPEN, DisputedReporter, KnownEvent, NamedVm
from console.fleet.values.keys import EventKey
from console.fleet.values.report import LatestReport
from console.fleet.values.turn import EventTurn
from console.turns.groups import Grouping

NO_GROUPS: Final = Grouping(())


def event_query() -> Select[Any]:
    """Return a query of every event with the report that it is shown by."""
    reported = report.c
    shown = and_(
        reported.event_id == event.c.event_id,
        reported.vm_id == event.c.shown_by,
        reported.scope == event.c.scope,
    )
    columns = [column.label(f"shown_{column.name}") for column in report.columns]
    return select(event, *columns).join(report, shown)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Related:
    """What other tables have of some events, by their keys."""

    counts: Mapping[EventKey, tuple[int, int]]
    """How many VMs have reported it, and at least how many versions of it."""
    named: Mapping[EventKey, Mapping[str, NamedVm]]
    """By the key of its name."""
    scopes: Mapping[str, set[str]]
    """By the event's id."""
    decided: Mapping[EventKey, DecisionHistory]
    receipts: Mapping[EventKey, Sequence[Receipt]]
    disputed: Mapping[EventKey, Sequence[DisputedReporter]]
    turns: Mapping[EventKey, EventTurn]
    assigned: Mapping[assignments.Subject, Assignment]
    has_latest_groups: bool


class KnownEvents:
    """Reads known events within one transaction."""

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

    def find_event(self, event_id: str, scope: str | None = None) -> KnownEvent | None:
        """Return the event with this id, in upper or lower case, or None.

        If several scopes have the id and none is given, it is the event whose named VM has been
        known longest.
        """
        return choose_event(self.events_with_id(event_id), scope)

    def events_with_id(self, event_id: str) -> list[KnownEvent]:
        """Return the events with this id, in any case, in every scope."""
        return self.events_with_ids(stored_spellings(self._connection, [event_id]).values())

    def events_with_ids(self, event_ids: Iterable[str]) -> list[KnownEvent]:
        """Return the events with these ids in every scope, open or over."""
        found: list[KnownEvent] = []
        for portion in portions(event_ids):
            found += self.read(event_query().where(event.c.event_id.in_(portion)))
        return found

    def events_by_key(self, keys: Iterable[EventKey]) -> dict[EventKey, KnownEvent]:
        """Return those of these events that exist, by key."""
        wanted = set(keys)
        found = self.events_with_ids({event_id for event_id, _ in wanted})
        return {each.event.key: each for each in found if each.event.key in wanted}

    def in_order_of(self, found: Iterable[Row[Any]]) -> list[KnownEvent]:
        """Return the events of these ids and scopes, in the same order."""
        keys = [rows.key_of(row) for row in found]
        known = self.events_by_key(keys)
        return [known[key] for key in keys if key in known]

    def open_events_for_turns(self) -> list[KnownEvent]:
        """Return the open events as turns need them: without what only pages show."""
        is_open = event.c.state.in_(OPEN)
        found = self._connection.execute(event_query().where(is_open)).all()
        names = self._named_vms([is_open])
        decided, receipts = self._current_decisions(found)
        return [
            KnownEvent(
                event=rows.event_of(row),
                shown=_shown_of(row),
                seen_by=0,
                reports_differ=False,
                named=names.get(rows.key_of(row), {}),
                receipts=receipts.get(rows.key_of(row), ()),
                decided=decided[rows.key_of(row)],
            )
            for row in found
        ]

    def askable_events(self) -> list[KnownEvent]:
        """Return scheduled events about which a VM can be asked: one that is heard, is named by the
        event, has reported it, and takes commands.
        """
        keys = named_vms.keys_of_askable(self._connection, self._now, self._listening)
        return list(self.events_by_key(keys).values())

    def read(self, query: Select[Any]) -> list[KnownEvent]:
        """Return the events of a query, in its order, with what other tables have of them."""
        found = self._connection.execute(query).all()
        related = self._related(found)
        return [self._known_event(row, related) for row in found]

    def _related(self, found: Sequence[Row[Any]]) -> _Related:
        """Return what other tables have of the events in these rows."""
        ids = [row.event_id for row in found]
        connection = self._connection
        decided, receipts = self._current_decisions(found)
        return _Related(
            counts=self._counts(ids),
            named=self._named_vms(resource.c.event_id.in_(portion) for portion in portions(ids)),
            scopes=self._scopes(ids),
            decided=decided,
            receipts=receipts,
            disputed=self._disputes(ids),
            turns=shown_turns(connection, ids),
            assigned=assignments.assignments_of(connection, assignments.EVENT, ids, self._now),
            has_latest_groups=are_latest(connection, self._grouping.hash),
        )

    def _known_event(self, row: Row[Any], related: _Related) -> KnownEvent:
        key = rows.key_of(row)
        seen_by, versions = related.counts.get(key, (0, 0))
        decision = related.decided[key]
        named = related.named.get(key, {})
        return KnownEvent(
            event=rows.event_of(row),
            shown=_shown_of(row),
            seen_by=seen_by,
            reports_differ=versions > 1,
            named=named,
            receipts=receipts_that_count(
                related.receipts.get(key, ()),
                named,
                decision.commands,
                scheduled_at=self._now if row.state == "scheduled" else None,
            ),
            decided=decision,
            other_scopes=tuple(sorted(related.scopes.get(row.event_id, set()) - {row.scope})),
            disputed=tuple(related.disputed.get(key, ())),
            turn=related.turns.get(key),
            assigned=related.assigned.get(assignments.Subject(*key)),
            has_latest_groups=related.has_latest_groups,
        )

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

    def _disputes(self, event_ids: Sequence[str]) -> dict[EventKey, list[DisputedReporter]]:
        """Return the VMs in conflict that have reported each event; these VMs are few, so they are
        read first.
        """
        found: dict[EventKey, list[DisputedReporter]] = {}
        in_conflict = select(vm.c.vm_id, vm.c.name).where(vm.c.conflict_at.is_not(None))
        names = {row.vm_id: row.name for row in self._connection.execute(in_conflict)}
        if not names:
            return found
        c = report.c
        for portion in portions(event_ids):
            query = select(c.event_id, c.scope, c.vm_id).where(c.event_id.in_(portion))
            for row in rows_in(self._connection, query.order_by(c.vm_id), c.vm_id, names):
                several = found.setdefault(rows.key_of(row), [])
                several.append(DisputedReporter(row.vm_id, names[row.vm_id]))
        return found

    def _scopes(self, event_ids: Sequence[str]) -> dict[str, set[str]]:
        """Return, for each event id, the scopes that have an event with it."""
        found: dict[str, set[str]] = {}
        query = select(event.c.event_id, event.c.scope)
        for event_id, scope in rows_in(self._connection, query, event.c.event_id, event_ids):
            found.setdefault(event_id, set()).add(scope)
        return found

    def _named_vms(
        self, conditions: Iterable[ColumnElement[bool]]
    ) -> dict[EventKey, dict[str, NamedVm]]:
        """Return the VMs that events name, by event and by the key of their name."""
        return named_vms.named_vms(
            self._connection, conditions, self._now, self._listening, self._grouping
        )

    def _current_decisions(
        self, found: Iterable[Row[Any]]
    ) -> tuple[dict[EventKey, DecisionHistory], dict[EventKey, list[Receipt]]]:
        """Return, for rows of events, what was decided on them, and the receipts that count."""
        states = {rows.key_of(row): row.state for row in found}
        return current_decisions(self._connection, states, self._now)


def _shown_of(row: Any) -> LatestReport:
    return rows.report_of(row, prefix="shown_")
