"""One step of a decision, in a transaction: read again, found again, written, and then sent.

Two consoles that find the same step at once take turns here, and the second finds it done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import uuid4

from sqlalchemy import Connection

from console.audit import log
from console.decisions import course
from console.decisions.course import Ask, End, Seen, Send, Situation, Step
from console.decisions.deciding import LEASE_SECONDS
from console.decisions.sending import Outgoing
from console.fleet.commands import stand
from console.fleet.values import Command, Decision
from console.fleet.witnesses import PULL, Witness
from console.store import decisions as rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What a step follows from beside the rows."""

    now: float
    up_since: float
    console: str
    """Name of this run of this console."""
    connected: Mapping[str, float | None]
    """For each source of this console, since when it is connected."""
    witnesses: Mapping[str, Sequence[Witness]]
    """By event id."""


@dataclass(slots=True, kw_only=True)
class Carried:
    """What a step has written, and what is to be sent after the commit."""

    wait_until: float | None = None
    decisions: list[Decision] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    outgoing: Outgoing | None = None


def look(connection: Connection, decision: Decision, around: Around) -> Step:
    """The next step of a decision that is not over; nothing is written."""
    return course.next_step(_situation(connection, decision, around))


def carry(connection: Connection, decision_id: str, around: Around, number: int) -> Carried:
    """Take the next step of a decision, if it is still to be taken."""
    decision = rows.read_decision(connection, decision_id)
    if decision is None or decision.state == "over":
        return Carried()
    situation = _situation(connection, decision, around)
    step = course.next_step(situation)
    if isinstance(step, End):
        return _end(connection, situation, step, number)
    if isinstance(step, Ask):
        return _ask(connection, situation, step, around, number)
    if isinstance(step, Send):
        return _send(connection, situation, step, around, number)
    return Carried(wait_until=step.until)


def note_taken(
    connection: Connection, taken: Sequence[tuple[Command, str | None, float]], number: int
) -> Carried:
    """Write down that the broker took commands, each at a time, or why it refused one for good."""
    carried = Carried()
    for command, refusal, at in taken:
        known = rows.read_command(connection, command.jti)
        if known is None or known[0].sent_at is not None:
            continue
        if refusal is None:
            sent = replace(known[0], sent_at=at)
            rows.change_command(connection, sent, number)
            carried.commands.append(sent)
            continue
        decision = rows.read_decision(connection, command.decision_id)
        if decision is not None and decision.state == "open":
            over = _over(decision, End(outcome="failed", reason="not_sent"), at)
            rows.change_decision(connection, over, number)
            carried.decisions.append(over)
            carried.commands += _given_up(connection, [known[0]], at, number)
    return carried


def _situation(connection: Connection, decision: Decision, around: Around) -> Situation:
    now = rows.read_event(connection, decision.event_id)
    seen = None
    if now is not None:
        seen = Seen(state=now.event.state, fingerprint=now.shown.facts.fingerprint)
    return Situation(
        decision=decision,
        commands=rows.read_commands(connection, decision.id),
        receipts=() if now is None else now.receipts,
        seen=seen,
        witnesses=around.witnesses.get(decision.event_id, ()),
        connected=around.connected,
        now=around.now,
        up_since=around.up_since,
    )


def _end(connection: Connection, situation: Situation, step: End, number: int) -> Carried:
    over = _over(situation.decision, step, situation.now)
    rows.change_decision(connection, over, number)
    silent = [
        each for each in situation.commands if stand(each, situation.receipts).state == "sent"
    ]
    given_up = _given_up(connection, silent, situation.now, number)
    return Carried(decisions=[over], commands=given_up)


def _over(decision: Decision, end: End, at: float) -> Decision:
    return replace(
        decision,
        state="over",
        outcome=end.outcome,
        outcome_reason=end.reason,
        over_at=at,
        claimed_by=None,
        claimed_until=None,
    )


def _ask(
    connection: Connection, situation: Situation, step: Ask, around: Around, number: int
) -> Carried:
    decision, first = situation.decision, situation.commands[0]
    command = replace(
        first,
        jti=str(uuid4()),
        vm_id=step.witness.vm_id,
        channel=step.witness.channel,
        made_at=situation.now,
        expires_at=step.expires_at,
        sent_at=None,
        unanswered_at=None,
    )
    log.append(
        connection,
        at=situation.now,
        actor=command.subject,
        action="take_over",
        event_id=command.event_id,
        jti=command.jti,
        decision=decision.id,
        fingerprint=command.fingerprint,
        reason=command.reason,
        vm_id=command.vm_id,
        channel=command.channel,
        unanswered=situation.commands[-1].jti,
    )
    rows.put_command(connection, command, number)
    silent = _given_up(connection, situation.commands, situation.now, number)
    claimed = _claim(connection, decision, around, number)
    return Carried(
        decisions=[claimed],
        commands=[*silent, command],
        outgoing=_outgoing(connection, command),
    )


def _send(
    connection: Connection, situation: Situation, step: Send, around: Around, number: int
) -> Carried:
    command = step.command
    if command.channel != PULL and around.connected.get(command.channel) is None:
        return Carried(wait_until=situation.now + 1)  # another console may be connected
    if command.expires_at != step.expires_at:
        command = replace(command, expires_at=step.expires_at)
        rows.change_command(connection, command, number)
    claimed = _claim(connection, situation.decision, around, number)
    return Carried(decisions=[claimed], commands=[command], outgoing=_outgoing(connection, command))


def _claim(connection: Connection, decision: Decision, around: Around, number: int) -> Decision:
    until = around.now + LEASE_SECONDS
    claimed = replace(decision, claimed_by=around.console, claimed_until=until)
    rows.change_decision(connection, claimed, number)
    return claimed


def _outgoing(connection: Connection, command: Command) -> Outgoing | None:
    site = rows.site_of(connection, command.vm_id)
    return None if site is None else Outgoing(command=command, site=site)


def _given_up(
    connection: Connection, commands: Sequence[Command], at: float, number: int
) -> list[Command]:
    """The console stops waiting for the answers to these."""
    changed = [replace(each, unanswered_at=at) for each in commands if each.unanswered_at is None]
    for each in changed:
        rows.change_command(connection, each, number)
    return changed
