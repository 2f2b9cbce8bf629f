"""The ledger of approvals: every cause that was ever acted upon, and how far it has come.

An entry is written before IMDS is asked, and each step in one transaction with its receipt, so
that a crash between any two steps leaves one approval and one final receipt.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Final, Literal

from bridge.approval.receipts import State, receipt
from bridge.approval.verification import SKEW_SECONDS, Command
from bridge.events.normalize import Observer
from bridge.events.tracked import TrackedEvent
from bridge.store.approvals import ApprovalRow, ApprovalRows
from bridge.store.database import RESET_KEY, Store
from sinks.record import RecordDraft

LOST_KEY: Final = "ledger_lost"
"""In `meta`: when an earlier ledger was lost together with its store, seconds since 1970."""

Asked = Literal["maybe", "error", "in vain"]
"""What the requests may have brought about: not known; IMDS answered each with an error of its own;
or it could not be reached, or said no."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One cause: a command, a rule's decision or a person's word, and its state."""

    cause: str
    """What makes it one and the same: issuer and jti, or rule and state of the event."""
    jti: str
    event_id: str | None
    fingerprint: str | None
    actor: str
    issuer: str | None
    resources: tuple[str, ...]
    state: State = "accepted"
    reason: str | None = None
    asked: Asked = "maybe"

    @property
    def by_rule(self) -> bool:
        """Whether a rule decided it, and neither a command nor a person."""
        return self.cause.startswith("rule\n")


class Ledger:
    """The entries in the store. All methods may be called from any thread."""

    def __init__(self, store: Store, now: datetime) -> None:
        """Raises `StoreError` where the store was lost and that cannot be written down."""
        self._store = store
        self._rows = ApprovalRows(store)
        if store.remembered(RESET_KEY) not in (None, "null"):
            store.commit(meta={LOST_KEY: str(int(now.timestamp()))})
        self._lost = int(store.remembered(LOST_KEY) or 0)

    def may_have_lost(self, issued: int, now: datetime) -> bool:
        """Whether a token of that time, in seconds since 1970, may have been in the ledger that was
        lost: then nobody knows whether it has been used.
        """
        # Not while the clock is before that moment: it was wrong then, or it is now.
        # Who issues tokens may have a clock that is ahead of ours, as `commands` forgives it.
        return issued <= self._lost + SKEW_SECONDS and 0 < self._lost <= now.timestamp()

    def has(self, cause: str) -> bool:
        """Whether the cause has been acted upon. Raises `StoreError`."""
        return self._rows.has(cause)

    def newest_record(self, event: str) -> str | None:
        """The id of the newest committed record of an event, by its key. Raises `StoreError`."""
        return self._rows.newest_record(event)

    def find(self, jti: str) -> Entry | None:
        """The newest entry of that id; None where there is none. Raises `StoreError`."""
        row = self._rows.find(jti)
        return _entry(row) if row else None

    def unfinished(self) -> list[Entry]:
        """The entries that have no final receipt yet, oldest first. Raises `StoreError`."""
        return [_entry(row) for row in self._rows.unfinished()]

    def write(
        self,
        entry: Entry,
        observer: Observer,
        now: datetime,
        *,
        state: State,
        reason: str | None = None,
    ) -> Entry:
        """Bring an entry to a state, with the receipt that says so, in one synced transaction.

        Raises `StoreError`; then neither has happened.
        """
        after = replace(entry, state=state, reason=reason)
        self._rows.put(_row(after), now, _receipt(after, observer, now))
        return after

    def answer(
        self, entry: Entry, observer: Observer, now: datetime, *, state: State, reason: str | None
    ) -> None:
        """Commit a receipt alone: the cause is not used up by it. Raises `StoreError`."""
        self._store.commit([_receipt(replace(entry, state=state, reason=reason), observer, now)])

    def asked(self, entry: Entry, asked: Asked, now: datetime) -> Entry:
        """Note what IMDS may have got: before a try `maybe`, and then what is known of it.

        Raises `StoreError`.
        """
        if entry.asked == asked:
            return entry
        after = replace(entry, asked=asked)
        self._rows.put(_row(after), now)
        return after


def _entry(row: ApprovalRow) -> Entry:
    fields = row._asdict()
    return Entry(
        event_id=fields.pop("event"), **fields | {"resources": tuple(json.loads(row.resources))}
    )


def _row(entry: Entry) -> ApprovalRow:
    fields = asdict(entry)
    return ApprovalRow(
        event=fields.pop("event_id"), **fields | {"resources": json.dumps(entry.resources)}
    )


def entry_of(known: TrackedEvent, *, cause: str, jti: str, actor: str) -> Entry:
    """An entry about an event as it stands now, for a cause that is no token."""
    return Entry(
        cause=cause,
        jti=jti,
        event_id=known.event.event_id,
        fingerprint=known.fingerprint,
        actor=actor,
        issuer=None,
        resources=known.event.resources,
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
    )


def _receipt(entry: Entry, observer: Observer, now: datetime) -> RecordDraft:
    return receipt(
        observer,
        now,
        jti=entry.jti,
        event_id=entry.event_id,
        state=entry.state,
        reason=entry.reason,
        actor=entry.actor,
        issuer=entry.issuer,
        resources=entry.resources,
    )
