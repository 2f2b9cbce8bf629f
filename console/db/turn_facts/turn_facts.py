"""Reads from the database everything from which turns are decided."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, cast

from sqlalchemy import Connection, and_, or_, select

from console.db.access.tokens import bad_tokens
from console.db.bulk import AT_ONCE
from console.db.decisions import prepare_commands, turn_rows
from console.db.decisions.latest_groups import are_latest
from console.db.schema.tables import preparation
from console.db.snapshot import Snapshot
from console.db.turn_facts.event_facts import event_facts_of, next_approval_times
from console.db.turn_facts.vm_facts import OwnReport, own_reports, pending_reports, read_vm_facts
from console.db.vms.grouping import groups_now
from console.fleet.preparations import OF_THE_EVENT
from console.fleet.values.keys import EventKey
from console.turns.facts import EventFacts, Turn, TurnFacts, VmFacts, VmPreparation
from console.turns.groups import Group, Grouping
from wire.preparation import RECOVERED
from wire.preparation import State as PreparationState

_DIFFER_SECONDS: Final = 120.0
"""How long the documents of two VMs may differ: so long an event waits for its other reporters to
name a VM that reports that it names it.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnSettings:
    """The settings from which turns are decided."""

    grouping: Grouping
    can_sign: bool = False
    """Whether the console has a signing key."""
    four_eyes: int = 0
    """The least number of named VMs for which a second person is needed; 0: never."""
    retaining: frozenset[str] = frozenset()
    """The names of the sources that keep the state documents of VMs."""


def read_turn_facts(snapshot: Snapshot, settings: TurnSettings) -> TurnFacts:
    """Read everything from which turns are decided."""
    grouping = settings.grouping
    connection = snapshot.connection
    every = {each.event_key: each for each in turn_rows.read_turns(connection, of_open_events=True)}
    found = {key: each for key, each in every.items() if each.state != turn_rows.OVER}
    preparations = _preparations(connection, {each.event_id for each in found.values()})
    pending = snapshot.events.open_events_for_turns()
    again = next_approval_times(connection, pending)
    own = own_reports(connection, since=snapshot.now - _DIFFER_SECONDS)
    events = [
        event_facts_of(
            each,
            every,
            four_eyes=settings.four_eyes,
            again_at=again.get(each.event.key),
            started_for=_started_for(own.get(each.event.key, ())),
        )
        for each in pending
    ]
    groups = groups_now(connection, grouping)
    vms = _vm_facts(
        snapshot,
        settings,
        groups,
        preparations,
        events=events,
        turns=found.values(),
        reporters={each.vm_id for reports in own.values() for each in reports},
    )
    events = [_with_dispute(each, own.get(each.key, ()), vms, snapshot.now) for each in events]
    for one in _leftovers(vms.values(), {each.key for each in events}):
        found.setdefault(one.event_key, _leftover(one))
    actors = [*(each.actor for each in found.values()), *(each.first_actor for each in events)]
    return TurnFacts(
        groups=groups,
        vms=vms,
        events={each.key: each for each in events},
        turns=found,
        followed_until=prepare_commands.followed_until(connection, snapshot.now),
        bad_tokens=bad_tokens(connection, actors, snapshot.now),
        can_sign=settings.can_sign,
        has_latest_groups=are_latest(connection, grouping.hash),
    )


def _vm_facts(
    snapshot: Snapshot,
    settings: TurnSettings,
    groups: Mapping[str, Group],
    preparations: Mapping[str, tuple[VmPreparation, ...]],
    *,
    events: Iterable[EventFacts],
    turns: Iterable[Turn],
    reporters: Collection[str],
) -> dict[str, VmFacts]:
    """Return the facts of the VMs that these events and turns are about, or that prepare, and of
    these `reporters`.
    """
    connection = snapshot.connection
    holding = {one.vm_id for each in turns for one in each.vms}
    wanted = holding.union(preparations, reporters)
    for event in events:
        wanted.update(event.named)
        if event.shown_by is not None:
            wanted.add(event.shown_by)
    asked = prepare_commands.asked_to_prepare(connection, snapshot.now)
    facts = read_vm_facts(
        snapshot,
        settings.grouping,
        groups,
        preparations,
        wanted | asked.keys(),
        retaining=settings.retaining,
    )
    for vm_id in asked.keys() & facts.keys():
        facts[vm_id] = replace(facts[vm_id], asked_for=asked[vm_id])
    reported = pending_reports(connection, holding & facts.keys())
    for vm_id, keys in reported.items():
        facts[vm_id] = replace(facts[vm_id], reported=keys)
    return facts


def _leftovers(vms: Iterable[VmFacts], open_keys: Collection[EventKey]) -> list[VmPreparation]:
    """Return the preparations of VMs of groups for an event that is no longer open, from which the
    VM has not recovered.
    """
    left = {
        one.event_key: one
        for each in vms
        if each.groups
        for one in each.preparations
        if one.state != RECOVERED and one.event_key not in open_keys
    }
    return list(left.values())


def _started_for(reports: Iterable[OwnReport]) -> dict[str, float]:
    return {each.vm_id: each.time for each in reports if each.is_started}


def _with_dispute(
    event: EventFacts, reports: Iterable[OwnReport], vms: Mapping[str, VmFacts], now: float
) -> EventFacts:
    """Return the event as disputed if a heard VM that it does not name, as it is shown, reports
    that it names it: its IMDS may be the first to know. Such a VM holds it up for two minutes at
    most, and only if it has to be prepared or is in a group; one of the event's own groups that
    reports later than what is shown does so until the reports agree.
    """
    groups = {key for vm_id in event.named if vm_id in vms for key in vms[vm_id].groups}

    def holds_up(vm: VmFacts, report: OwnReport) -> bool:
        if report.is_later and not groups.isdisjoint(vm.groups):
            return True
        is_lately = abs(now - report.time) < _DIFFER_SECONDS
        return is_lately and bool(vm.groups or vm.prepares)

    left_out = [
        (vms[each.vm_id], each)
        for each in reports
        if each.vm_id not in event.named and each.vm_id in vms
    ]
    if any(vm.is_heard_or_late and holds_up(vm, report) for vm, report in left_out):
        return replace(event, is_disputed=True)
    return event


def _preparations(
    connection: Connection, event_ids: Iterable[str]
) -> dict[str, tuple[VmPreparation, ...]]:
    """Return the preparations of VMs, by vmId: all for these events, and every other that has not
    recovered.
    """
    c = preparation.c
    # A failure that ends with the state of the event says nothing of that state if it is back.
    is_of_past = and_(c.state == "failed", c.reason.in_(OF_THE_EVENT))
    ids = sorted(event_ids)[:AT_ONCE]
    confirmed = prepare_commands.last_confirmed(connection, ids)
    wanted = select(preparation, is_of_past.label("is_past")).where(
        or_(c.state != RECOVERED, c.event_id.in_(ids))
    )
    found: dict[str, tuple[VmPreparation, ...]] = {}
    for row in connection.execute(wanted):
        key = EventKey(row.event_id, row.scope)
        # A VM that the event had left out is prepared once it says so again.
        asked_at = confirmed.get((key, row.fingerprint, row.vm_id), float("-inf"))
        is_past = row.is_past or (row.left_out_at is not None and asked_at < row.left_out_at)
        one = VmPreparation(
            event_key=key,
            fingerprint="" if is_past else row.fingerprint,
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
