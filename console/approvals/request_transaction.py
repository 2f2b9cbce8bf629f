"""The transaction of a decision: check a request against the newest rows, audit it, and write it.

Nothing here signs or sends. What is to be sent has its audit row in the same transaction.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final
from uuid import uuid4

from console.approvals.command_sender import OutgoingCommand
from console.approvals.decision_requests import (
    Action,
    DecisionPolicy,
    DecisionRequest,
    Refuse,
    RequestSituation,
    next_step,
)
from console.approvals.decision_situation import expiry
from console.approvals.new_commands import write_new_command
from console.approvals.refusal_reasons import REASONS, DecisionRefusedError, RefusalReason
from console.approvals.turn_requests import TurnRequests
from console.audit import audit_log
from console.audit.chain import AuditValue
from console.audit.limiter import AuditLimiter
from console.db.access.tokens import bad_tokens
from console.db.decisions import decision_rows
from console.db.snapshot import Snapshot
from console.db.turn_facts.turn_facts import TurnSettings
from console.fleet.candidates import candidates, next_candidate
from console.fleet.commands import under_way
from console.fleet.decisions import DecisionStatusName, status_of_open
from console.fleet.values.decision import Decision, VmCommand
from console.fleet.values.event import KnownEvent
from wire.moment import moment_text

_MAX_NAMES: Final = 100
"""How many resources an audit row lists by name."""


@dataclass(slots=True, kw_only=True)
class DecisionResult:
    """What a transaction has decided and written."""

    state: DecisionStatusName = "none"
    jti: str | None = None
    refusal: DecisionRefusedError | None = None
    outgoing: OutgoingCommand | None = None
    """The command to send after the commit."""


class RequestTransaction:
    """One transaction in which a request is checked and carried out."""

    def __init__(
        self,
        snapshot: Snapshot,
        change_number: int,
        *,
        run_id: str,
        policy: DecisionPolicy,
        audit_limiter: AuditLimiter,
        turns: TurnSettings | None = None,
    ) -> None:
        """`snapshot` is what the transaction sees; `change_number` is the transaction's own.
        `turns`: the settings of turns; None for an event that has its turn.
        """
        self._snapshot = snapshot
        self._connection = snapshot.connection
        self._change_number = change_number
        self._now = snapshot.now
        self._run_id = run_id  # of this console
        self._policy = policy
        self._audit_limiter = audit_limiter
        self._turn_requests = (
            None if turns is None else TurnRequests(snapshot, change_number, turns)
        )

    def decide(self, request: DecisionRequest) -> DecisionResult:
        """Carry out what a person asks for, or refuse it."""
        situation = self._situation(request)
        step = next_step(situation)
        if isinstance(step, Refuse):
            return self._refuse(step.reason, situation)
        known = situation.known
        if known is None:  # the table refuses it
            return self._refuse("unknown", situation)
        if step is Action.ANSWER_SECOND:
            return DecisionResult(state="second")
        if step is Action.ANSWER_LEFT:
            return DecisionResult(state="left")
        if step is Action.SEND:
            return self._give_turn_or_send(situation, known)
        is_leave = step is Action.WRITE_LEFT
        kind, state = ("leave", "open") if is_leave else ("approve", "second")
        decision = self._decision(situation.request, known, kind=kind, state=state)
        return self._write_unsent(situation, known, decision)

    def approve_for_turn(self, request: DecisionRequest) -> DecisionResult:
        """Approve an event that has its turn. If that is not possible now, do nothing and audit
        nothing: `refusal` of the result has the reason.
        """
        situation = self._situation(request)
        known = situation.known
        if known is None or known.event.scope != request.scope:
            return DecisionResult()
        step = next_step(situation)
        if isinstance(step, Refuse):
            return DecisionResult(refusal=DecisionRefusedError(step.reason))
        return self._send(situation, known) if step is Action.SEND else DecisionResult()

    def _situation(self, request: DecisionRequest) -> RequestSituation:
        """Return the request with everything on which its outcome depends."""
        known = self._snapshot.events.find_event(request.event_id, request.scope)
        if known is None:
            return RequestSituation(request=request, policy=self._policy, known=None)
        open_decision = decision_rows.read_open(self._connection, known.event.key)
        first = [] if open_decision is None else [open_decision.actor]
        return RequestSituation(
            request=replace(request, event_id=known.event.event_id),  # given in any case
            policy=self._policy,
            known=known,
            open_decision=open_decision,
            is_first_bad=bool(bad_tokens(self._connection, first, self._now)),
            candidates=candidates(known, self._now, self._snapshot.listening),
        )

    def _give_turn_or_send(self, situation: RequestSituation, known: KnownEvent) -> DecisionResult:
        """Send the approval at once, or first give the event its turn so that its VMs prepare."""
        if self._turn_requests is None:
            return self._send(situation, known)
        try:
            turn = self._turn_requests.give_turn(situation.request, known)
        except DecisionRefusedError as refused:
            return self._refuse(refused.reason, situation)
        if turn is None:
            return self._send(situation, known)
        if turn.state not in ("prepared", "failed"):
            if situation.open_decision is not None and situation.open_decision.kind == "leave":
                self._replace(situation.open_decision)
            return DecisionResult(state="approving")
        result = self._send(situation, known)
        self._turn_requests.note_approved(turn)
        return result

    def _refuse(self, reason: RefusalReason, situation: RequestSituation) -> DecisionResult:
        """Refuse a request, and audit it if it cannot be done now. What a role never allows was
        audited before.
        """
        request = situation.request
        jti = self._jti_under_way(situation) if reason == "under_way" else None
        kind = (request.person.name, request.what, reason, request.event_id, request.fingerprint)
        is_audited = REASONS[reason].is_audited
        if is_audited and (unwritten := self._audit_limiter.passes(*kind)) is not None:
            audit_log.append(
                self._connection,
                at=self._now,
                actor=request.person.name,
                action="refused",
                event_id=request.event_id,
                jti=jti,
                what=request.what,
                reason=reason,
                fingerprint=request.fingerprint,
                unwritten=unwritten or None,
            )
        return DecisionResult(refusal=DecisionRefusedError(reason, jti=jti), jti=jti)

    def _jti_under_way(self, situation: RequestSituation) -> str | None:
        if situation.open_decision is not None:
            commands = decision_rows.read_commands(self._connection, situation.open_decision.id)
            if commands:
                return commands[-1].jti
        begun = [] if situation.known is None else under_way(situation.known.receipts)
        return begun[0].content.jti if begun else None

    def _write_unsent(
        self, situation: RequestSituation, known: KnownEvent, new: Decision
    ) -> DecisionResult:
        """Write a decision that sends nothing; it replaces the open one."""
        self._replace(situation.open_decision)
        action = "leave" if new.kind == "leave" else "approve_first"
        self._audit(action, situation.request, known, new)
        decision_rows.insert_decision(self._connection, new, self._change_number)
        return DecisionResult(state=status_of_open(new) or "none")

    def _send(self, situation: RequestSituation, known: KnownEvent) -> DecisionResult:
        """Write an approval and its command, which is sent after the commit."""
        request = situation.request
        waiting = situation.first_of_two
        candidate = situation.candidates[0]
        if waiting is None:
            self._replace(situation.open_decision)
            decision = self._decision(request, known, kind="approve", state="open")
        else:
            decision = replace(waiting, state="open", second_actor=request.person.name)
        decision = decision.with_claim(self._run_id, self._now)
        others = next_candidate(situation.candidates, {candidate.vm_id}) is not None
        command = VmCommand(
            jti=str(uuid4()),
            decision_id=decision.id,
            event_id=request.event_id,
            scope=known.event.scope,
            fingerprint=request.fingerprint,
            vm_id=candidate.vm_id,
            channel=candidate.channel,
            subject=request.person.name,
            reason=request.reason,
            made_at=self._now,
            expires_at=expiry(self._now, decision.not_before, others=others),
        )
        outgoing = write_new_command(
            self._snapshot,
            command,
            self._change_number,
            action="approve",
            **_details(known, decision),
        )
        write = decision_rows.insert_decision if waiting is None else decision_rows.update_decision
        write(self._connection, decision, self._change_number)
        return DecisionResult(state="approving", jti=command.jti, outgoing=outgoing)

    def _decision(
        self, request: DecisionRequest, known: KnownEvent, *, kind: str, state: str
    ) -> Decision:
        return Decision(
            id=str(uuid4()),
            event_id=request.event_id,
            scope=known.event.scope,
            fingerprint=request.fingerprint,
            kind=kind,
            state=state,
            actor=request.person.name,
            reason=request.reason,
            at=self._now,
            not_before=known.event.not_before,
        )

    def _replace(self, open_decision: Decision | None) -> None:
        """End the open decision, which a new one replaces."""
        if open_decision is not None:
            after = open_decision.with_outcome("overtaken", "decided", self._now)
            decision_rows.update_decision(self._connection, after, self._change_number)

    def _audit(
        self, action: str, request: DecisionRequest, known: KnownEvent, decision: Decision
    ) -> None:
        audit_log.append(
            self._connection,
            at=self._now,
            actor=request.person.name,
            action=action,
            event_id=request.event_id,
            jti=None,
            fingerprint=request.fingerprint,
            reason=request.reason,
            **_details(known, decision),
        )


def _details(known: KnownEvent, decision: Decision) -> dict[str, AuditValue]:
    """Return what the audit says of a decision and its event besides what a command has too."""
    event = known.shown.report.event
    return {
        "decision": decision.id,
        "first_actor": None if decision.second_actor is None else decision.actor,
        "event_type": event.event_type,
        "not_before": moment_text(event.not_before),
        "resources": list(event.resources[:_MAX_NAMES]),
        "named": len(event.resources),
    }
