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
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from bridge.errors import TryLaterError
from bridge.store.ballast import Ballast
from bridge.store.retention import PRUNE_EVERY, prune, shrink
from bridge.store.rows import (
    EventRow,
    forget,
    insert_records,
    read_meta,
    upsert_events,
    upsert_meta,
)
from sinks.record import (
    BRIDGE_STORE_RESET,
    EventRecord,
    RecordDraft,
    VmIdentity,
    canonical_json,
    seal,
)

LOOKED_NAME: Final = "looked"
CONDEMNED_NAME: Final = "condemned"
"""A file that says that the store was found damaged while in use; the next start puts it aside."""
RESET_KEY: Final = "reset"
"""What is kept in `meta` of a reset of the store until the record that tells it is committed."""
CONFIRMED_BOOT_KEY: Final = "confirmed_boot"
"""What is kept in `meta` of the boot in which IMDS last said whose VM this is."""
_FULL: Final = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR})
_DAMAGED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


Listener = Callable[[Sequence[EventRecord]], object]
"""Is told of records that are on disk, by the thread that has committed them; it must not block."""


class StoreError(TryLaterError):
    """The store could not be read or written just now; what was to be committed is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the store remembers of IMDS."""

    incarnation: int | None
    events: Mapping[str, str]
    """What was kept of each event, by its key."""
    looked_at: datetime | None
    boot_id: str | None


class Store:
    """One open store. All methods may be called from any thread."""

    def __init__(self, directory: Path, connection: sqlite3.Connection) -> None:
        self.directory = directory
        self._connection = connection
        self._lock = threading.RLock()
        self._meta: dict[str, str] = read_meta(connection)
        self.stream = self._meta["stream"]
        self._head = int(self._meta["sequence"])
        self._until_prune = 0
        self._ballast = Ballast(directory)
        self._ballast.keep()
        self.trouble: str | None = None
        """Why the last transaction could not be written; None where it could."""
        self.damaged: str | None = None
        """Why the store is to be put aside at the next start; None while it is sound."""
        self._listeners: list[Listener] = []

    def subscribe(self, listener: Listener) -> None:
        """Have the listener told of every commit of records, in the order of subscription."""
        self._listeners.append(listener)

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
        is for progress that may be repeated: a durable one after it takes it along. Raises
        `StoreError`, after which nothing has changed.
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
                    raise self._trouble(error, writing=True) from error
                raise
            self.trouble = None
            self._ballast.keep()

    def read(
        self, query: str, values: Sequence[object] = (), *, patience: float = -1
    ) -> list[tuple[Any, ...]]:
        """The rows that a query gives; `patience` is how many seconds it may wait for others who
        use the store, without end unless given. Raises `StoreError`.
        """
        if not self._lock.acquire(timeout=patience):
            raise StoreError(f"the store in {self.directory} is busy; does its disk answer?")
        try:
            return self._connection.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise self._trouble(error, writing=False) from error
        finally:
            self._lock.release()

    def remembered(self, key: str) -> str | None:
        """What was committed in `meta` under a key; None for nothing."""
        return self._meta.get(key)

    def seen(self) -> Seen:
        """What is remembered of IMDS from before. Raises `StoreError`, and `ValueError` where what
        was kept is damaged.
        """
        rows = self.read("SELECT key, value FROM events ORDER BY seen")
        return Seen(
            incarnation=json.loads(self._meta.get("incarnation", "null")),
            events=dict(rows),
            looked_at=self.looked_at(),
            boot_id=self._meta.get("boot_id"),
        )

    def commit(
        self,
        drafts: Sequence[RecordDraft] = (),
        *,
        events: Iterable[EventRow] = (),
        forgotten: Iterable[str] = (),
        meta: Mapping[str, str] | None = None,
        also: Callable[[sqlite3.Connection], object] | None = None,
    ) -> list[EventRecord]:
        """Commit what was seen and the records of it, all or nothing, fsynced; `forgotten` are
        keys of events, and `also` takes part in the same transaction.

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
            if any(record.type == BRIDGE_STORE_RESET for record in records):
                changed[RESET_KEY] = "null"
            left = self._until_prune - len(records)
            with self.transaction() as connection:
                insert_records(connection, records)
                upsert_events(connection, events)
                forget(connection, forgotten)
                upsert_meta(connection, changed)
                if also is not None:
                    also(connection)
                pruning = left <= 0
                if pruning:
                    left = 0 if prune(connection) else PRUNE_EVERY
            self._meta |= changed
            self._until_prune = left
            self._head += len(records)
            if pruning:
                with suppress(sqlite3.Error):  # it is committed; the room is given back later
                    shrink(self._connection)
        if records:
            for listener in self._listeners:
                listener(records)
        return records

    def identity(self) -> VmIdentity | None:
        """The identity as last kept, so that a start need not wait for IMDS."""
        kept = self._meta.get("identity")
        return None if kept is None else VmIdentity.from_wire(json.loads(kept))

    def keep_identity(self, identity: VmIdentity, boot_id: str | None) -> None:
        """Keep the identity, as IMDS has said it in this boot, for the next start.

        Raises `StoreError`.
        """
        text = canonical_json(identity.to_wire()).decode()
        news = {"identity": text, CONFIRMED_BOOT_KEY: boot_id or ""}
        if news != {key: self._meta.get(key) for key in news}:
            self.commit(meta=news)

    def mark_looked(self, moment: datetime) -> None:
        """Remember the last good look at IMDS, for the gap after a restart.

        A file's time stamp does it without a sync each second: it outlives the process, and
        after a power cut it is at worst some seconds old, which lengthens the gap and hides
        nothing. After a write that went wrong it writes to the file, too: so a store that takes
        nothing is found again at each look, and one that does is in order. Raises `StoreError`.
        """
        if self.trouble is not None:
            with self.transaction() as connection:
                connection.execute("UPDATE meta SET value = value WHERE key = 'sequence'")
        path = self.directory / LOOKED_NAME
        stamp = int(moment.timestamp() * 1_000_000_000)
        try:
            try:
                os.utime(path, ns=(stamp, stamp))
            except FileNotFoundError:
                path.touch(mode=0o600)
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

    def _trouble(self, error: sqlite3.Error, *, writing: bool) -> StoreError:
        """What to raise for SQLite's error, after doing what may help the next try."""
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the rest is SQLite's detail
        if writing:
            self.trouble = str(error)
        if writing and code in _FULL:
            self._ballast.drop()
        if code in _DAMAGED:
            self.damaged = str(error)
            with suppress(OSError):
                (self.directory / CONDEMNED_NAME).touch()
        return StoreError(f"the store in {self.directory}: {error}")
