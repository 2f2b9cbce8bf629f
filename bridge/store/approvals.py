"""The rows of approvals in the store: one for each cause. What they mean is the ledger's."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from bridge.store.database import Store
from sinks.record import RecordDraft, rfc3339

KEEP: Final = 5_000
"""How many causes are remembered at least: ten times as many as can come in while one token lives
(450), so that a wall clock that is set cannot make a used one good again."""
KEEP_TIME: Final = timedelta(days=1)
"""How long each is, however many there are."""
PRUNE_EVERY: Final = 100
"""How many receipts come in between two looks at which causes may go."""
OPEN_STATES: Final = ("accepted", "posted")


class ApprovalRow(NamedTuple):
    """One row; `resources` is a JSON list."""

    cause: str
    jti: str
    event: str | None
    fingerprint: str | None
    actor: str
    issuer: str | None
    resources: str
    state: str
    reason: str | None
    asked: str


_COLUMNS: Final = ", ".join(ApprovalRow._fields)


class ApprovalRows:
    """The rows of one store. All methods may be called from any thread."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._until_prune = 0

    def has(self, cause: str) -> bool:
        """Whether there is a row of this cause. Raises `StoreError`."""
        return bool(self._store.read("SELECT 1 FROM approvals WHERE cause = ?", (cause,)))

    def find(self, jti: str) -> ApprovalRow | None:
        """The newest row of that id; None where there is none. Raises `StoreError`."""
        rows = self._read("jti = ? ORDER BY time DESC LIMIT 1", jti)
        return rows[0] if rows else None

    def unfinished(self) -> list[ApprovalRow]:
        """Those about an event that are not in a final state, oldest first. Raises `StoreError`."""
        return self._read("state IN (?, ?) AND event IS NOT NULL ORDER BY time", *OPEN_STATES)

    def put(self, row: ApprovalRow, now: datetime, receipt: RecordDraft | None = None) -> None:
        """Write a row in one synced transaction with its receipt. Raises `StoreError`; then neither
        has happened.
        """
        pruning = receipt is not None and self._until_prune <= 0

        def write(connection: sqlite3.Connection) -> None:
            _put(connection, row, now)
            if pruning:
                _prune(connection, now)

        self._store.commit([] if receipt is None else [receipt], also=write)
        if receipt is not None:
            self._until_prune = PRUNE_EVERY if pruning else self._until_prune - 1

    def newest_record(self, event: str) -> str | None:
        """The id of the newest committed record of an event, by its key. Raises `StoreError`."""
        rows = self._store.read(
            "SELECT id FROM records WHERE event = ? ORDER BY sequence DESC LIMIT 1", (event,)
        )
        return rows[0][0] if rows else None

    def _read(self, where: str, *values: object) -> list[ApprovalRow]:
        query = f"SELECT {_COLUMNS} FROM approvals WHERE {where}"  # noqa: S608  # our own words
        return [ApprovalRow(*row) for row in self._store.read(query, values)]


def approved_events(store: Store) -> frozenset[str]:
    """The keys of the events that IMDS may have been asked to start from here: approved ones start
    before their time, and one that vanishes then need not have been cancelled. Raises `StoreError`.
    """
    rows = store.read(
        "SELECT DISTINCT event FROM approvals WHERE event IS NOT NULL "
        "AND (state IN ('posted', 'confirmed') OR (state = 'accepted' AND asked != 'in vain'))"
    )
    return frozenset(event_id.casefold() for (event_id,) in rows)


def _put(connection: sqlite3.Connection, row: ApprovalRow, now: datetime) -> None:
    values: Sequence[object] = (rfc3339(now), *row)
    connection.execute(
        f"INSERT INTO approvals (time, {_COLUMNS}) "  # noqa: S608  # our own words
        f"VALUES ({', '.join('?' * len(values))}) "
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
