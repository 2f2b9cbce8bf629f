"""The one door of decisions: pages, API and command line come through here."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from console.access.people import Person
from console.access.scope import decides_event
from console.audit.flood import Flood
from console.decisions.deciding import Deciding, Made
from console.decisions.driver import Driver
from console.decisions.requests import Request
from console.decisions.sending import Sending
from console.decisions.signer import Signer
from console.fleet.commands import command_item, own_receipts
from console.fleet.contact import Ears
from console.fleet.decisions import DecisionState
from console.fleet.index import Fleet
from console.fleet.values import Command, Event
from console.fleet.witnesses import PULL, Witness, witnesses
from console.sources.readers import Publisher
from console.store import decisions as rows
from console.store.opening import Database
from console.store.transactions import read_from, write_to

OnLoop = Callable[[Callable[[], Any]], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What became of a request that was not refused."""

    state: DecisionState
    jti: str | None = None


class Decisions:
    """Checks, audits and writes what people decide, and lets the driver carry it on."""

    def __init__(
        self,
        database: Database,
        fleet: Fleet,
        *,
        signer: Signer | None,
        publishers: Mapping[str, Publisher],
        offer: Callable[[str, str], None],
        committed: Callable[[], None],
        ears: Callable[[], Ears],
        on_loop: OnLoop,
        four_eyes: int = 0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`committed` is told that rows were written; `offer` wakes a VM that asks over
        HTTPS; `on_loop` calls on the event loop's thread, which alone uses the fleet.
        """
        self.signer = signer
        """None: nothing can be approved."""
        self._database = database
        self._fleet = fleet
        self._committed = committed
        self._ears = ears
        self._on_loop = on_loop
        self._four_eyes = four_eyes
        self._flood = Flood()
        self._clock = clock
        self._driver = Driver(
            database,
            witnesses=lambda event_ids: on_loop(lambda: self._witnesses(event_ids)) or {},
            connected=lambda: ears().since,
            committed=committed,
            clock=clock,
        )
        self._sending = Sending(
            signer, publishers, offer=offer, answered=self._driver.answered, clock=clock
        )

    def start(self) -> None:
        """Carry on what is open, from here on; the database must be open."""
        self._driver.start(self._sending)

    def stop(self) -> None:
        """End; what is open is carried on at the next start, or by another console."""
        self._driver.stop()

    async def approve(self, person: Person, event_id: str, fingerprint: str, reason: str) -> Answer:
        """Approve an event as the person saw it. Called on the event loop.

        Raises `DecisionRefused`, or `StoreError` if it cannot be audited: nothing is sent then.
        """
        asked = self._request(person, event_id, fingerprint, reason)
        made = await asyncio.to_thread(
            self._decide, lambda work: work.approve(asked, four_eyes=self._four_eyes)
        )
        return Answer(state=made.state, jti=made.jti)

    async def leave(self, person: Person, event_id: str, fingerprint: str, reason: str) -> Answer:
        """Leave an event until its notBefore. Called on the event loop. Raises as `approve`."""
        asked = self._request(person, event_id, fingerprint, reason)
        made = await asyncio.to_thread(self._decide, lambda work: work.leave(asked))
        return Answer(state=made.state)

    def command(self, jti: str) -> dict[str, Any] | None:
        """A command as the API shows it; None if its jti is not known. Raises `StoreError`."""
        with read_from(self._database.reading) as connection:
            found = rows.read_command(connection, jti)
            if found is None:
                return None
            return command_item(*found, rows.read_decision(connection, found[0].decision_id))

    def tokens_for(self, vm_id: str) -> list[bytes]:
        """The signed commands that a VM which asks over HTTPS is to have now; on any thread.

        Raises `StoreError` or `SigningError`.
        """
        return [self._sending.token(each) for each in self._waiting(vm_id)]

    def fetched(self, vm_id: str) -> None:
        """The VM has been given what `tokens_for` returned; on any thread. Raises `StoreError`."""
        self._driver.fetched([each for each in self._waiting(vm_id) if each.sent_at is None])

    def news(self, event_ids: Iterable[str]) -> None:
        """Rows about these events were committed, here or by another console."""
        self._driver.note(event_ids)

    def _request(self, person: Person, event_id: str, fingerprint: str, reason: str) -> Request:
        event = self._fleet.events.get(event_id)
        return Request(
            person=person,
            event_id=event_id,
            fingerprint=fingerprint,
            reason=reason.strip(),
            is_of_own_site=self._is_of_own_site(person, event),
            can_sign=self.signer is not None,
            witnesses=[] if event is None else self._witnesses([event_id])[event_id],
        )

    def _is_of_own_site(self, person: Person, event: Event | None) -> bool:
        """Whether an approval would release VMs of the person's site alone."""
        if event is None:
            return person.site is None
        named = self._fleet.named_by(event.event_id).values()
        return decides_event(person, event, (self._fleet.vms[vm_id] for vm_id in named))

    def _witnesses(self, event_ids: Iterable[str]) -> dict[str, list[Witness]]:
        """On the event loop: who can be asked, by event id."""
        now, ears = self._clock(), self._ears()
        events = [self._fleet.events[each] for each in event_ids if each in self._fleet.events]
        return {each.event_id: witnesses(self._fleet, each, now, ears) for each in events}

    def _decide(self, work: Callable[[Deciding], Made]) -> Made:
        """One transaction; what it made is told and sent once it is committed."""
        with write_to(self._database) as (connection, number):
            deciding = Deciding(
                connection,
                number,
                now=self._clock(),
                console=self._driver.console,
                flood=self._flood,
            )
            made = work(deciding)
        if made.outgoing is not None:
            self._driver.send(made.outgoing)
        if made.decisions or made.commands:
            self._committed()
        if made.refused is not None:
            raise made.refused
        return made

    def _waiting(self, vm_id: str) -> list[Command]:
        """The commands that a VM has neither answered nor outlived."""
        with read_from(self._database.reading) as connection:
            waiting = rows.waiting_commands(connection, vm_id, PULL, self._clock())
            receipts = rows.receipts_of(connection, [each.jti for each in waiting])
        return [each for each in waiting if not own_receipts(each, receipts)]
