"""One reading of the database from which turns are decided."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, cast

from sqlalchemy import Connection, or_, select

from console.config.groups import GroupSettings
from console.db import turns
from console.db.contact import contact_of
from console.db.rows import vm_of
from console.db.snapshot import Snapshot
from console.db.tables import preparation, vm
from console.db.upsert import AT_ONCE
from console.fleet.contact import Contact
from console.fleet.reporters import channel_of
from console.fleet.values import Decided, KnownEvent, Vm, folded
from console.turns.away import STARTED
from console.turns.groups import Member, groups_of, keys_of
from console.turns.situation import (
    EventFacts,
    Preparation,
    Progress,
    Situation,
    Turn,
    VmFacts,
    key_of,
)

_RECOVERED: Final = "recovered"


def read_situation(
    snapshot: Snapshot,
    rules: Sequence[GroupSettings],
    *,
    can_sign: bool = True,
    four_eyes: int = 0,
) -> Situation:
    """All that turns are decided from; the groups are those of `rules`. `four_eyes`: from so many
    named VMs on a second person is needed; 0: never.
    """
    connection = snapshot.connection
    known = snapshot.events.open()
    found = {each.event_key: each for each in turns.read_turns(connection)}
    said = _preparations(connection, {each.event_id for each in found.values()})
    members, facts = _vms(snapshot, rules, said)
    before = turns.turns_of(connection, {each.event.event_id for each in known})
    events = [_event(each, before, four_eyes=four_eyes) for each in known]
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
    return Situation(
        groups=groups_of(rules, members),
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


def _vms(
    snapshot: Snapshot,
    rules: Sequence[GroupSettings],
    said: Mapping[str, Sequence[Preparation]],
) -> tuple[list[Member], dict[str, VmFacts]]:
    """Every VM that is not retired."""
    now, listening = snapshot.now, snapshot.listening
    contact = contact_of(vm, now, listening).label("contact")
    members, facts = [], {}
    for row in snapshot.connection.execute(select(vm, contact).where(vm.c.retired_at.is_(None))):
        known = vm_of(row)
        member = member_of(known)
        members.append(member)
        heard_until = known.heard_at + listening.patience(known.interval)
        since = known.stopped_at or known.lost_at or heard_until
        channel = channel_of(known.commands, known.pulled_at, now, listening)
        facts[known.vm_id] = VmFacts(
            vm_id=known.vm_id,
            name=known.name,
            site=known.site,
            groups=keys_of(rules, member),
            contact=_contact(row.contact),
            heard_at=known.heard_at,
            contact_since=since,
            prepares=known.prepares,
            takes_commands=channel is not None,
            preparations=said.get(known.vm_id, ()),
        )
    return members, facts


def _contact(word: Contact) -> Literal["heard", "late", "silent", "stopped", "learning"]:
    assert word != "retired"  # noqa: S101  # the query leaves them out
    return word


def _event(known: KnownEvent, before: Mapping[turns.Key, Turn], *, four_eyes: int) -> EventFacts:
    event, facts = known.event, known.shown.facts
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
) -> dict[str, tuple[Preparation, ...]]:
    """What VMs have said of their preparations, by vmId: of those that have not recovered, and for
    some events.
    """
    c = preparation.c
    ids = sorted(event_ids)[:AT_ONCE]
    wanted = select(preparation).where(or_(c.state != _RECOVERED, c.event_id.in_(ids)))
    found: dict[str, tuple[Preparation, ...]] = {}
    for row in connection.execute(wanted):
        one = Preparation(
            event_key=key_of(row.event_id, row.scope),
            fingerprint=row.fingerprint,
            state=cast("Progress", row.state),
            at=row.time,
        )
        found[row.vm_id] = (*found.get(row.vm_id, ()), one)
    return found


def _leftover(said: Preparation) -> Turn:
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
