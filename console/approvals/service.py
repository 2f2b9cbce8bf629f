"""What people decide: pages, API and command line all come here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from console.access.people import Person
from console.approvals.requests import Request, What
from console.approvals.sending import CommandSender
from console.approvals.signer import Signer
from console.approvals.transaction import DecisionTransaction
from console.approvals.worker import DecisionWorker
from console.audit.flood import Flood
from console.db import decisions as rows
from console.db.snapshot import Snapshots
from console.db.transactions import read_from, write_to
from console.fleet.commands import own_receipts
from console.fleet.decisions import DecisionState
from console.fleet.reporters import PULL
from console.fleet.values import Command
from console.ingest.readers import Publisher


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
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
        self._flood = Flood()
        self._clock = snapshots.clock
        self._sender = CommandSender(signer, publishers, offer=offer, clock=self._clock)
        self._worker = DecisionWorker(
            snapshots, self._sender, connected=connected, committed=committed
        )

    def start(self) -> None:
        """Carry on what is open, from here on; the database must be open."""
        self._worker.start()

    def stop(self) -> None:
        """End; what is open is carried on at the next start, or by another console."""
        self._worker.stop()

    async def approve(self, person: Person, event_id: str, fingerprint: str, reason: str) -> Answer:
        """Approve an event as the person saw it.

        Raises `DecisionRefused`, or `StoreError` if it cannot be audited: nothing is sent then.
        """
        asked = self._request("approve", person, event_id, fingerprint, reason)
        return await asyncio.to_thread(self._decide, asked)

    async def leave(self, person: Person, event_id: str, fingerprint: str, reason: str) -> Answer:
        """Leave an event until its notBefore. Raises as `approve`."""
        asked = self._request("leave", person, event_id, fingerprint, reason)
        return await asyncio.to_thread(self._decide, asked)

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

    def _request(
        self, what: What, person: Person, event_id: str, fingerprint: str, reason: str
    ) -> Request:
        return Request(
            what=what,
            person=person,
            event_id=event_id,
            fingerprint=fingerprint,
            reason=reason.strip(),
            can_sign=self.signer is not None,
            four_eyes=self._four_eyes,
        )

    def _decide(self, asked: Request) -> Answer:
        """One transaction; what it has written is told and sent once it is committed."""
        with write_to(self._database) as (connection, number):
            made = DecisionTransaction(
                self._snapshots.within(connection),
                number,
                console=self._worker.console,
                flood=self._flood,
            ).decide(asked)
        if made.outgoing is not None:
            self._worker.send(made.outgoing)
        if made.decisions or made.commands:
            self._committed()
        if made.refused is not None:
            raise made.refused
        return Answer(state=made.state, jti=made.jti)

    def _waiting(self, vm_id: str) -> list[Command]:
        """The commands that a VM has neither answered nor outlived."""
        with read_from(self._database.reading) as connection:
            waiting = rows.waiting_commands(connection, PULL, self._clock(), vm_id=vm_id)
            receipts = rows.receipts_of(connection, [each.jti for each in waiting])
        return [each for each in waiting if not own_receipts(each, receipts)]
