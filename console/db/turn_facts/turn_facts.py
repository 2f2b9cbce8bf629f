"""Reads from the database everything from which turns are decided."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, cast

from sqlalchemy import ColumnElement, Connection, Row, and_, or_, select

from console.db.bulk import AT_ONCE, portions, rows_in
from console.db.decisions import prepare_commands, turns
from console.db.decisions.decisions import approval_counts
from console.db.events.event_filters import WantedEvents
from console.db.events.event_lists import ENDED
from console.db.schema.tables import event, preparation, report, vm
from console.db.snapshot import Snapshot
from console.db.vms.contact import contact_of
from console.db.vms.grouping import columns_of, groups_now, keys_of
from console.fleet.candidates import channel_of
from console.fleet.commands import working
from console.fleet.contact import DEFAULT_INTERVAL_SECONDS, INTERVALS, Contact
from console.fleet.outcomes import BY_CONSOLE
from console.fleet.preparations import OF_THE_EVENT
from console.fleet.values.decision import Receipt
from console.fleet.values.event import KnownEvent
from console.fleet.values.keys import EventKey, folded
from console.fleet.values.vm import Vm
from console.turns.away import STARTED
from console.turns.facts import (
    EventFacts,
    Turn,
    TurnFacts,
    VmFacts,
    VmPreparation,
)
from console.turns.groups import Group, Grouping, Member
from console.turns.replay import ReplayedEvent
from wire.preparation import RECOVERED
from wire.preparation import State as PreparationState

_FACTS: Final = (
    "vm_id",
    "name",
    "heard_at",
    "interval",
    "stopped_at",
    "lost_at",
    "prepares",
    "command_source",
    "pulled_at",
)
"""The columns of a VM from which turns are decided."""
_AHEAD_SECONDS: Final = 30.0
"""How far the clocks of two consoles on one database may differ, and more."""
_LATE_INTERVALS: Final = INTERVALS / 2
"""How many heartbeat intervals a VM may send nothing until it may be gone."""
_FIRST_PAUSE_SECONDS: Final = 60.0
"""The pause before an event is approved again for the first time."""
_MOST_DOUBLINGS: Final = 5
_MAY_PASS: Final = (
    "no_answer",
    "expired",
    "not_yet_valid",
    "rate_limited",
    "unknown_event",
    "event_changed",
    "changed",
)
"""The reasons of a failed approval after which no VM acts on it, and another may succeed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnSettings:
    """The settings from which turns are decided."""

    grouping: Grouping
    can_sign: bool = False
    """Whether the console has a signing key."""
    four_eyes: int = 0
    """The least number of named VMs for which a second person is needed; 0: never."""


def read_turn_facts(snapshot: Snapshot, settings: TurnSettings) -> TurnFacts:
    """Read everything from which turns are decided."""
    grouping = settings.grouping
    connection = snapshot.connection
    every = {each.event_key: each for each in turns.read_turns(connection, of_open_events=True)}
    found = {key: each for key, each in every.items() if each.state != turns.OVER}
    preparations = _preparations(connection, {each.event_id for each in found.values()})
    pending = snapshot.events.open_events_for_turns()
    again = _again_at(connection, pending)
    events = [
        _event(each, every, four_eyes=settings.four_eyes, again_at=again.get(each.event.key))
        for each in pending
    ]
    wanted = {vm_id for each in events for vm_id in each.named} | preparations.keys()
    holding = {one.vm_id for each in found.values() for one in each.vms}
    wanted |= holding
    wanted |= {each.shown_by for each in events if each.shown_by is not None}
    asked = prepare_commands.asked_to_prepare(connection, snapshot.now)
    facts = _vms(snapshot, grouping, preparations, wanted | asked.keys())
    for vm_id in asked.keys() & facts.keys():
        facts[vm_id] = replace(facts[vm_id], asked_for=asked[vm_id])
    reported = _reported(connection, holding & facts.keys())
    for vm_id, keys in reported.items():
        facts[vm_id] = replace(facts[vm_id], reported=keys)
    open_keys = {each.key for each in events}
    left = {
        one.event_key: one
        for each in facts.values()
        if each.groups
        for one in each.preparations
        if one.state != RECOVERED and one.event_key not in open_keys
    }
    for key, one in left.items():
        found.setdefault(key, _leftover(one))
    return TurnFacts(
        groups=groups_now(connection, grouping),
        vms=facts,
        events={each.key: each for each in events},
        turns=found,
        followed_until=prepare_commands.followed_until(connection, snapshot.now),
        can_sign=settings.can_sign,
    )


def member_of(known: Vm) -> Member:
    """Return a VM as groups see it."""
    return Member(
        vm_id=known.vm_id,
        name=known.name,
        site=known.site,
        location=known.location or "",
        zone=known.zone or "",
        scale_set=known.scale_set or "",
        resource_group=known.resource_group or "",
        tags=known.tags,
    )


def _vms(
    snapshot: Snapshot,
    grouping: Grouping,
    preparations: Mapping[str, Sequence[VmPreparation]],
    wanted: Collection[str],
) -> dict[str, VmFacts]:
    """Return the VMs that may be away: those that are late or not heard, and those in `wanted`."""
    contact = contact_of(vm, snapshot.now, snapshot.listening).label("contact")
    columns: list[ColumnElement[Any]] = [vm.c[name] for name in _FACTS]
    there: Any = select(*columns, contact, *columns_of(grouping, vm)).where(
        vm.c.retired_at.is_(None)
    )
    is_ahead = vm.c.heard_at > snapshot.now + _AHEAD_SECONDS
    queries = [there.where(or_(contact != "heard", is_ahead))]
    queries += [there.where(vm.c.vm_id.in_(few)) for few in portions(wanted)]
    found = {
        row.vm_id: row for query in queries for row in snapshot.connection.execute(query).all()
    }
    late = [row.vm_id for row in found.values() if row.contact == "late"]
    missed = _missed_ends(snapshot.connection, late)
    return {
        vm_id: _facts(snapshot, row, grouping, preparations, missed.get(vm_id))
        for vm_id, row in found.items()
    }


def _missed_ends(connection: Connection, late: Iterable[str]) -> dict[str, EventKey]:
    """Return the key of an event whose end a VM has missed, by vmId: the VM still reports it as
    pending, and others have reported its end. VMs without such an event are left out.
    """
    r, e = report.c, event.c
    same = and_(e.event_id == r.event_id, e.scope == r.scope)
    missed = (
        select(r.vm_id, r.event_id, r.scope)
        .join(event, same)
        .where(r.over == 0, r.is_own == 1, e.state == ENDED, e.is_news == 0)
    )
    found = {}
    for few in portions(late):
        for row in connection.execute(missed.where(r.vm_id.in_(few))):
            found[row.vm_id] = EventKey(row.event_id, row.scope)
    return found


def _reported(connection: Connection, vm_ids: Iterable[str]) -> dict[str, frozenset[EventKey]]:
    """Return the keys of the events that VMs report as pending and that name them, by vmId. What a
    VM reported before its store was made again does not count: it may report no end of that.
    """
    r = report.c
    same_store = and_(vm.c.vm_id == r.vm_id, vm.c.stream == r.stream)
    own = (
        select(r.vm_id, r.event_id, r.scope).join(vm, same_store).where(r.over == 0, r.is_own == 1)
    )
    found: dict[str, frozenset[EventKey]] = {}
    for row in rows_in(connection, own, r.vm_id, vm_ids):
        key = EventKey(row.event_id, row.scope)
        found[row.vm_id] = found.get(row.vm_id, frozenset()) | {key}
    return found


def _facts(
    snapshot: Snapshot,
    row: Row[Any],
    grouping: Grouping,
    preparations: Mapping[str, Sequence[VmPreparation]],
    missed_end: EventKey | None,
) -> VmFacts:
    # The clock was set back since it was heard: how long ago that was is not known.
    is_ahead = row.contact in ("heard", "late") and row.heard_at > snapshot.now + _AHEAD_SECONDS
    due_at = row.heard_at + _LATE_INTERVALS * (row.interval or DEFAULT_INTERVAL_SECONDS)
    is_due = row.contact == "late" and snapshot.now <= due_at
    heard_until = row.heard_at + snapshot.listening.silent_time.of(row.interval)
    channel = channel_of(row.command_source, row.pulled_at, snapshot.now, snapshot.listening)
    return VmFacts(
        vm_id=row.vm_id,
        name=row.name,
        groups=keys_of(grouping, row[len(_FACTS) + 1 :]),
        contact=_contact("learning" if is_ahead else "heard" if is_due else row.contact),
        heard_at=row.heard_at,
        contact_since=row.stopped_at or row.lost_at or heard_until,
        prepares=bool(row.prepares),
        # Only heartbeats and the MQTT status say whether it prepares; records of events do not.
        has_said=bool(row.prepares) or row.interval is not None or row.command_source is not None,
        takes_commands=channel is not None,
        missed_end=missed_end,
        preparations=preparations.get(row.vm_id, ()),
    )


def _contact(word: Contact) -> Literal["heard", "late", "silent", "stopped", "learning"]:
    assert word != "retired"  # noqa: S101  # the query leaves them out
    return word


def _event(
    known: KnownEvent,
    before: Mapping[EventKey, Turn],
    *,
    four_eyes: int = 0,
    again_at: float | None = None,
) -> EventFacts:
    event = known.event
    facts = known.shown.report
    reported = facts.event
    named = known.named.values()
    turn = before.get(event.key)
    is_ended = turn is not None and turn.fingerprint == facts.fingerprint
    there = [each for each in named if each.contact != "retired"]
    names = {each.folded for each in there}
    contents = {each.content_hash for each in named if each.contact == "heard"} - {None}
    decision = known.decided.decision
    is_left = decision is not None and decision.kind == "leave" and decision.state == "open"
    # Another VM may report the event too, with other names: its word holds up no turn.
    receipts = [each for each in known.receipts if each.vm_id in {one.vm_id for one in there}]
    return EventFacts(
        key=event.key,
        fingerprint=facts.fingerprint,
        status=STARTED if event.state == "started" else reported.event_status,
        named=frozenset(each.vm_id for each in there),
        reported_by=frozenset(each.vm_id for each in there if each.content_hash is not None),
        shown_by=event.shown_by,
        unknown_names=tuple(n for n in reported.resources if folded(n) not in names),
        reported=reported,
        not_before=event.not_before,
        started_at=known.shown.time if event.state == "started" else None,
        is_left=is_left,
        is_disputed=not facts.is_proven or bool(contents - {known.shown.content_hash}),
        needs_two=0 < four_eyes <= len(reported.resources),
        has_first=_has_first(known),
        ended_by=turn.ended_by if turn is not None and is_ended else None,
        approval=_approval(known),
        again_at=again_at,
        may_begin=bool(working(receipts)) or any(map(_may_begin, receipts)),
    )


def _has_first(known: KnownEvent) -> bool:
    """Check whether the first of two persons has approved this state of the event, and the second
    has not.
    """
    decision = known.decided.decision
    if decision is None or decision.kind != "approve" or decision.state != "second":
        return False
    return decision.fingerprint == known.shown.report.fingerprint


def _may_begin(receipt: Receipt) -> bool:
    """Check whether a receipt says that Azure may have received the approval. After `expired` it
    has not: the bridge gives up for that reason only before a request can have worked.
    """
    state, reason = receipt.facts.state, receipt.facts.reason
    return state in ("posted", "confirmed") or (state, reason) == ("failed", "imds_unreachable")


def _approval(known: KnownEvent) -> Literal["open", "confirmed", "failed"] | None:
    """Return the state of the newest approval of this state of the event; one by a rule or on a VM
    counts too if it came before the console's.
    """
    decision = known.decided.decision
    if decision is None or decision.kind != "approve":
        return None
    if decision.fingerprint != known.shown.report.fingerprint:
        return None
    if decision.state != "over":
        return "open" if decision.state == "open" else None
    if decision.outcome == "overtaken" and decision.outcome_reason not in BY_CONSOLE:
        others = [each for each in known.receipts if each.facts.actor == decision.outcome_reason]
        if working(others):
            return "open"
        has_failed = others and all(each.facts.state != "confirmed" for each in others)
        return "failed" if has_failed else "confirmed"
    return "confirmed" if decision.outcome == "confirmed" else "failed"


def _again_at(connection: Connection, pending: Iterable[KnownEvent]) -> dict[EventKey, float]:
    """Return when events whose approval failed for a reason that may pass may be approved again, by
    key: after a pause that doubles each time.
    """
    failed = {
        each.event.key: decision
        for each in pending
        if (decision := each.decided.decision) is not None
        and decision.over_at is not None
        and decision.outcome_reason in _MAY_PASS
    }
    tries = approval_counts(connection, (key.event_id for key in failed))
    return {
        key: (each.over_at or 0.0)
        + _FIRST_PAUSE_SECONDS * 2 ** min(tries[(*key, each.fingerprint)] - 1, _MOST_DOUBLINGS)
        for key, each in failed.items()
    }


def _preparations(
    connection: Connection, event_ids: Iterable[str]
) -> dict[str, tuple[VmPreparation, ...]]:
    """Return the preparations of VMs, by vmId: all for these events, and every other that has not
    recovered.
    """
    c = preparation.c
    # A failure that ends with the state of the event says nothing of that state if it is back.
    is_past = and_(c.state == "failed", c.reason.in_(OF_THE_EVENT))
    ids = sorted(event_ids)[:AT_ONCE]
    wanted = select(preparation, is_past.label("is_past")).where(
        or_(c.state != RECOVERED, c.event_id.in_(ids))
    )
    found: dict[str, tuple[VmPreparation, ...]] = {}
    for row in connection.execute(wanted):
        one = VmPreparation(
            event_key=EventKey(row.event_id, row.scope),
            fingerprint="" if row.is_past else row.fingerprint,
            state=cast("PreparationState", row.state),
            at=row.time,
        )
        found[row.vm_id] = (*found.get(row.vm_id, ()), one)
    return found


def _leftover(preparation: VmPreparation) -> Turn:
    """Return a turn for an ended event that never had one, and for which a VM has prepared."""
    return Turn(
        event_key=preparation.event_key,
        fingerprint=preparation.fingerprint,
        state="waiting",
        since=preparation.at,
    )


def read_past(
    snapshot: Snapshot, grouping: Grouping, *, since: float
) -> tuple[dict[str, Group], dict[str, VmFacts], list[ReplayedEvent]]:
    """Return today's groups, the VMs that events since a moment have named, and these events."""
    groups = groups_now(snapshot.connection, grouping)
    known = snapshot.event_lists.ended_events(WantedEvents(since=since))
    wanted = {named.vm_id for each in known for named in each.named.values()}
    past = [_past(each) for each in known if not each.event.is_news]
    return groups, _vms(snapshot, grouping, {}, wanted), past


def _past(known: KnownEvent) -> ReplayedEvent:
    """Return an event as it was announced, as far as that is known."""
    facts = known.shown.report
    event = known.event
    notice = facts.notice_seconds
    not_before = event.not_before
    if not_before is None and notice is not None:  # Azure: NotBefore is blank once it has started
        not_before = event.first_seen_at + notice
    starts = max(event.first_seen_at, not_before or event.first_seen_at)
    measured = facts.downtime_seconds or facts.pause_seconds
    lasted = max(0.0, event.shown_at - starts) if measured is None else measured
    announced = _event(known, {})
    return ReplayedEvent(
        facts=replace(
            announced,
            status="Scheduled",
            not_before=not_before,
            is_disputed=False,
            is_left=False,
            reported_by=None,
        ),
        announced_at=event.first_seen_at,
        seconds=lasted,
    )
