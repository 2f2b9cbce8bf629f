"""The one way to decide: pages, API and command line all come here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from console.access.people import Person
from console.access.scope import decides_event
from console.approvals.refused import DecisionRefusedError
from console.approvals.requests import DecisionRequest, What, is_reason
from console.approvals.sending import CommandRouter
from console.approvals.signer import Signer
from console.approvals.transaction import DecisionTransaction
from console.approvals.turn_requests import TurnSettings, end_turn
from console.approvals.turn_worker import TurnWorker
from console.approvals.worker import DecisionWorker
from console.audit.flood import Flood
from console.db import decisions as rows
from console.db.snapshot import Snapshots
from console.db.transactions import read_from, write_to
from console.fleet.candidates import PULL
from console.fleet.commands import own_receipts
from console.fleet.decisions import DecisionState
from console.fleet.values import Command
from console.ingest.readers import Publisher
from console.turns.groups import Grouping


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionAnswer:
    """What became of a request that was not refused."""

    state: DecisionState
    jti: str | None = None


class Decisions:
    """Checks, audits and writes what people decide, and lets a worker carry it on."""

    def __init__(
        self,
        snapshots: Snapshots,
        *,
        signer: Signer | None,
        publishers: Mapping[str, Publisher],
        offer: Callable[[str, str], None],
        committed: Callable[[], None],
        connected: Callable[[], Mapping[str, float | None]],
        four_eyes: int = 0,
        change_pattern: str | None = None,
        grouping: Grouping | None = None,
    ) -> None:
        """`committed` is told that rows were written; `offer` wakes a VM that polls over HTTPS;
        `connected` gives, for each source of this console, since when it is connected.
        """
        self.signer = signer
        """None: nothing can be approved."""
        self._snapshots = snapshots
        self._database = snapshots.database
        self._committed = committed
        self._four_eyes = four_eyes
        self._change_pattern = change_pattern
        self._flood = Flood()
        self._clock = snapshots.clock
        self._sender = CommandRouter(signer, publishers, offer=offer, clock=self._clock)
        self._turns = TurnSettings(
            grouping=grouping or Grouping(()), can_sign=signer is not None, four_eyes=four_eyes
        )
        self._worker = DecisionWorker(
            snapshots,
            self._sender,
            connected=connected,
            committed=committed,
            turns=self._turns,
        )
        self._turn_worker = TurnWorker(
            snapshots,
            self._turns,
            console=self._worker.console,
            send=self._worker.send,
            connected=connected,
            committed=committed,
        )

    def start(self) -> None:
        """Carry on what is open, from here on; the database must be open."""
        self._worker.start()
        self._turn_worker.start()

    def stop(self) -> None:
        """End; what is open is carried on at the next start, or by another console."""
        self._turn_worker.stop()
        self._worker.stop()

    async def approve(
        self,
        person: Person,
        event_id: str,
        fingerprint: str,
        reason: str,
        *,
        force: bool = False,
        scope: str | None = None,
    ) -> DecisionAnswer:
        """Approve an event as the person saw it, in a scope if one is given; `force`: though it is
        not due its turn.

        Raises `DecisionRefusedError`, or `StoreError` if it cannot be audited: then nothing is
        sent.
        """
        asked = self._request(
            "approve", person, event_id, fingerprint, reason, force=force, scope=scope
        )
        return await asyncio.to_thread(self._decide, asked)

    async def leave(
        self,
        person: Person,
        event_id: str,
        fingerprint: str,
        reason: str,
        *,
        scope: str | None = None,
    ) -> DecisionAnswer:
        """Leave an event until its notBefore. Raises as `approve`."""
        asked = self._request("leave", person, event_id, fingerprint, reason, scope=scope)
        return await asyncio.to_thread(self._decide, asked)

    async def end_turn(
        self,
        person: Person,
        event_id: str,
        reason: str,
        *,
        force: bool = False,
        scope: str | None = None,
    ) -> None:
        """End the turn of an event; `force`: one that is not stuck. Raises as `approve`."""
        await asyncio.to_thread(
            self._end_turn, person, event_id, reason.strip(), force=force, scope=scope
        )

    def tokens_for(self, vm_id: str) -> list[bytes]:
        """The signed commands that a VM which asks over HTTPS is to have now; on any thread.

        Raises `StoreError` or `SigningError`.
        """
        return [self._sender.token(each) for each in self._waiting(vm_id)]

    def fetched(self, vm_id: str) -> None:
        """The VM has been given what `tokens_for` returned; on any thread. Raises `StoreError`."""
        self._worker.fetched([each for each in self._waiting(vm_id) if each.sent_at is None])

    def changed(self, since: int | None) -> None:
        """Rows were committed after a transaction, here or by another console; None: any may have
        been. Open decisions may have a next step.
        """
        self._worker.changed(since)
        self._turn_worker.changed()

    def _request(
        self,
        what: What,
        person: Person,
        event_id: str,
        fingerprint: str,
        reason: str,
        *,
        force: bool = False,
        scope: str | None,
    ) -> DecisionRequest:
        return DecisionRequest(
            what=what,
            person=person,
            event_id=event_id,
            fingerprint=fingerprint,
            reason=reason.strip(),
            scope=scope,
            can_sign=self.signer is not None,
            four_eyes=self._four_eyes,
            change_pattern=self._change_pattern,
            force=force,
        )

    def _end_turn(
        self, person: Person, event_id: str, reason: str, *, force: bool, scope: str | None
    ) -> None:
        if "approver" not in person.roles:
            raise DecisionRefusedError("role")
        if not is_reason(reason):
            raise DecisionRefusedError("reason")
        with write_to(self._database) as (connection, number):
            snapshot = self._snapshots.within(connection)
            known = snapshot.events.one(event_id, scope)
            sites = () if known is None else (each.site for each in known.named.values())
            if known is None:
                raise DecisionRefusedError("unknown")
            if not decides_event(person, known.event, sites):
                raise DecisionRefusedError("site")
            end_turn(
                snapshot,
                number,
                person=person,
                known=known,
                reason=reason,
                force=force,
                settings=self._turns,
            )
        self._committed()

    def _decide(self, asked: DecisionRequest) -> DecisionAnswer:
        """One transaction; what it has written is told and sent once it is committed."""
        with write_to(self._database) as (connection, number):
            made = DecisionTransaction(
                self._snapshots.within(connection),
                number,
                console=self._worker.console,
                flood=self._flood,
                turns=self._turns,
            ).decide(asked)
        if made.outgoing is not None:
            self._worker.send(made.outgoing)
        if made.decisions or made.commands or made.has_turn:
            self._committed()
        if made.refused is not None:
            raise made.refused
        return DecisionAnswer(state=made.state, jti=made.jti)

    def _waiting(self, vm_id: str) -> list[Command]:
        """The commands that a VM has neither answered nor outlived."""
        with read_from(self._database.reading) as connection:
            waiting = rows.waiting_commands(connection, PULL, self._clock(), vm_id=vm_id)
            receipts = rows.receipts_of(connection, [each.jti for each in waiting])
        return [each for each in waiting if not own_receipts(each, receipts)]
