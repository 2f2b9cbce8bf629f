"""A person's requests about turns: to approve an event, which takes a turn, or to end a turn.

Both run in the caller's transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from console.approvals.decision_requests import (
    DecisionPolicy,
    DecisionRequest,
    HeldTurn,
    Refuse,
    RequestSituation,
    next_step,
)
from console.approvals.decision_situation import GRACE_SECONDS
from console.approvals.refusal_reasons import DecisionRefusedError, RefusalReason
from console.audit import audit_log
from console.db.decisions import decision_rows, prepare_commands, turn_rows
from console.db.decisions.latest_groups import are_latest
from console.db.snapshot import Snapshot
from console.db.turn_facts.turn_facts import TurnSettings, read_turn_facts
from console.fleet.values.event import KnownEvent
from console.fleet.values.keys import EventKey
from console.turns.changed_turns import after_condition, give_turn, new_turn, with_vms
from console.turns.facts import EventFacts, Turn, TurnFacts
from console.turns.plan import plan
from console.turns.reading import Reading
from console.turns.reasons import refusal
from console.turns.transitions import Occurrence, TurnCondition

_NO_POLICY: Final = DecisionPolicy(can_sign=False)
"""The end of a turn needs no key, and no other rule is about it."""


REFUSALS: Final[Sequence[RefusalReason]] = (
    "other_groups",
    "turn_begun",
    "not_its_turn",
    "cannot_prepare",
    "not_prepared",
)
"""Why an approval that the table of `decision_requests` does not refuse may be refused all the
same, if the event has VMs of a group: it does not get its turn.
"""


class TurnRequests:
    """Gives an event its turn or refuses it, in the transaction in which a person approves it."""

    def __init__(self, snapshot: Snapshot, change_number: int, settings: TurnSettings) -> None:
        self._snapshot = snapshot
        self._change_number = change_number
        self._settings = settings

    def give_turn(self, request: DecisionRequest, known: KnownEvent) -> Turn | None:
        """Return the turn that the event has from now on, or None if no group has its VMs. If its
        state is `prepared` or `failed`, the approval is to be sent at once; otherwise a later step
        sends it.

        Raises `DecisionRefusedError` if it is not due its turn; then it waits.
        """
        if not request.force and not self._has_latest_groups():
            raise DecisionRefusedError("other_groups")
        facts = read_turn_facts(self._snapshot, self._settings)
        event = facts.events.get(known.event.key)
        if event is None:
            return None
        turn = facts.turns.get(event.key)
        if turn is not None and turn.is_held:
            return self._approve_held(request, turn, event, facts)
        if not facts.groups_touched(event):
            return None
        return self._give(request, turn, event, facts)

    def note_approved(self, turn: Turn) -> None:
        """Note that the approval of the event was written."""
        approved = Occurrence(condition=TurnCondition.APPROVED)
        self._put(after_condition(turn, approved, None, self._snapshot.now))

    def _has_latest_groups(self) -> bool:
        return are_latest(self._snapshot.connection, self._settings.grouping.hash)

    def _approve_held(
        self, request: DecisionRequest, turn: Turn, event: EventFacts, facts: TurnFacts
    ) -> Turn:
        has_approval_ended = turn.state == "approving" and event.approval != "open"
        if turn.state == "failed" or has_approval_ended:
            failed = replace(turn, state="failed")
            if not request.force:
                return self._give(request, failed, event, facts)
            back = [vm for vm in facts.named(event) if vm.vm_id not in turn.vm_ids]
            overridden = with_vms(_with_override(failed, request), back)
            self._audit(request, overridden, event)
            return overridden
        if not request.force or turn.state not in ("preparing", "prepared") or turn.is_overridden:
            raise DecisionRefusedError("turn_begun")
        overridden = _with_override(turn, request)
        self._audit(request, overridden, event)
        self._put(overridden)
        return replace(overridden, state="preparing")

    def _give(
        self,
        request: DecisionRequest,
        turn: Turn | None,
        event: EventFacts,
        facts: TurnFacts,
    ) -> Turn:
        now = self._snapshot.now
        reason = refusal(event, Reading.at(facts, now))
        if reason is not None and not request.force:
            self._put(self._with_holders(turn, event, facts))
            raise DecisionRefusedError(reason)
        actor = request.person.name
        begun = give_turn(turn, event, facts, now, actor=actor, is_overridden=reason is not None)
        begun = replace(begun, person_reason=request.reason)
        as_taken = replace(
            facts,
            turns={**facts.turns, event.key: begun},
            events={**facts.events, event.key: replace(event, is_left=False)},
        )
        after = plan(as_taken, now).turns.get(event.key, begun)
        if after.state == "failed" and not request.force:
            raise DecisionRefusedError("not_prepared")
        self._audit(request, begun, event)
        self._put(after)
        return after

    def _with_holders(self, turn: Turn | None, event: EventFacts, facts: TurnFacts) -> Turn:
        """Return the turn as waiting, with the VMs that it waits for: the answer to the person
        shows them.
        """
        away_now = Reading.at(facts, self._snapshot.now).away_besides(event)
        base = turn or new_turn(event, self._snapshot.now)
        return replace(
            base,
            groups=facts.groups_touched(event),
            held_by=tuple((each.vm_id, each.event_key) for each in away_now),
        )

    def _audit(self, request: DecisionRequest, turn: Turn, event: EventFacts) -> None:
        audit_log.append(
            self._snapshot.connection,
            at=self._snapshot.now,
            actor=request.person.name,
            action="force_turn" if request.force else "take_turn",
            event_id=event.event_id,
            fingerprint=event.fingerprint,
            reason=request.reason,
            groups=list(turn.groups),
            held_by=[vm_id for vm_id, _ in turn.held_by] or None,
        )

    def _put(self, turn: Turn) -> None:
        turn_rows.upsert_turns(self._snapshot.connection, [turn], self._change_number)


def _with_override(turn: Turn, request: DecisionRequest) -> Turn:
    """Return the turn as one in which a person overrides the budget."""
    return replace(
        turn, is_overridden=True, actor=request.person.name, person_reason=request.reason
    )


def _is_past(snapshot: Snapshot, known: KnownEvent | None) -> bool:
    """Check whether no VM may follow the commands of the approval that is under way any more."""
    commands = () if known is None else known.decided.commands
    latest = max((each.expires_at for each in commands), default=0.0)
    return snapshot.now > latest + GRACE_SECONDS


def _end_approval(snapshot: Snapshot, key: EventKey, change_number: int) -> None:
    """End the open approval of the event: no further VM is asked."""
    decision = decision_rows.read_open(snapshot.connection, key)
    if decision is None or decision.kind != "approve" or decision.state != "open":
        return
    over = decision.with_outcome("overtaken", "decided", snapshot.now)
    decision_rows.update_decision(snapshot.connection, over, change_number)


def end_turn(
    snapshot: Snapshot, change_number: int, request: DecisionRequest, settings: TurnSettings
) -> None:
    """End a turn at a person's request. Raises `DecisionRefusedError` if that is not allowed; then
    nothing was written.
    """
    known = snapshot.events.find_event(request.event_id, request.scope)
    facts = read_turn_facts(snapshot, settings)
    if known is None:
        turn = _turn_without_event(request, facts)
    else:
        turn = facts.turns.get(known.event.key)
    event = None if turn is None else facts.events.get(turn.event_key)
    situation = RequestSituation(
        request=request,
        policy=_NO_POLICY,
        known=known,
        held_turn=_held(snapshot, known, turn, event),
    )
    step = next_step(situation)
    if isinstance(step, Refuse):
        raise DecisionRefusedError(step.reason)
    if turn is None:  # the table refuses it
        raise DecisionRefusedError("no_turn")
    audit_log.append(
        snapshot.connection,
        at=snapshot.now,
        actor=request.person.name,
        action="end_turn",
        event_id=turn.event_key.event_id,
        fingerprint=turn.fingerprint,
        reason=request.reason,
        state=turn.state,
        groups=list(turn.groups),
        vm_ids=[each.vm_id for each in turn.still_away],
    )
    prepare_commands.give_up(snapshot.connection, turn.event_key, snapshot.now, change_number)
    _end_approval(snapshot, turn.event_key, change_number)
    ended_now = Occurrence(condition=TurnCondition.ENDED_BY_PERSON)
    ended_by = request.person.name
    over = replace(after_condition(turn, ended_now, event, snapshot.now), ended_by=ended_by)
    if event is None and over.over_at is None:
        over = replace(over, over_at=snapshot.now)
    turn_rows.upsert_turns(snapshot.connection, [over], change_number)
    if event is None:
        turn_rows.delete_preparations(snapshot.connection, turn.event_key)


def _turn_without_event(request: DecisionRequest, facts: TurnFacts) -> Turn | None:
    """Return the held turn of an event that the console has forgotten: the oldest of several, or
    None.
    """
    found = [
        each
        for key, each in facts.turns.items()
        if each.is_held and key.event_id == request.event_id and request.scope in (None, key.scope)
    ]
    return min(found, key=lambda each: each.since, default=None)


def _held(
    snapshot: Snapshot, known: KnownEvent | None, turn: Turn | None, event: EventFacts | None
) -> HeldTurn | None:
    """Return what has to be known of a turn before a person ends it; None if nothing is held."""
    if turn is None or not turn.is_held:
        return None
    connection = snapshot.connection
    return HeldTurn(
        is_stuck=turn.state == "stuck",
        is_being_approved=event is not None and event.approval == "open",
        is_past=_is_past(snapshot, known),
        may_be_followed=prepare_commands.may_follow_approval(
            connection, turn.event_key, snapshot.now
        ),
    )
