"""The ledger of approvals: every cause that was ever acted upon, and how far it has come.

An entry is written before IMDS is asked, and each step in one transaction with its receipt, so
that a crash between any two steps leaves one approval and one final receipt.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final, Literal

from bridge.commands import SKEW_SECONDS, Command
from bridge.known import KnownEvent
from bridge.normalize import Observer
from bridge.receipts import State, receipt
from bridge.store import RESET_KEY, Store
from sinks.record import RecordDraft, rfc3339

KEEP: Final = 5_000
"""How many causes are remembered at least: ten times as many as can come in while one token lives
(450), so that a wall clock that is set cannot make a used one good again."""
KEEP_TIME: Final = timedelta(days=1)
"""How long each is, however many there are."""
PRUNE_EVERY: Final = 100
"""How many causes come in between two looks at which may go."""
LOST_KEY: Final = "ledger_lost"
"""In `meta`: when an earlier ledger was lost together with its store, seconds since 1970."""
OPEN_STATES: Final = ("accepted", "posted")
_COLUMNS: Final = "cause, jti, event, fingerprint, actor, issuer, resources, state, reason, asked"

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
        self._until_prune = 0
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
        return bool(self._store.read("SELECT 1 FROM approvals WHERE cause = ?", (cause,)))

    def newest_record(self, event: str) -> str | None:
        """The id of the newest committed record of an event, by its key. Raises `StoreError`."""
        rows = self._store.read(
            "SELECT id FROM records WHERE event = ? ORDER BY sequence DESC LIMIT 1", (event,)
        )
        return rows[0][0] if rows else None

    def find(self, jti: str) -> Entry | None:
        """The newest entry of that id; None where there is none. Raises `StoreError`."""
        rows = self._store.read(
            f"SELECT {_COLUMNS} FROM approvals WHERE jti = ? ORDER BY time DESC LIMIT 1",  # noqa: S608
            (jti,),
        )
        return _entry(rows[0]) if rows else None

    def unfinished(self) -> list[Entry]:
        """The entries that have no final receipt yet, oldest first. Raises `StoreError`."""
        rows = self._store.read(
            f"SELECT {_COLUMNS} FROM approvals "  # noqa: S608  # our own columns
            "WHERE state IN (?, ?) AND event IS NOT NULL ORDER BY time",
            OPEN_STATES,
        )
        return [_entry(row) for row in rows]

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

        def put(connection: sqlite3.Connection) -> None:
            _put(connection, after, now)
            if self._until_prune <= 0:
                _prune(connection, now)

        self._store.commit([_receipt(after, observer, now)], also=put)
        self._until_prune = PRUNE_EVERY if self._until_prune <= 0 else self._until_prune - 1
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
        self._store.commit(also=lambda connection: _put(connection, after, now))
        return after


def approved_events(store: Store) -> frozenset[str]:
    """The keys of the events that IMDS may have been asked to start from here: approved ones start
    before their time, and one that vanishes then need not have been cancelled. Raises `StoreError`.
    """
    rows = store.read(
        "SELECT DISTINCT event FROM approvals WHERE event IS NOT NULL "
        "AND (state IN ('posted', 'confirmed') OR (state = 'accepted' AND asked != 'in vain'))"
    )
    return frozenset(event_id.casefold() for (event_id,) in rows)


def _entry(row: Sequence[Any]) -> Entry:
    cause, jti, event_id, fingerprint, actor, issuer, resources, state, reason, asked = row
    return Entry(
        cause=cause,
        jti=jti,
        event_id=event_id,
        fingerprint=fingerprint,
        actor=actor,
        issuer=issuer,
        resources=tuple(json.loads(resources)),
        state=state,
        reason=reason,
        asked=asked,
    )


def entry_of(known: KnownEvent, *, cause: str, jti: str, actor: str) -> Entry:
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


def entry_of_command(command: Command, known: KnownEvent | None) -> Entry:
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


def _put(connection: sqlite3.Connection, entry: Entry, now: datetime) -> None:
    values: Sequence[object] = (
        entry.cause,
        rfc3339(now),
        entry.jti,
        entry.event_id,
        entry.fingerprint,
        entry.actor,
        entry.issuer,
        json.dumps(entry.resources),
        entry.state,
        entry.reason,
        entry.asked,
    )
    connection.execute(
        "INSERT INTO approvals (cause, time, jti, event, fingerprint, actor, issuer, resources, "
        "state, reason, asked) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (cause) DO UPDATE SET state = excluded.state, reason = excluded.reason, "
        "asked = excluded.asked",
        values,
    )


def _prune(connection: sqlite3.Connection, now: datetime) -> None:
    """Forget what is old, closed and beyond the number that is kept; never what is under way."""
    connection.execute(
        "DELETE FROM approvals WHERE cause IN ("
        "SELECT cause FROM approvals "
        "WHERE (state NOT IN (?, ?) OR event IS NULL) AND (time < ? OR time > ?) "
        "ORDER BY time LIMIT max(0, (SELECT count(*) FROM approvals) - ?))",
        (*OPEN_STATES, rfc3339(now - KEEP_TIME), rfc3339(now + KEEP_TIME), KEEP),
    )
