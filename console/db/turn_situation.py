"""One reading of the database from which turns are decided."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal, cast

from sqlalchemy import ColumnElement, Connection, Row, or_, select

from console.db import turns
from console.db.contact import contact_of
from console.db.events import WantedEvents
from console.db.rows import vm_of
from console.db.snapshot import Snapshot
from console.db.tables import preparation, vm
from console.db.upsert import AT_ONCE, portions
from console.fleet.candidates import channel_of
from console.fleet.contact import Contact
from console.fleet.values import Decided, KnownEvent, Vm, folded
from console.turns.away import STARTED
from console.turns.groups import ATTRIBUTES, Group, Grouping, Member
from console.turns.replay import PastEvent
from console.turns.situation import (
    EventFacts,
    Progress,
    Turn,
    TurnSituation,
    VmFacts,
    VmPreparation,
    key_of,
)

_SEEN: Final = (*ATTRIBUTES.values(), "tags")
"""Columns of all that groups see of a VM."""
_RECOVERED: Final = "recovered"


def read_situation(
    snapshot: Snapshot, grouping: Grouping, *, can_sign: bool = True, four_eyes: int = 0
) -> TurnSituation:
    """All that turns are decided from. `four_eyes`: from so many named VMs on a second person is
    needed; 0: never.
    """
    connection = snapshot.connection
    keys = _keys(connection, grouping)
    known = snapshot.events.open()
    found = {each.event_key: each for each in turns.read_turns(connection)}
    said = _preparations(connection, {each.event_id for each in found.values()})
    before = turns.turns_of(connection, {each.event.event_id for each in known})
    events = [_event(each, before, four_eyes=four_eyes) for each in known]
    wanted = {vm_id for each in events for vm_id in each.named} | said.keys()
    wanted |= {one.vm_id for each in found.values() for one in each.holders}
    facts = _vms(snapshot, keys, said, wanted)
    open_keys = {each.key for each in events}
    left = {
        one.event_key: one
        for each in facts.values()
        if each.groups
        for one in each.preparations
        if one.state != _RECOVERED and one.event_key not in open_keys
    }
    for key, one in left.items():
        found.setdefault(key, _leftover(one))
    return TurnSituation(
        groups=grouping.groups(keys),
        vms=facts,
        events={each.key: each for each in events},
        turns=found,
        can_sign=can_sign,
    )


def member_of(known: Vm) -> Member:
    """A VM as groups see it."""
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


def keys_among(
    connection: Connection, grouping: Grouping, vm_ids: Iterable[str]
) -> dict[str, frozenset[str]]:
    """The keys of the groups of some VMs that are not retired, by vmId."""
    found: dict[str, frozenset[str]] = {}
    for few in portions(vm_ids):
        found |= _keys(connection, grouping, vm.c.vm_id.in_(few))
    return found


def _keys(
    connection: Connection, grouping: Grouping, *those: ColumnElement[bool]
) -> dict[str, frozenset[str]]:
    """The keys of the groups of every VM that is not retired, or of `those`, by vmId."""
    columns = [vm.c[name] for name in _SEEN]
    wanted = select(vm.c.vm_id, *columns).where(vm.c.retired_at.is_(None), *those)
    found = {}
    for row in connection.execute(wanted):
        vm_id, *seen = row
        found[vm_id] = grouping.keys(tuple(seen), lambda row=row: _member(row))  # type: ignore[misc]
    return found


def _member(row: Row[Any]) -> Member:
    values = {name: getattr(row, name) or "" for name in _SEEN if name != "tags"}
    return Member(vm_id=row.vm_id, tags=json.loads(row.tags), **values)


def _vms(
    snapshot: Snapshot,
    keys: Mapping[str, frozenset[str]],
    said: Mapping[str, Sequence[VmPreparation]],
    wanted: Collection[str],
) -> dict[str, VmFacts]:
    """The VMs that may be away: those that are not heard, and some that are."""
    contact = contact_of(vm, snapshot.now, snapshot.listening).label("contact")
    there = select(vm, contact).where(vm.c.retired_at.is_(None))
    queries = [there.where(contact.not_in(("heard", "late")))]
    queries += [there.where(vm.c.vm_id.in_(few)) for few in portions(wanted)]
    facts = {}
    for query in queries:
        for row in snapshot.connection.execute(query):
            if row.vm_id not in facts:
                facts[row.vm_id] = _facts(snapshot, row, keys, said)
    return facts


def _facts(
    snapshot: Snapshot,
    row: Row[Any],
    keys: Mapping[str, frozenset[str]],
    said: Mapping[str, Sequence[VmPreparation]],
) -> VmFacts:
    known = vm_of(row)
    heard_until = known.heard_at + snapshot.listening.patience(known.interval)
    channel = channel_of(known.commands, known.pulled_at, snapshot.now, snapshot.listening)
    return VmFacts(
        vm_id=known.vm_id,
        name=known.name,
        groups=keys.get(known.vm_id, frozenset()),
        contact=_contact(row.contact),
        heard_at=known.heard_at,
        contact_since=known.stopped_at or known.lost_at or heard_until,
        prepares=known.prepares,
        takes_commands=channel is not None,
        preparations=said.get(known.vm_id, ()),
    )


def _contact(word: Contact) -> Literal["heard", "late", "silent", "stopped", "learning"]:
    assert word != "retired"  # noqa: S101  # the query leaves them out
    return word


def _event(known: KnownEvent, before: Mapping[turns.Key, Turn], *, four_eyes: int) -> EventFacts:
    event, facts = known.event, known.shown.report
    said = facts.event
    named = known.named.values()
    turn = before.get((event.event_id, event.scope))
    is_ended = turn is not None and turn.fingerprint == facts.fingerprint
    says = {each.says for each in named if each.says is not None and each.contact == "heard"}
    decision = known.decided.decision
    is_left = decision is not None and decision.kind == "leave" and decision.state == "open"
    return EventFacts(
        key=key_of(event.event_id, event.scope),
        event_id=event.event_id,
        scope=event.scope,
        fingerprint=facts.fingerprint,
        status=STARTED if event.state == "started" else said.event_status,
        named=frozenset(each.vm_id for each in named),
        strangers=tuple(n for n in said.resources if folded(n) not in known.named),
        event_type=said.event_type,
        event_source=said.event_source,
        duration=said.duration_in_seconds,
        not_before=event.not_before,
        started_at=known.shown.time if event.state == "started" else None,
        is_left=is_left,
        is_disputed=not facts.is_proven or bool(says - {known.shown.says}),
        needs_two=0 < four_eyes <= len(said.resources),
        ended_by=turn.ended_by if turn is not None and is_ended else None,
        approval=_approval(known.decided, facts.fingerprint),
    )


def _approval(decided: Decided, fingerprint: str) -> Literal["open", "confirmed", "failed"] | None:
    decision = decided.decision
    if decision is None or decision.kind != "approve" or decision.fingerprint != fingerprint:
        return None
    if decision.state != "over":
        return "open" if decision.state == "open" else None
    return "confirmed" if decision.outcome in ("confirmed", "overtaken") else "failed"


def _preparations(
    connection: Connection, event_ids: Iterable[str]
) -> dict[str, tuple[VmPreparation, ...]]:
    """What VMs have said of their preparations, by vmId: of those that have not recovered, and for
    some events.
    """
    c = preparation.c
    ids = sorted(event_ids)[:AT_ONCE]
    wanted = select(preparation).where(or_(c.state != _RECOVERED, c.event_id.in_(ids)))
    found: dict[str, tuple[VmPreparation, ...]] = {}
    for row in connection.execute(wanted):
        one = VmPreparation(
            event_key=key_of(row.event_id, row.scope),
            fingerprint=row.fingerprint,
            state=cast("Progress", row.state),
            at=row.time,
        )
        found[row.vm_id] = (*found.get(row.vm_id, ()), one)
    return found


def _leftover(said: VmPreparation) -> Turn:
    """The turn that an event never had for which a VM has prepared, and that is over."""
    scope, _, event_id = said.event_key.rpartition("\n")
    return Turn(
        event_key=said.event_key,
        event_id=event_id,
        scope=scope,
        fingerprint=said.fingerprint,
        state="waiting",
        since=said.at,
    )


def read_past(
    snapshot: Snapshot, grouping: Grouping, *, since: float
) -> tuple[dict[str, Group], dict[str, VmFacts], list[PastEvent]]:
    """The groups of today, the VMs that events since a moment have named, and these events."""
    keys = _keys(snapshot.connection, grouping)
    known = snapshot.events.over(WantedEvents(since=since))
    wanted = {named.vm_id for each in known for named in each.named.values()}
    past = [_past(each) for each in known if not each.event.is_news]
    return grouping.groups(keys), _vms(snapshot, keys, {}, wanted), past


def _past(known: KnownEvent) -> PastEvent:
    """An event as it was announced, as far as it is known."""
    facts, event = known.shown.report, known.event
    notice = facts.notice_seconds
    not_before = event.not_before
    if not_before is None and notice is not None:  # Azure: NotBefore is blank once it has started
        not_before = event.first_at + notice
    starts = max(event.first_at, not_before or event.first_at)
    measured = facts.downtime_seconds or facts.pause_seconds
    lasted = max(0.0, event.shown_at - starts) if measured is None else measured
    announced = _event(known, {}, four_eyes=0)
    return PastEvent(
        facts=replace(
            announced, status="Scheduled", not_before=not_before, is_disputed=False, is_left=False
        ),
        announced_at=event.first_at,
        seconds=lasted,
    )
