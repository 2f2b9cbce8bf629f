"""The transaction of a decision: checked against the newest rows, audited, and written, or refused.

Nothing here signs or sends. What is to be sent has its audit row in the same transaction.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final
from uuid import uuid4

from sqlalchemy import Connection

from console.audit import log
from console.audit.flood import Flood
from console.decisions.course import expiry
from console.decisions.refused import DecisionRefused, Why
from console.decisions.requests import Request, agrees, first_of_two, is_left, objection
from console.decisions.sending import Outgoing
from console.fleet.commands import working
from console.fleet.decisions import DecisionState, open_word
from console.fleet.values import Command, Decision
from console.fleet.witnesses import Witness, first
from console.records.parse import seconds
from console.store import decisions as rows
from console.store.decisions import EventNow

LEASE_SECONDS: Final = 5.0
"""How long another console leaves the sending of a command to the one that has claimed it."""
_AUDITED: Final = ("changed", "under_way", "no_witness", "no_key", "unproven")
_MOST_NAMES: Final = 100
"""Resources that stand in an audit row by name."""


@dataclass(slots=True, kw_only=True)
class Made:
    """What a transaction has decided and written."""

    state: DecisionState = "none"
    jti: str | None = None
    refused: DecisionRefused | None = None
    decisions: list[Decision] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    outgoing: Outgoing | None = None
    """What is to be sent after the commit."""


class Deciding:
    """One transaction in which a request is checked and carried out."""

    def __init__(
        self, connection: Connection, number: int, *, now: float, console: str, flood: Flood
    ) -> None:
        self._connection = connection
        self._number = number
        self._now = now
        self._console = console  # this run of this console
        self._flood = flood

    def approve(self, asked: Request, *, four_eyes: int) -> Made:
        """Approve now, or note the first of two persons.

        `four_eyes`: from so many named VMs on a second person is needed; 0: never.
        """
        now = rows.read_event(self._connection, asked.event_id)
        standing = rows.read_open(self._connection, asked.event_id)
        why = objection(asked, now, standing)
        if why is None and not asked.can_sign:
            why = "no_key"
        if why is None and now is not None and not now.shown.facts.is_proven:
            why = "unproven"
        if why is not None or now is None:
            return self._refuse("approve", asked, why or "unknown", now, standing)
        waiting = first_of_two(standing, asked)
        if four_eyes and len(now.shown.facts.resources) >= four_eyes:
            if waiting is None:
                decision = self._decision(asked, now, kind="approve", state="second")
                return self._note(asked, now, standing, decision)
            if waiting.actor == asked.person.name:
                return Made(state="second")
            if asked.person.is_token:
                return self._refuse("approve", asked, "second", now, standing)
        witness = self._witness(asked, now)
        if witness is None:
            return self._refuse("approve", asked, "no_witness", now, standing)
        return self._send(asked, now, standing, waiting, witness)

    def leave(self, asked: Request) -> Made:
        """Leave the event until its notBefore."""
        now = rows.read_event(self._connection, asked.event_id)
        standing = rows.read_open(self._connection, asked.event_id)
        why = objection(asked, now, standing)
        if why is not None or now is None:
            return self._refuse("leave", asked, why or "unknown", now, standing)
        if standing is not None and is_left(standing, asked):
            return Made(state="left")
        decision = self._decision(asked, now, kind="leave", state="open")
        return self._note(asked, now, standing, decision)

    def _refuse(
        self,
        what: str,
        asked: Request,
        why: Why,
        now: EventNow | None,
        standing: Decision | None,
    ) -> Made:
        """What a person may not do is audited at the door, what cannot be done now is here."""
        jti = None if why != "under_way" else self._jti_under_way(now, standing)
        kind = (asked.person.name, what, why, asked.event_id, asked.fingerprint)
        if why in _AUDITED and (unwritten := self._flood.passes(*kind)) is not None:
            log.append(
                self._connection,
                at=self._now,
                actor=asked.person.name,
                action="refused",
                event_id=asked.event_id,
                jti=jti,
                what=what,
                reason=why,
                fingerprint=asked.fingerprint,
                unwritten=unwritten or None,
            )
        return Made(refused=DecisionRefused(why, jti=jti), jti=jti)

    def _jti_under_way(self, now: EventNow | None, standing: Decision | None) -> str | None:
        if standing is not None:
            commands = rows.read_commands(self._connection, standing.id)
            if commands:
                return commands[-1].jti
        begun = [] if now is None else working(now.receipts)
        return begun[0].facts.jti if begun else None

    def _note(self, asked: Request, now: EventNow, old: Decision | None, new: Decision) -> Made:
        """Write a decision that sends nothing, in the place of the one that stands."""
        made = Made(state=open_word(new) or "none")
        self._replace(old, made)
        self._audit("leave" if new.kind == "leave" else "approve_first", asked, now, new)
        self._write(made, new)
        return made

    def _send(
        self,
        asked: Request,
        now: EventNow,
        standing: Decision | None,
        waiting: Decision | None,
        witness: Witness,
    ) -> Made:
        made = Made(state="approving")
        if waiting is None:
            self._replace(standing, made)
            decision = self._decision(asked, now, kind="approve", state="open")
        else:
            decision = replace(waiting, state="open", second_actor=asked.person.name)
        decision = self._claimed(decision)
        others = first(asked.witnesses, {witness.vm_id}) is not None
        command = Command(
            jti=str(uuid4()),
            decision_id=decision.id,
            event_id=asked.event_id,
            fingerprint=asked.fingerprint,
            vm_id=witness.vm_id,
            channel=witness.channel,
            subject=asked.person.name,
            reason=asked.reason,
            made_at=self._now,
            expires_at=expiry(self._now, decision.not_before, others=others),
        )
        made.jti = command.jti
        self._audit("approve", asked, now, decision, command)
        self._write(made, decision, is_new=waiting is None)
        rows.put_command(self._connection, command, self._number)
        made.commands.append(command)
        site = rows.site_of(self._connection, command.vm_id)
        made.outgoing = None if site is None else Outgoing(command=command, site=site)
        return made

    def _witness(self, asked: Request, now: EventNow) -> Witness | None:
        """The best witness whose own newest record is still what is approved."""
        vm_ids = [each.vm_id for each in asked.witnesses]
        said = rows.read_sightings(self._connection, asked.event_id, vm_ids)
        return first(each for each in asked.witnesses if agrees(said.get(each.vm_id), now))

    def _decision(self, asked: Request, now: EventNow, *, kind: str, state: str) -> Decision:
        not_before = now.shown.facts.not_before
        return Decision(
            id=str(uuid4()),
            event_id=asked.event_id,
            fingerprint=asked.fingerprint,
            kind=kind,
            state=state,
            actor=asked.person.name,
            reason=asked.reason,
            at=self._now,
            not_before=None if not_before is None else seconds(not_before),
        )

    def _claimed(self, decision: Decision) -> Decision:
        until = self._now + LEASE_SECONDS
        return replace(decision, claimed_by=self._console, claimed_until=until)

    def _replace(self, standing: Decision | None, made: Made) -> None:
        """End the decision that a new one takes the place of."""
        if standing is not None:
            after = replace(
                standing,
                state="over",
                outcome="overtaken",
                outcome_reason="decided",
                over_at=self._now,
            )
            rows.change_decision(self._connection, after, self._number)
            made.decisions.append(after)

    def _write(self, made: Made, decision: Decision, *, is_new: bool = True) -> None:
        write = rows.put_decision if is_new else rows.change_decision
        write(self._connection, decision, self._number)
        made.decisions.append(decision)

    def _audit(
        self,
        action: str,
        asked: Request,
        now: EventNow,
        decision: Decision,
        command: Command | None = None,
    ) -> None:
        facts = now.shown.facts
        log.append(
            self._connection,
            at=self._now,
            actor=asked.person.name,
            action=action,
            event_id=asked.event_id,
            jti=None if command is None else command.jti,
            decision=decision.id,
            fingerprint=asked.fingerprint,
            reason=asked.reason,
            first_actor=None if decision.second_actor is None else decision.actor,
            event_type=facts.event_type,
            not_before=facts.not_before,
            resources=list(facts.resources[:_MOST_NAMES]),
            named=len(facts.resources),
            vm_id=None if command is None else command.vm_id,
            channel=None if command is None else command.channel,
        )
