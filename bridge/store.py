"""The store: one SQLite file that holds the document as last seen and the committed records.

A document and its records are committed in one transaction, on disk before anybody sends them.
This module never sends, and nothing else writes the file: one connection, exclusively locked.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from bridge.known import KnownEvent, dump_known, load_known
from sinks.record import (
    BRIDGE_HEARTBEAT,
    EventRecord,
    RecordDraft,
    VmIdentity,
    canonical_json,
    rfc3339,
    seal,
)

BALLAST_NAME: Final = "ballast"
LOOKED_NAME: Final = "looked"
BALLAST_BYTES: Final = 1 << 20
KEEP_DELIVERED: Final = 1_000
"""Delivered records that stay readable, for pages and for a sink that is configured later."""
KEEP_ENDED: Final = timedelta(days=60)
"""How long after its first sight an event that ended is remembered, so that its revisions grow on
if it returns. Azure announces at most some days ahead."""
_PRUNE_AT_ONCE: Final = 500


class StoreError(Exception):
    """The store could not be read or written just now; what was to be committed is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the store remembers of IMDS."""

    incarnation: int | None
    known: Mapping[str, KnownEvent]
    looked_at: datetime | None
    boot_id: str | None


class Store:
    """One open store. All methods may be called from any thread."""

    def __init__(self, directory: Path, connection: sqlite3.Connection) -> None:
        self.directory = directory
        self._connection = connection
        self._lock = threading.RLock()
        self._meta: dict[str, str] = dict(connection.execute("SELECT key, value FROM meta"))
        self.stream = self._meta["stream"]
        self._head = int(self._meta["sequence"])
        self._keep_ballast()

    @property
    def head(self) -> int:
        """The sequence of the newest record; 0 where there is none."""
        return self._head

    @property
    def last_record_sequence(self) -> int:
        """The sequence of the newest record that is no heartbeat; 0 where there is none."""
        return int(self._meta.get("record_sequence", "0"))

    @contextmanager
    def transaction(self, *, durable: bool = True) -> Iterator[sqlite3.Connection]:
        """One transaction; durable ones are on disk, fsynced, when the block has ended.

        A transaction that is not durable survives the end of the process but not a power cut; it
        is for progress that may be repeated. Raises `StoreError`, after which nothing has changed.
        """
        with self._lock:
            try:
                self._connection.execute(
                    "PRAGMA synchronous=FULL" if durable else "PRAGMA synchronous=NORMAL"
                )
                self._connection.execute("BEGIN IMMEDIATE")
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException as error:
                with suppress(sqlite3.Error):
                    if self._connection.in_transaction:
                        self._connection.execute("ROLLBACK")
                if isinstance(error, sqlite3.Error):
                    self._drop_ballast(error)
                    raise StoreError(f"the store in {self.directory}: {error}") from error
                raise

    def read(self, query: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """The rows that a query gives. Raises `StoreError`."""
        with self._lock:
            try:
                return self._connection.execute(query, values).fetchall()
            except sqlite3.Error as error:
                raise StoreError(f"the store in {self.directory}: {error}") from error

    def seen(self, now: datetime) -> Seen:
        """What is remembered of IMDS from before. Raises `StoreError`."""
        with self.transaction() as connection:
            connection.execute(
                "DELETE FROM events WHERE NOT pending AND seen < ?", (rfc3339(now - KEEP_ENDED),)
            )
            rows = connection.execute("SELECT key, value FROM events").fetchall()
        return Seen(
            incarnation=json.loads(self._meta.get("incarnation", "null")),
            known={key: load_known(value) for key, value in rows},
            looked_at=self.looked_at(),
            boot_id=self._meta.get("boot_id"),
        )

    def commit(
        self,
        drafts: Sequence[RecordDraft] = (),
        *,
        known: Iterable[KnownEvent] = (),
        meta: Mapping[str, str] | None = None,
        also: Callable[[sqlite3.Connection], object] | None = None,
    ) -> list[EventRecord]:
        """Commit what was seen and the records of it, all or nothing, fsynced; `also` takes part
        in the same transaction.

        The records come back with their place in the stream. Raises `StoreError`.
        """
        with self._lock:
            records = [
                seal(draft, sequence=self._head + place, stream=self.stream)
                for place, draft in enumerate(drafts, start=1)
            ]
            changed = dict(meta or {})
            if records:
                changed["sequence"] = str(records[-1].sequence)
            lasting = [record.sequence for record in records if not record.is_heartbeat]
            if lasting:
                changed["record_sequence"] = str(lasting[-1])
            with self.transaction() as connection:
                _insert_records(connection, records)
                _upsert_known(connection, known)
                connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", changed.items())
                if also is not None:
                    also(connection)
                _prune(connection, self._head)
            self._meta |= changed
            self._head += len(records)
            return records

    def identity(self) -> VmIdentity | None:
        """The identity as last kept, so that a start need not wait for IMDS."""
        kept = self._meta.get("identity")
        return None if kept is None else VmIdentity.from_wire(json.loads(kept))

    def keep_identity(self, identity: VmIdentity) -> None:
        """Keep the identity for the next start. Raises `StoreError`."""
        text = canonical_json(identity.to_wire()).decode()
        if text != self._meta.get("identity"):
            self.commit(meta={"identity": text})

    def mark_looked(self, moment: datetime) -> None:
        """Remember the last good look at IMDS, for the gap after a restart.

        A file's time stamp does it without a sync each second: it outlives the process, and
        after a power cut it is at worst some seconds old, which lengthens the gap and hides
        nothing. Raises `StoreError`.
        """
        path = self.directory / LOOKED_NAME
        stamp = int(moment.timestamp() * 1_000_000_000)
        try:
            try:
                os.utime(path, ns=(stamp, stamp))
            except FileNotFoundError:
                path.touch()
                os.utime(path, ns=(stamp, stamp))
        except (OSError, OverflowError) as error:
            raise StoreError(f"the state directory {self.directory}: {error}") from error

    def looked_at(self) -> datetime | None:
        """When IMDS last gave a good document; None for never."""
        try:
            stamp = (self.directory / LOOKED_NAME).stat().st_mtime
            return datetime.fromtimestamp(stamp, UTC)
        except (OSError, OverflowError, ValueError):
            return None

    def close(self) -> None:
        """Let go of the file and its lock."""
        with self._lock:
            self._connection.close()

    def _drop_ballast(self, error: sqlite3.Error) -> None:
        # A full disk stops DELETE as well as INSERT; what the ballast frees lets both go on.
        if getattr(error, "sqlite_errorcode", None) in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            with suppress(OSError):
                (self.directory / BALLAST_NAME).unlink()

    def _keep_ballast(self) -> None:
        path = self.directory / BALLAST_NAME
        with suppress(OSError):
            if not path.exists():
                path.write_bytes(b"\0" * BALLAST_BYTES)


def _insert_records(connection: sqlite3.Connection, records: Sequence[EventRecord]) -> None:
    if any(record.is_heartbeat for record in records):
        # Only the newest heartbeat matters: a backlog must not grow by them.
        connection.execute(
            "DELETE FROM records WHERE type = ? AND sequence NOT IN (SELECT sequence FROM dead)",
            (BRIDGE_HEARTBEAT,),
        )
    connection.executemany(
        "INSERT INTO records (sequence, type, time, event, affects, body) "
        "VALUES (?, ?, ?, ?, ?, ?)",
        [
            (
                record.sequence,
                record.type,
                record.time,
                record.event_id and record.event_id.casefold(),
                record.affects_this_vm,
                record.body,
            )
            for record in records
        ],
    )


def _upsert_known(connection: sqlite3.Connection, known: Iterable[KnownEvent]) -> None:
    connection.executemany(
        "INSERT OR REPLACE INTO events (key, pending, seen, value) VALUES (?, ?, ?, ?)",
        [(k.event.key, k.pending, rfc3339(k.first_seen), dump_known(k)) for k in known],
    )


def _prune(connection: sqlite3.Connection, head: int) -> None:
    """Forget what every sink has, a bounded number of rows at a time."""
    (oldest,) = connection.execute("SELECT min(sequence) FROM records").fetchone()
    (slowest,) = connection.execute("SELECT min(cursor) FROM sinks WHERE active").fetchone()
    floor = min(head - KEEP_DELIVERED, slowest if slowest is not None else head)
    if oldest is None or oldest > floor:
        return
    pruned = connection.execute(
        "DELETE FROM records WHERE sequence <= ? AND sequence NOT IN (SELECT sequence FROM dead)",
        (min(floor, oldest + _PRUNE_AT_ONCE),),
    )
    if pruned.rowcount:
        connection.execute(f"PRAGMA incremental_vacuum({_PRUNE_AT_ONCE})").fetchall()
