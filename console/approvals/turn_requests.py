"""A person's requests about turns: to approve an event, which takes a turn, or to end a turn.

Both run in the caller's transaction.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from console.access.people import Person
from console.approvals.decision_changes import ended
from console.approvals.decision_situation import GRACE_SECONDS
from console.approvals.refusal_reasons import DecisionRefusedError
from console.approvals.requests import DecisionRequest
from console.audit import log
from console.db import decisions, turns
from console.db.snapshot import Snapshot
from console.db.turn_situation import read_situation
from console.fleet.values import KnownEvent
from console.turns.changes import changed_turns, moved, taken, waiting, with_holders
from console.turns.groups import Grouping
from console.turns.plan import Move, Take
from console.turns.reading import Reading
from console.turns.reasons import refusal
from console.turns.schedule import plan
from console.turns.situation import EventFacts, Turn, TurnSituation
from console.turns.transitions import Trigger


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnSettings:
    """The settings from which turns are decided."""

    grouping: Grouping
    can_sign: bool = False
    four_eyes: int = 0


def situation_of(snapshot: Snapshot, settings: TurnSettings) -> TurnSituation:
    """Read everything from which turns are decided now."""
    return read_situation(
        snapshot, settings.grouping, can_sign=settings.can_sign, four_eyes=settings.four_eyes
    )


class PersonsTurn:
    """Gives an event its turn or refuses it, in the transaction in which a person approves it."""

    def __init__(self, snapshot: Snapshot, number: int, settings: TurnSettings) -> None:
        self._snapshot = snapshot
        self._number = number
        self._settings = settings

    def take(self, request: DecisionRequest, known: KnownEvent) -> Turn | None:
        """Return the turn that the event has from now on, or None if no group has its VMs. If its
        state is `prepared` or `failed`, the approval is to be sent at once; otherwise a later step
        sends it.

        Raises `DecisionRefusedError` if it is not due its turn; then it waits.
        """
        situation = situation_of(self._snapshot, self._settings)
        event = situation.events.get(known.event.key)
        if event is None:
            return None
        turn = situation.turns.get(event.key)
        if turn is not None and turn.is_held:
            return self._held(request, turn, event, situation)
        if not situation.groups_touched(event):
            return None
        return self._new(request, turn, event, situation)

    def sent(self, turn: Turn) -> None:
        """Note that the approval of the event was written."""
        move = Move(event_key=turn.event_key, trigger=Trigger.APPROVED)
        self._put(moved(turn, move, None, self._snapshot.now))

    def _held(
        self, request: DecisionRequest, turn: Turn, event: EventFacts, situation: TurnSituation
    ) -> Turn:
        has_approval_ended = turn.state == "approving" and event.approval != "open"
        if turn.state == "failed" or has_approval_ended:
            failed = replace(turn, state="failed")
            if not request.force:
                return self._new(request, failed, event, situation)
            forced = replace(failed, is_forced=True, by=request.person.name, asked=request.reason)
            back = (event.named - turn.vm_ids) & situation.vms.keys()
            forced = with_holders(forced, {each: situation.vms[each].groups for each in back})
            self._audit(request, forced, event)
            return forced
        if not request.force or turn.state not in ("preparing", "prepared") or turn.is_forced:
            raise DecisionRefusedError("turn_begun")
        forced = replace(turn, is_forced=True, by=request.person.name, asked=request.reason)
        self._audit(request, forced, event)
        self._put(forced)
        return replace(forced, state="preparing")

    def _new(
        self,
        request: DecisionRequest,
        turn: Turn | None,
        event: EventFacts,
        situation: TurnSituation,
    ) -> Turn:
        now = self._snapshot.now
        why = refusal(event, Reading.at(situation, now))
        if why is not None and not request.force:
            self._put(self._refused(turn, event, situation))
            raise DecisionRefusedError(why)
        take = Take(
            event_key=event.key,
            groups={vm.vm_id: vm.groups for vm in situation.named(event)},
            actor=request.person.name,
            is_forced=why is not None,
        )
        begun = replace(taken(turn, take, event, now), asked=request.reason, ended_by=None)
        as_taken = replace(
            situation,
            turns={**situation.turns, event.key: begun},
            events={**situation.events, event.key: replace(event, is_left=False)},
        )
        after = changed_turns(as_taken, plan(as_taken, now), now).get(event.key, begun)
        if after.state == "failed" and not request.force:
            raise DecisionRefusedError("not_prepared")
        self._audit(request, begun, event)
        self._put(after)
        return after

    def _refused(self, turn: Turn | None, event: EventFacts, situation: TurnSituation) -> Turn:
        """Return the turn as waiting, with the VMs that it waits for: the answer to the person
        shows them.
        """
        away_now = Reading.at(situation, self._snapshot.now).away_besides(event)
        base = turn or waiting(event, self._snapshot.now)
        return replace(
            base,
            groups=situation.groups_touched(event),
            held_by=tuple((each.vm_id, each.event_key) for each in away_now),
        )

    def _audit(self, request: DecisionRequest, turn: Turn, event: EventFacts) -> None:
        log.append(
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
        turns.put_turns(self._snapshot.connection, [turn], self._number)


def _is_past(snapshot: Snapshot, known: KnownEvent) -> bool:
    """Check whether no VM may follow the commands of the approval that is under way any more."""
    latest = max((each.expires_at for each in known.decided.commands), default=0.0)
    return snapshot.now > latest + GRACE_SECONDS


def _end_approval(snapshot: Snapshot, known: KnownEvent, number: int) -> None:
    """End the open approval of the event: no further VM is asked."""
    decision = decisions.read_open(snapshot.connection, known.event.key)
    if decision is None or decision.kind != "approve" or decision.state != "open":
        return
    over = ended(decision, "overtaken", "decided", snapshot.now)
    decisions.change_decision(snapshot.connection, over, number)


def end_turn(
    snapshot: Snapshot,
    number: int,
    *,
    person: Person,
    known: KnownEvent,
    reason: str,
    force: bool,
    settings: TurnSettings,
) -> None:
    """End a turn at a person's request. Raises `DecisionRefusedError` if that is not allowed; then
    nothing was written.
    """
    situation = situation_of(snapshot, settings)
    key = known.event.key
    turn = situation.turns.get(key)
    if turn is None or not turn.is_held:
        raise DecisionRefusedError("no_turn")
    event = situation.events.get(turn.event_key)
    if event is not None and event.approval == "open" and not (force and _is_past(snapshot, known)):
        raise DecisionRefusedError("under_way")
    if turn.state != "stuck" and not force:
        raise DecisionRefusedError("not_stuck")
    log.append(
        snapshot.connection,
        at=snapshot.now,
        actor=person.name,
        action="end_turn",
        event_id=key.event_id,
        fingerprint=turn.fingerprint,
        reason=reason,
        state=turn.state,
        groups=list(turn.groups),
        vm_ids=[each.vm_id for each in turn.still_away],
    )
    turns.give_up_prepare_commands(snapshot.connection, key, snapshot.now, number)
    _end_approval(snapshot, known, number)
    move = Move(event_key=turn.event_key, trigger=Trigger.ENDED_BY_PERSON)
    over = replace(moved(turn, move, event, snapshot.now), ended_by=person.name)
    if event is None and over.over_at is None:
        over = replace(over, over_at=snapshot.now)
    turns.put_turns(snapshot.connection, [over], number)
    if event is None:
        turns.forget_preparations(snapshot.connection, key)
