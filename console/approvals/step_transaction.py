"""One step of a decision in a transaction: the rows are read again, the step is found again and
written.

Two consoles that find the same step at once write one after the other; the second finds it done.
What is to be sent is sent after the commit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import uuid4

from console.approvals.command_sender import OutgoingCommand, with_site
from console.approvals.decision_situation import (
    AskVm,
    DecisionSituation,
    DecisionStep,
    EndDecision,
    SendCommand,
    ShownEvent,
    WaitForChange,
)
from console.approvals.new_commands import write_new_command
from console.approvals.transitions import next_step
from console.db.access.tokens import bad_tokens
from console.db.decisions import decision_rows
from console.db.snapshot import Snapshot
from console.db.turn_facts.turn_facts import TurnSettings, read_turn_facts
from console.fleet.candidates import PULL, candidates
from console.fleet.commands import command_status
from console.fleet.values.decision import Decision, VmCommand
from console.fleet.values.event import KnownEvent
from console.turns.plan import may_ask_next_vm


@dataclass(frozen=True, slots=True, kw_only=True)
class StepContext:
    """What a step depends on besides the rows of the database."""

    up_since: float
    run_id: str
    """The id of this run of this console."""
    connected: Mapping[str, float | None]
    """For each source of this console, since when it is connected; None if it is not."""
    turns: TurnSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What a step has come to, and what is to be sent after the commit."""

    is_over: bool = False
    is_written: bool = False
    """Whether anything was written."""
    wait_until: float | None = None
    """When there may be a further step, if nothing was written; None: once something changes."""
    outgoing: OutgoingCommand | None = None


def next_steps(
    snapshot: Snapshot, several: Sequence[Decision], context: StepContext
) -> list[tuple[Decision, DecisionStep]]:
    """Return the next step of each of these decisions, which are not over. Writes nothing."""
    events = snapshot.events.events_by_key({each.key for each in several})
    return [
        (each, next_step(_situation(snapshot, each, events.get(each.key), context)))
        for each in several
    ]


def write_decision_step(
    snapshot: Snapshot, decision_id: str, context: StepContext, change_number: int
) -> StepResult:
    """Write the next step of a decision, unless the decision is over by now."""
    decision = decision_rows.read_decision(snapshot.connection, decision_id)
    if decision is None or decision.state == "over":
        return StepResult(is_over=True)
    known = snapshot.events.find_event(*decision.key)
    situation = _situation(snapshot, decision, known, context)
    step = _unless_forbidden(snapshot, situation, next_step(situation), context)
    if isinstance(step, EndDecision):
        return _end(snapshot, situation, step, change_number)
    if isinstance(step, AskVm):
        return _ask(snapshot, situation, step, context, change_number)
    if isinstance(step, SendCommand):
        return _send(snapshot, situation, step, context, change_number)
    return StepResult(wait_until=step.until)


def _unless_forbidden(
    snapshot: Snapshot, situation: DecisionSituation, step: DecisionStep, context: StepContext
) -> DecisionStep:
    """Return the step, or another one if nothing may be sent now: since the last command its token
    may have been revoked, a VM may have gone away, or the event's VMs may have to prepare again.
    """
    if not isinstance(step, AskVm | SendCommand):
        return step
    decision = situation.decision
    if bad_tokens(snapshot.connection, [decision.actor, decision.second_actor], snapshot.now):
        return EndDecision(outcome="overtaken", reason="token_ended")
    facts = read_turn_facts(snapshot, context.turns)
    may = may_ask_next_vm(decision.key, facts, snapshot.now)
    if may == "no":
        return EndDecision(outcome="overtaken", reason="changed")
    return step if may == "yes" else WaitForChange(until=situation.now + 1)


def mark_sent(
    snapshot: Snapshot, answers: Sequence[tuple[VmCommand, str | None, float]], change_number: int
) -> None:
    """Write when the broker accepted each command, or that it refused it for good."""
    for command, refusal, at in answers:
        known = decision_rows.read_command(snapshot.connection, command.jti)
        if known is None or known.sent_at is not None:
            continue
        if refusal is None:
            decision_rows.update_command(
                snapshot.connection, replace(known, sent_at=at), change_number
            )
            continue
        decision = decision_rows.read_decision(snapshot.connection, command.decision_id)
        if decision is not None and decision.state == "open":
            over = decision.with_outcome("failed", "not_sent", at)
            decision_rows.update_decision(snapshot.connection, over, change_number)
            _mark_unanswered(snapshot, [known], at, change_number)


def _situation(
    snapshot: Snapshot, decision: Decision, known: KnownEvent | None, context: StepContext
) -> DecisionSituation:
    event = None
    found = []
    if known is not None:
        event = ShownEvent(state=known.event.state, fingerprint=known.shown.report.fingerprint)
        found = candidates(known, snapshot.now, snapshot.listening)
    return DecisionSituation(
        decision=decision,
        commands=decision_rows.read_commands(snapshot.connection, decision.id),
        receipts=() if known is None else known.receipts,
        event=event,
        candidates=found,
        connected=context.connected,
        now=snapshot.now,
        up_since=context.up_since,
    )


def _end(
    snapshot: Snapshot, situation: DecisionSituation, step: EndDecision, change_number: int
) -> StepResult:
    over = situation.decision.with_outcome(step.outcome, step.reason, situation.now)
    decision_rows.update_decision(snapshot.connection, over, change_number)
    unanswered = [
        each
        for each in situation.commands
        if command_status(each, situation.receipts).state == "sent"
    ]
    _mark_unanswered(snapshot, unanswered, situation.now, change_number)
    return StepResult(is_over=True, is_written=True)


def _ask(
    snapshot: Snapshot,
    situation: DecisionSituation,
    step: AskVm,
    context: StepContext,
    change_number: int,
) -> StepResult:
    decision = situation.decision
    first_command = situation.commands[0]
    command = replace(
        first_command,
        jti=str(uuid4()),
        vm_id=step.candidate.vm_id,
        channel=step.candidate.channel,
        made_at=situation.now,
        expires_at=step.expires_at,
        sent_at=None,
        unanswered_at=None,
    )
    outgoing = write_new_command(
        snapshot,
        command,
        change_number,
        action="take_over",
        decision=decision.id,
        unanswered=situation.commands[-1].jti,
    )
    _mark_unanswered(snapshot, situation.commands, situation.now, change_number)
    _claim(snapshot, decision, context, change_number)
    return StepResult(is_written=True, outgoing=outgoing)


def _send(
    snapshot: Snapshot,
    situation: DecisionSituation,
    step: SendCommand,
    context: StepContext,
    change_number: int,
) -> StepResult:
    command = step.command
    if command.channel != PULL and context.connected.get(command.channel) is None:
        return StepResult(wait_until=situation.now + 1)  # another console may be connected
    if command.expires_at != step.expires_at:
        command = replace(command, expires_at=step.expires_at)
        decision_rows.update_command(snapshot.connection, command, change_number)
    _claim(snapshot, situation.decision, context, change_number)
    return StepResult(is_written=True, outgoing=with_site(snapshot.connection, command))


def _claim(
    snapshot: Snapshot, decision: Decision, context: StepContext, change_number: int
) -> None:
    after = decision.with_claim(context.run_id, snapshot.now)
    decision_rows.update_decision(snapshot.connection, after, change_number)


def _mark_unanswered(
    snapshot: Snapshot, commands: Sequence[VmCommand], at: float, change_number: int
) -> None:
    """Write that the console no longer waits for the answers to these commands."""
    for each in commands:
        if each.unanswered_at is None:
            marked = replace(each, unanswered_at=at)
            decision_rows.update_command(snapshot.connection, marked, change_number)
