"""The approvals in the store, one row for each cause. `bridge/approval/transitions.py` has their
states.
"""

from __future__ import annotations

import json
import sqlite3
from dataclasses import astuple, dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from bridge.store.database import RESET_KEY, Store
from wire.moment import rfc3339
from wire.record import RecordDraft

KEEP: Final = 5_000
"""Ten times the commands that can arrive while a token is valid: setting the clock makes none valid
again.
"""
KEEP_TIME: Final = timedelta(days=1)
"""How long each is kept, however many there are."""
PRUNE_EVERY: Final = 100
"""How many receipts are written between two prunings."""
OPEN_STATES: Final = ("accepted", "posted")
LOST_KEY: Final = "ledger_lost"
"""In `meta`: when earlier approvals were lost with their store, in seconds since 1970; and the last
poll before that, because the clock may have been behind when the loss was noticed.
"""
_ANY_REVISION: Final = 1 << 62
"""Stands for a revision that was not stored: it may be the newest."""


State = Literal["rejected", "accepted", "posted", "failed", "confirmed"]
Effect = Literal["none", "in vain", "error", "maybe"]
"""What the requests to IMDS may have done: none was sent; IMDS could not be reached, or refused;
IMDS answered with an error of its own; it is not known.
"""


Act = Literal["approve", "prepare"]


@dataclass(frozen=True, slots=True)
class Approval:
    """The approval for one cause (a command, a rule's decision or a person's request), and its
    state.
    """

    cause: str
    """Identifies the approval: issuer and jti, or rule and state of the event."""
    jti: str
    event_id: str | None
    fingerprint: str | None
    actor: str
    issuer: str | None
    resources: tuple[str, ...]
    state: State = "accepted"
    reason: str | None = None
    effect: Effect = "none"
    person_reason: str | None = None
    """The approver's reason, such as a change number."""
    key: str | None = None
    """The digest of the key that signed the command; None for a rule, a person, and before 0.3."""
    expires: int | None = None
    """When the command expires, seconds since 1970; None as for `key`."""
    act: Act = "approve"
    """The requested act: that IMDS starts the event, or that this VM prepares for it."""
    revision: int | None = None
    """The event's revision when it was approved; None if it is not known, and before 0.3."""
    uptime: float | None = None
    """The machine's uptime when the command was accepted, in seconds; None as for `key`."""

    @property
    def by_rule(self) -> bool:
        """Whether a rule decided it, and neither a command nor a person."""
        return self.cause.startswith("rule\n")


_COLUMNS: Final = (
    "cause, jti, event, fingerprint, actor, issuer, resources, state, reason, asked, why, "
    "key, expires, act, revision, uptime"
)


class ApprovalStore:
    """The approvals of one store. All methods may be called from any thread."""

    def __init__(self, store: Store, now: datetime) -> None:
        """Raises `StoreError` if the store was lost and that fact cannot be written to it."""
        self._store = store
        self._until_prune = 0
        if store.meta(RESET_KEY) not in (None, "null"):
            moments = (now, store.polled_at() or now)
            store.commit(meta={LOST_KEY: " ".join(str(int(at.timestamp())) for at in moments)})
        self._lost = [int(at) for at in (store.meta(LOST_KEY) or "").split()]

    def may_have_lost(self, issued: int, now: datetime, *, skew: float) -> bool:
        """Check whether a token of that issue time (seconds since 1970) may have been used before a
        loss. `skew`: how many seconds the issuer's clock may be ahead of ours.
        """
        # Not while the clock is before that moment: it was wrong then, or it is now.
        return any(issued <= lost + skew and lost <= now.timestamp() + skew for lost in self._lost)

    def has(self, cause: str) -> bool:
        """Check whether the cause was acted upon. Raises `StoreError`."""
        return bool(self._store.read("SELECT 1 FROM approvals WHERE cause = ?", (cause,)))

    def of_cause(self, cause: str) -> Approval | None:
        """Return the approval of a cause, or None. Raises `StoreError`."""
        return next(iter(self._read("cause = ?", cause)), None)

    def find(self, jti: str) -> Approval | None:
        """Return the newest approval of that id, or None. Raises `StoreError`."""
        rows = self._read("jti = ? ORDER BY time DESC LIMIT 1", jti)
        return rows[0] if rows else None

    def unfinished(self) -> list[Approval]:
        """Return the approvals of an event without a final receipt, the oldest first. Raises
        `StoreError`.
        """
        return self._read("state IN (?, ?) AND event IS NOT NULL ORDER BY time", *OPEN_STATES)

    def accepted_at(self, cause: str) -> datetime | None:
        """Return when the cause was first acted upon, by the wall clock at that time. Raises
        `StoreError`.
        """
        rows = self._store.read("SELECT time FROM approvals WHERE cause = ?", (cause,))
        return datetime.fromisoformat(rows[0][0]) if rows else None

    def save(self, approval: Approval, now: datetime, receipt: RecordDraft | None = None) -> None:
        """Write an approval, with a receipt, synced. Raises `StoreError`; then nothing is
        written.
        """
        pruning = receipt is not None and self._until_prune <= 0

        def write(connection: sqlite3.Connection) -> None:
            _upsert(connection, approval, now)
            if pruning:
                _prune(connection, now)

        self._store.commit([] if receipt is None else [receipt], also=write)
        if receipt is not None:
            self._until_prune = PRUNE_EVERY if pruning else self._until_prune - 1

    def add_receipt(self, receipt: RecordDraft) -> None:
        """Commit only a receipt: the cause is not used up by it. Raises `StoreError`."""
        self._store.commit([receipt])

    def newest_record(self, event: str) -> str | None:
        """Return the id of the newest committed record of an event, by its key. Raises
        `StoreError`.
        """
        rows = self._store.read(
            "SELECT id FROM records WHERE event = ? ORDER BY sequence DESC LIMIT 1", (event,)
        )
        return rows[0][0] if rows else None

    def _read(self, where: str, *values: object) -> list[Approval]:
        query = f"SELECT {_COLUMNS} FROM approvals WHERE {where}"  # noqa: S608  # our own words
        rows = self._store.read(query, values)
        return [Approval(*(*row[:6], tuple(json.loads(row[6])), *row[7:])) for row in rows]


def approved_revisions(store: Store) -> dict[str, int]:
    """Return the newest revision in which IMDS may have been asked here to start an event, by the
    event's key. Raises `StoreError`.
    """
    rows = store.read(
        "SELECT event, ifnull(revision, ?) AS approved FROM approvals "
        "WHERE event IS NOT NULL AND act = 'approve' "
        "AND (state IN ('posted', 'confirmed') OR asked NOT IN ('none', 'in vain')) "
        "AND (reason IS NULL OR reason != 'imds_refused') ORDER BY approved",
        (_ANY_REVISION,),
    )
    return {event_id.casefold(): revision for event_id, revision in rows}


def _upsert(connection: sqlite3.Connection, approval: Approval, now: datetime) -> None:
    plain = (json.dumps(each) if isinstance(each, tuple) else each for each in astuple(approval))
    values = (rfc3339(now), *plain)
    connection.execute(
        f"INSERT INTO approvals (time, {_COLUMNS}) "  # noqa: S608  # our own words
        f"VALUES ({', '.join('?' * len(values))}) "
        "ON CONFLICT (cause) DO UPDATE SET state = excluded.state, reason = excluded.reason, "
        "asked = excluded.asked",
        values,
    )


def _prune(connection: sqlite3.Connection, now: datetime) -> None:
    """Delete what is old, closed and beyond the number that is kept."""
    connection.execute(
        "DELETE FROM approvals WHERE cause IN ("
        "SELECT cause FROM approvals "
        "WHERE (state NOT IN (?, ?) OR event IS NULL) AND (time < ? OR time > ?) "
        "ORDER BY time LIMIT max(0, (SELECT count(*) FROM approvals) - ?))",
        (*OPEN_STATES, rfc3339(now - KEEP_TIME), rfc3339(now + KEEP_TIME), KEEP),
    )
