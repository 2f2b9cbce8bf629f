"""The ledger of approvals: each step is one transaction with its receipt."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Final

from bridge.approval.verification import SKEW_SECONDS, Command
from bridge.events.normalize import Observer
from bridge.events.tracked import TrackedEvent
from bridge.store.approvals import ApprovalRows, Asked, Entry, State
from bridge.store.database import RESET_KEY, Store
from sinks.record import APPROVAL, RecordDraft

LOST_KEY: Final = "ledger_lost"
"""In `meta`: when an earlier ledger was lost together with its store, seconds since 1970."""


class Ledger(ApprovalRows):
    """The entries in the store. All methods may be called from any thread."""

    def __init__(self, store: Store, now: datetime) -> None:
        """Raises `StoreError` if the store was lost and that cannot be written down."""
        super().__init__(store)
        if store.remembered(RESET_KEY) not in (None, "null"):
            store.commit(meta={LOST_KEY: str(int(now.timestamp()))})
        self._lost = int(store.remembered(LOST_KEY) or 0)

    def may_have_lost(self, issued: int, now: datetime) -> bool:
        """Whether a token issued then (seconds since 1970) may have been used before a loss."""
        # Not while the clock is before that moment: it was wrong then, or it is now. The issuer's
        # clock may be ahead of ours, as `verification` allows.
        return issued <= self._lost + SKEW_SECONDS and 0 < self._lost <= now.timestamp()

    def write(
        self,
        entry: Entry,
        observer: Observer,
        now: datetime,
        *,
        state: State,
        reason: str | None = None,
    ) -> Entry:
        """Bring an entry to a state, with its receipt, synced, or raise `StoreError`."""
        after = replace(entry, state=state, reason=reason)
        self.put(after, now, receipt(after, observer, now))
        return after

    def answer(
        self, entry: Entry, observer: Observer, now: datetime, *, state: State, reason: str | None
    ) -> None:
        """Commit a receipt alone: the cause is not used up by it. Raises `StoreError`."""
        after = replace(entry, state=state, reason=reason)
        self._store.commit([receipt(after, observer, now)])

    def asked(self, entry: Entry, asked: Asked, now: datetime) -> Entry:
        """Note what IMDS may have got: before a try `maybe`. Raises `StoreError`."""
        if entry.asked == asked:
            return entry
        after = replace(entry, asked=asked)
        self.put(after, now)
        return after


def entry_of(
    known: TrackedEvent, *, cause: str, jti: str, actor: str, why: str | None = None
) -> Entry:
    """An entry about an event as it stands now, for a cause that is not a token."""
    return Entry(
        cause=cause,
        jti=jti,
        event_id=known.event.event_id,
        fingerprint=known.fingerprint,
        actor=actor,
        issuer=None,
        resources=known.event.resources,
        why=why,
    )


def cause_of(command: Command) -> str:
    """What makes a command one and the same over every channel and after every restart."""
    return f"command\n{command.issuer}\n{command.jti}"


def entry_of_command(command: Command, known: TrackedEvent | None) -> Entry:
    """An entry about what a command asks for, of an event as far as it is known."""
    return Entry(
        cause=cause_of(command),
        jti=command.jti,
        event_id=known.event.event_id if known else command.event_id,
        fingerprint=command.fingerprint,
        actor=command.subject,
        issuer=command.issuer,
        resources=known.event.resources if known else (),
        why=command.why,
    )


def receipt(entry: Entry, observer: Observer, now: datetime) -> RecordDraft:
    """One step of an approval, or the answer to a ping; `rsn` is the approver's own text."""
    about = f"scheduledEvents/{entry.event_id}" if entry.event_id else None
    return RecordDraft(
        type=APPROVAL,
        source=observer.vm.source,
        subject=about or f"bridge/{observer.instance_id}",
        time=now,
        partition_key=observer.vm.vm_id,
        data={
            **observer.to_wire(),
            "jti": entry.jti,
            "evt": entry.event_id,
            "state": entry.state,
            "reason": entry.reason,
            "actor": entry.actor,
            "issuer": entry.issuer,
            "resources": list(entry.resources),
            "rsn": entry.why,
        },
    )
