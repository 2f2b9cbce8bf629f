"""One step of turns in a transaction: what follows from the newest rows is written.

A turn is taken, continued and ended while other writers wait, so any number of consoles never
release more VMs of a group than it allows. Nothing here signs or sends.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Final

from console.access.people import Person
from console.approvals.command_sender import OutgoingCommand
from console.approvals.decision_requests import DecisionRequest
from console.approvals.request_transaction import DecisionResult, RequestTransaction
from console.approvals.turn_commands import due_commands, reason_of, write_command
from console.audit import audit_log
from console.db.access.tokens import ACTOR_PREFIX
from console.db.decisions import turn_rows
from console.db.snapshot import Snapshot
from console.fleet.values.keys import EventKey
from console.turns.changed_turns import after_condition
from console.turns.facts import Turn, TurnFacts
from console.turns.plan import plan
from console.turns.transitions import Occurrence, TurnCondition

_MAX_CHANGES: Final = 12
"""The limit of changes of one turn in one step."""


@dataclass(slots=True, kw_only=True)
class TurnsResult:
    """What a step has written, and what is to be sent after the commit."""

    has_changed: bool = False
    outgoing: list[OutgoingCommand] = field(default_factory=list)


def has_work(snapshot: Snapshot, facts: TurnFacts, connected: Collection[str]) -> bool:
    """Check whether `write_turn_steps` would write anything now."""
    todo = plan(facts, snapshot.now)
    return bool(
        todo.turns or todo.approvals or due_commands(snapshot, facts, todo.prepares, connected)
    )


def write_turn_steps(
    snapshot: Snapshot,
    change_number: int,
    facts: TurnFacts,
    requests: RequestTransaction,
    connected: Collection[str],
) -> TurnsResult:
    """Write what follows from `facts`, which no other transaction can change meanwhile.
    `connected` names the connected sources of this console.
    """
    changed: dict[EventKey, Turn] = {}
    given: list[EventKey] = []
    todo = plan(facts, snapshot.now)
    # One change may lead to the next: a turn ends, and another event gets its turn and is prepared.
    for _ in range(_MAX_CHANGES):
        if not todo.turns:
            break
        changed |= todo.turns
        given += todo.given
        facts = facts.with_turns(todo.turns)
        todo = plan(facts, snapshot.now)
    written = TurnsResult()
    for key in given:
        _audit_given(snapshot, changed[key], facts)
    for key in todo.approvals:
        turn = facts.turns[key]
        result = _approve(requests, turn)
        if result.refusal is not None and turn.reason != str(result.refusal):
            changed[key] = replace(turn, reason=str(result.refusal))
        if result.jti is not None:
            approved = Occurrence(condition=TurnCondition.APPROVED)
            changed[key] = after_condition(turn, approved, facts.events[key], snapshot.now)
            if result.outgoing is not None:
                written.outgoing.append(result.outgoing)
    turn_rows.upsert_turns(snapshot.connection, changed.values(), change_number)
    due = due_commands(snapshot, facts, todo.prepares, connected)
    for command in due:
        outgoing = write_command(snapshot, command, change_number)
        if outgoing is not None:
            written.outgoing.append(outgoing)
    written.has_changed = bool(changed or due)
    return written


def _approve(requests: RequestTransaction, turn: Turn) -> DecisionResult:
    """Approve an event whose VMs are prepared, in the name of the actor that took its turn. If that
    is a token, it is good: `plan` returns no other.
    """
    actor = turn.actor or ""
    is_token = turn.is_by_group or actor.startswith(ACTOR_PREFIX)
    request = DecisionRequest(
        what="approve",
        person=Person(name=actor, roles=frozenset({"approver"}), is_token=is_token),
        event_id=turn.event_id,
        fingerprint=turn.fingerprint,
        reason=reason_of(turn),
        scope=turn.event_key.scope,
    )
    return requests.approve_for_turn(request)


def _audit_given(snapshot: Snapshot, turn: Turn, facts: TurnFacts) -> None:
    audit_log.append(
        snapshot.connection,
        at=snapshot.now,
        actor=turn.actor or "",
        action="take_turn",
        event_id=turn.event_id,
        fingerprint=turn.fingerprint,
        groups=list(turn.groups),
        vm_ids=[part.vm_id for part in turn.vms],
        names=[facts.vms[part.vm_id].name for part in turn.vms],
    )
