"""The service that decides: pages, API and command line all use it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from console.access.people import Person
from console.approvals.command_sender import VmCommandSender
from console.approvals.decision_requests import DecisionPolicy, DecisionRequest
from console.approvals.decision_worker import DecisionWorker
from console.approvals.request_transaction import DecisionResult, RequestTransaction
from console.approvals.turn_requests import end_turn
from console.approvals.turn_worker import TurnWorker
from console.audit.limiter import AuditLimiter
from console.db.connection.transactions import write_to
from console.db.decisions import decision_rows
from console.db.snapshot import Snapshots
from console.db.turn_facts.kept_turn_facts import KeptTurnFacts
from console.db.turn_facts.turn_facts import TurnSettings
from console.fleet.candidates import PULL
from console.fleet.commands import own_receipts
from console.fleet.values.decision import VmCommand
from console.ingest.readers import SourcePublisher
from console.signing.signer import Signer
from console.turns.plan import may_be_given


class Decisions:
    """Checks, audits and writes what people decide; workers carry it out."""

    def __init__(
        self,
        snapshots: Snapshots,
        *,
        signer: Signer | None,
        publishers: Mapping[str, SourcePublisher],
        offer: Callable[[str, str], None],
        on_commit: Callable[[], None],
        connected: Callable[[], Mapping[str, float | None]],
        four_eyes: int = 0,
        change_pattern: str | None = None,
        turns: TurnSettings,
        turn_facts: KeptTurnFacts,
    ) -> None:
        """`on_commit` is called after rows were written. `offer` wakes a VM that polls over HTTPS.
        `connected` returns, for each source of this console, since when it is connected.
        """
        self.signer = signer
        """None: nothing can be approved."""
        self._snapshots = snapshots
        self._database = snapshots.database
        self._on_commit = on_commit
        self._four_eyes = four_eyes
        self._change_pattern = change_pattern
        self._audit_limiter = AuditLimiter()
        self._clock = snapshots.clock
        self._sender = VmCommandSender(signer, publishers, offer=offer, clock=self._clock)
        self._turns = turns
        self._turn_facts = turn_facts
        self._worker = DecisionWorker(
            snapshots,
            self._sender,
            connected=connected,
            on_commit=on_commit,
            turns=turns,
        )
        self._turn_worker = TurnWorker(
            snapshots,
            turns,
            turn_facts,
            run_id=self._worker.run_id,
            send=self._worker.send,
            connected=connected,
            on_commit=on_commit,
        )

    def start(self) -> None:
        """Start the workers, which continue open decisions too; the database must be open."""
        self._worker.start()
        self._turn_worker.start()

    def stop(self) -> None:
        """Stop the workers. Open decisions continue at the next start, or at another console."""
        self._turn_worker.stop()
        self._worker.stop()

    async def decide(self, request: DecisionRequest) -> DecisionResult:
        """Decide as a person asks for, in one transaction; workers carry it out.

        Raises `DecisionRefusedError`, or `DatabaseFailedError` if it cannot be audited: then
        nothing is sent.
        """
        return await asyncio.to_thread(self._decide, request)

    async def end_turn(
        self,
        person: Person,
        event_id: str,
        reason: str,
        *,
        force: bool = False,
        scope: str | None = None,
    ) -> None:
        """End the turn of an event. With `force` it is ended even if it is not stuck. Raises what
        `decide` raises.
        """
        request = DecisionRequest(
            what="end_turn",
            person=person,
            event_id=event_id,
            fingerprint="",
            reason=reason.strip(),
            scope=scope,
            force=force,
        )
        await asyncio.to_thread(self._end_turn, request)

    def commands_for(self, vm_id: str) -> list[VmCommand]:
        """Return the commands that a VM that asks over HTTPS is to follow now: those without a
        receipt that have not expired and for which its group still has room. May be called from
        any thread. Raises `DatabaseFailedError`.
        """
        with self._snapshots.open() as snapshot:
            connection = snapshot.connection
            waiting = decision_rows.waiting_commands(connection, PULL, snapshot.now, vm_id=vm_id)
            if not waiting:
                return []
            receipts = decision_rows.receipts_of(connection, [each.jti for each in waiting])
            facts = self._turn_facts.facts_for(snapshot)
            return [
                each
                for each in waiting
                if not own_receipts(each, receipts) and may_be_given(each, facts, snapshot.now)
            ]

    def sign(self, commands: Iterable[VmCommand]) -> list[bytes]:
        """Return commands, signed; may be called from any thread. Raises `SigningError`."""
        return [self._sender.token(each) for each in commands]

    def note_fetched(self, commands: Iterable[VmCommand]) -> None:
        """Note that a VM was given these commands; may be called from any thread. Raises
        `DatabaseFailedError`.
        """
        self._worker.note_fetched([each for each in commands if each.sent_at is None])

    def check_again(self, since: int | None) -> None:
        """Check open decisions again: rows were committed after the transaction `since`, here or
        by another console. None: any rows may have changed.
        """
        self._worker.check_again(since)
        self._turn_worker.check_again()

    def _end_turn(self, request: DecisionRequest) -> None:
        with write_to(self._database) as (connection, change_number):
            end_turn(self._snapshots.of(connection), change_number, request, self._turns)
        self._on_commit()

    def _decide(self, request: DecisionRequest) -> DecisionResult:
        policy = DecisionPolicy(
            can_sign=self.signer is not None,
            four_eyes=self._four_eyes,
            change_pattern=self._change_pattern,
        )
        with write_to(self._database) as (connection, change_number):
            result = RequestTransaction(
                self._snapshots.of(connection),
                change_number,
                run_id=self._worker.run_id,
                policy=policy,
                audit_limiter=self._audit_limiter,
                turns=self._turns,
            ).decide(replace(request, reason=request.reason.strip()))
        if result.outgoing is not None:
            self._worker.send(result.outgoing)
        self._on_commit()
        if result.refusal is not None:
            raise result.refusal
        return result
