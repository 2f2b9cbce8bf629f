"""The transaction of turns: read everything, and write what follows from it.

A turn is taken, moved on and ended while other writers wait, so any number of consoles never
release more VMs of a group than it allows. Nothing here signs or sends.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import uuid4

from sqlalchemy import Connection

from console.access.people import Person
from console.approvals.command_sender import Outgoing, outgoing
from console.approvals.request_transaction import DecisionResult, RequestTransaction
from console.approvals.requests import DecisionRequest
from console.approvals.turn_requests import TurnSettings, situation_of
from console.audit import log
from console.db import decisions, turns
from console.db.snapshot import Snapshot
from console.db.transactions import newest_number
from console.fleet.candidates import PULL, channel_of
from console.fleet.commands import REPLAYED, own_receipts
from console.fleet.decisions import MAX_REASON
from console.fleet.values import Command, EventKey, Receipt
from console.turns.changes import changed_turns, moved
from console.turns.plan import Move, Plan, Take
from console.turns.returns import ANSWER_SECONDS
from console.turns.schedule import plan
from console.turns.situation import EventFacts, Turn, TurnSituation
from console.turns.transitions import Trigger

AGAIN_SECONDS: Final = 10.0
"""A prepare command that was not answered is sent again after this time."""
_MAX_CHANGES: Final = 12
"""The limit of changes of one turn in one step."""
_MAX_SECONDS: Final = 300.0
"""The longest time between two commands to a VM that refuses them."""
_ASK_AGAIN_REASONS: Final = (
    "unknown_event",
    "expired",
    "not_yet_valid",
    "rate_limited",
    "event_changed",
)
"""The reasons for which a VM refuses a command, and may accept the next one."""


@dataclass(slots=True, kw_only=True)
class TurnsResult:
    """What a step has written, and what is to be sent after the commit."""

    has_changed: bool = False
    outgoing: list[Outgoing] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What one reading of turns has found."""

    number: int
    """The newest transaction that it has read."""
    heard: Mapping[str, float]
    """When each VM was last heard whose next message may end a turn, by vmId: it holds the turn of
    an event that is over.
    """
    has_work: bool
    """Whether `step` would write anything now."""


def look(snapshot: Snapshot, settings: TurnSettings, connected: Collection[str]) -> Look:
    """Read whether `step` would write anything now."""
    connection = snapshot.connection
    number = newest_number(connection)
    is_open = turns.is_anything_open if settings.grouping.rules else turns.is_any_turn_open
    if not is_open(connection):
        return Look(number=number, heard={}, has_work=False)
    situation = situation_of(snapshot, settings)
    over = (each for each in situation.turns.values() if each.is_held and each.over_at is not None)
    holders = {vm_id for turn in over for vm_id in turn.vm_ids}
    todo = plan(situation, snapshot.now)
    return Look(
        number=number,
        heard={vm_id: situation.vms[vm_id].heard_at for vm_id in holders & situation.vms.keys()},
        has_work=bool(
            todo.approvals
            or changed_turns(situation, todo, snapshot.now)
            or _due(snapshot, situation, todo, connected)
        ),
    )


def is_current(connection: Connection, before: Look) -> bool:
    """Check whether a look is still valid, because nothing that concerns turns was written since.
    Most transactions have only heartbeats, and a heartbeat counts only if it may end a turn. What
    follows from time alone needs another look.
    """
    return not turns.has_changed(connection, before.number, before.heard)


def step(
    snapshot: Snapshot,
    number: int,
    settings: TurnSettings,
    decide: RequestTransaction,
    connected: Collection[str],
) -> TurnsResult:
    """Write what follows from the newest rows. `connected` names the connected sources of this
    console.
    """
    found = _changes(situation_of(snapshot, settings), snapshot.now)
    situation, todo, changed = found.situation, found.plan, found.turns
    written = TurnsResult(has_changed=bool(changed))
    for take in found.takes:
        _audit_taken(snapshot, changed[take.event_key], situation)
    for key in todo.approvals:
        turn = situation.turns[key]
        made = _approve(decide, turn)
        if made.refused is not None and turn.reason != str(made.refused):
            written.has_changed = True
            changed[key] = replace(turn, reason=str(made.refused))
        if made.jti is not None:
            written.has_changed = True
            event = situation.events[key]
            sent = Move(event_key=key, trigger=Trigger.APPROVED)
            changed[key] = moved(turn, sent, event, snapshot.now)
            if made.outgoing is not None:
                written.outgoing.append(made.outgoing)
    turns.put_turns(snapshot.connection, changed.values(), number)
    for wanted in _due(snapshot, situation, todo, connected):
        written.has_changed = True
        prepare = _write_command(snapshot, wanted, number)
        if prepare is not None:
            written.outgoing.append(prepare)
    return written


@dataclass(slots=True, kw_only=True)
class _Changes:
    """How far turns go without a command or an approval."""

    situation: TurnSituation
    """With the changed turns."""
    plan: Plan
    """What is to be done then."""
    takes: list[Take] = field(default_factory=list)
    """The turns that were given."""
    turns: dict[EventKey, Turn] = field(default_factory=dict)
    """All turns that have changed, by the key of their event."""


def _changes(situation: TurnSituation, now: float) -> _Changes:
    """Change turns until only a command or an approval could change more: a turn ends, and the next
    one is taken and prepared.
    """
    found = _Changes(situation=situation, plan=plan(situation, now))
    for _ in range(_MAX_CHANGES):
        further = changed_turns(found.situation, found.plan, now)
        if not further:
            break
        found.takes += found.plan.takes
        found.turns |= further
        known = {**found.situation.turns, **further}
        still = {key: turn for key, turn in known.items() if turn.state != turns.OVER}
        found.situation = replace(found.situation, turns=still)
        found.plan = plan(found.situation, now)
    return found


def _approve(decide: RequestTransaction, turn: Turn) -> DecisionResult:
    """Approve an event whose VMs are prepared, in the name of the actor that took its turn."""
    actor = turn.by or ""
    request = DecisionRequest(
        what="approve",
        person=Person(name=actor, roles=frozenset({"approver"}), is_token=turn.is_by_group),
        event_id=turn.event_id,
        fingerprint=turn.fingerprint,
        reason=_reason(turn),
        scope=turn.event_key.scope,
    )
    return decide.approve_in_turn(request)


def _reason(turn: Turn) -> str:
    """Return the reason of the person, or the groups whose turn it is. The key of a group may hold
    characters from the tag of a VM: only printable ones are kept.
    """
    text = turn.asked or f"its turn in {', '.join(turn.groups)}"
    return "".join(each for each in text if each.isprintable())[:MAX_REASON]


# Prepare commands


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """A prepare command that is to be sent now. `is_new`: it was never sent."""

    command: Command
    is_new: bool


def _due(
    snapshot: Snapshot, situation: TurnSituation, todo: Plan, connected: Collection[str]
) -> list[_Wanted]:
    """Return the prepare commands that are to be sent now, over channels that this console has."""
    if not todo.prepares or not situation.can_sign:
        return []
    connection = snapshot.connection
    now = snapshot.now
    events = {key: situation.events[key] for key, _ in todo.prepares}
    before, counts = turns.prepare_commands(connection, {e.event_id for e in events.values()})
    receipts = decisions.receipts_of(connection, [each.jti for each in before.values()])
    vms = {each.vm.vm_id: each.vm for each in snapshot.vms.some({v for _, v in todo.prepares})}
    found = []
    for key, vm_id in todo.prepares:
        event = events[key]
        vm = vms.get(vm_id)
        turn = situation.turns[key]
        if vm is None:
            continue
        channel = channel_of(vm.commands, vm.pulled_at, now, snapshot.listening)
        if channel is None or (channel != PULL and channel not in connected):
            continue
        last = before.get((event.key, event.fingerprint, vm_id))
        tries = counts.get((event.key, event.fingerprint, vm_id), 0)
        preparation = situation.vms[vm_id].preparation(key)
        wanted = _next_command(
            last,
            receipts,
            event,
            turn,
            vm_id=vm_id,
            channel=channel,
            now=now,
            patience=min(AGAIN_SECONDS * 2 ** max(0, tries - 1), _MAX_SECONDS),
            is_preparing=preparation is not None and preparation.state == "preparing",
        )
        if wanted is not None:
            found.append(wanted)
    return found


def _next_command(
    last: Command | None,
    receipts: Sequence[Receipt],
    event: EventFacts,
    turn: Turn,
    *,
    vm_id: str,
    channel: str,
    now: float,
    patience: float,
    is_preparing: bool,
) -> _Wanted | None:
    """Return the command that is to be sent now to a VM that has not prepared, or None if one was
    sent lately or answered.

    After a refusal for a reason that may pass, the next one waits for `patience` seconds. A VM that
    accepted a command and does not report for `ANSWER_SECONDS` that it is preparing may have lost
    it: it is asked again.
    """
    expires_at = float(int(now) + turns.COMMAND_SECONDS)
    if last is None:
        return _Wanted(command=_command(event, turn, vm_id, channel, now), is_new=True)
    if now < last.expires_at - turns.COMMAND_SECONDS + AGAIN_SECONDS:
        return None
    if last.made_at < turn.since:  # it was made when the turn was in this state before
        return _Wanted(command=_command(event, turn, vm_id, channel, now), is_new=True)
    answers = [one for one in own_receipts(last, receipts) if one.facts.reason != REPLAYED]
    if not answers:
        again = replace(last, channel=channel, expires_at=expires_at, sent_at=None)
        return _Wanted(command=again, is_new=False)
    newest = answers[-1].facts
    age = now - last.made_at
    may_pass = newest.state in ("rejected", "failed") and newest.reason in _ASK_AGAIN_REASONS
    is_lost = newest.state in ("accepted", "confirmed") and not is_preparing
    if (may_pass and age >= patience) or (is_lost and age >= ANSWER_SECONDS):
        return _Wanted(command=_command(event, turn, vm_id, channel, now), is_new=True)
    return None


def _command(event: EventFacts, turn: Turn, vm_id: str, channel: str, now: float) -> Command:
    return Command(
        jti=str(uuid4()),
        decision_id="",
        event_id=event.event_id,
        scope=event.key.scope,
        fingerprint=event.fingerprint,
        vm_id=vm_id,
        channel=channel,
        subject=turn.by or "",
        reason=_reason(turn),
        made_at=now,
        expires_at=float(int(now) + turns.COMMAND_SECONDS),
        act=decisions.PREPARE,
    )


def _write_command(snapshot: Snapshot, wanted: _Wanted, number: int) -> Outgoing | None:
    """Write the row that makes other consoles wait, and before it, for a new command, the audit
    row.
    """
    command = wanted.command
    connection = snapshot.connection
    if wanted.is_new:
        log.append(
            connection,
            at=snapshot.now,
            actor=command.subject,
            action="prepare",
            event_id=command.event_id,
            jti=command.jti,
            fingerprint=command.fingerprint,
            reason=command.reason,
            vm_id=command.vm_id,
            channel=command.channel,
        )
        decisions.put_command(connection, command, number)
    else:
        decisions.change_command(connection, command, number)
    return outgoing(connection, command)


def _audit_taken(snapshot: Snapshot, turn: Turn, situation: TurnSituation) -> None:
    log.append(
        snapshot.connection,
        at=snapshot.now,
        actor=turn.by or "",
        action="take_turn",
        event_id=turn.event_id,
        fingerprint=turn.fingerprint,
        groups=list(turn.groups),
        vm_ids=[each.vm_id for each in turn.holders],
        names=[situation.vms[each.vm_id].name for each in turn.holders],
    )
