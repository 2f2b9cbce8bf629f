"""The store: one SQLite file, exclusively locked; a record is on disk before it is sent."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from bridge.store import rows
from bridge.store.ballast import Ballast
from bridge.store.retention import PRUNE_EVERY, prune, prune_forgotten, shrink
from sinks.shared.errors import TryLaterError
from wire.record import BRIDGE_STORE_RESET, Record, RecordDraft, seal
from wire.strictjson import canonical_json
from wire.vm import VmIdentity

POLLED_NAME: Final = "looked"
_UPTIME_DIGITS: Final = 20
CONDEMNED_NAME: Final = "condemned"
"""The name of the file beside a store that was found damaged in use. It holds one of the next
three words; that of an earlier version is empty.
"""
CONDEMNED: Final = "damaged"
CONDEMNED_AGAIN: Final = "damaged again"
FOUND_SOUND: Final = "sound"
_SOUND_SECONDS: Final = 3600.0
RESET_KEY: Final = "reset"
"""In `meta`: a reset of the store until its record is committed."""
PREPARATIONS_LOST_KEY: Final = "preparations_lost"
"""In `meta`: set if earlier preparations were lost with their store. It is removed once a sink that
prepares knows for which events there may have been some.
"""
CONFIRMED_BOOT_KEY: Final = "confirmed_boot"
"""In `meta`: the boot in which IMDS last confirmed the VM identity."""
_FULL: Final = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR})
_DAMAGED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})

Listener = Callable[[Sequence[Record]], object]
"""Called with records that are on disk, by the thread that committed them; it must not block."""


class StoreError(TryLaterError):
    """The store could not be read or written at this moment; nothing was committed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LastSeen:
    """The state of IMDS as the previous run stored it: events, incarnation and last good poll."""

    incarnation: int | None
    events: Mapping[str, str]
    """The tracked events, by their keys."""
    polled_at: datetime | None
    polled_uptime: float | None
    """The machine's uptime at that poll, in seconds; None before 0.3."""
    boot_id: str | None


class Store:
    """One open store. All methods may be called from any thread."""

    def __init__(self, directory: Path, connection: sqlite3.Connection) -> None:
        self.directory = directory
        self._connection = connection
        self._synchronous = ""
        self._lock = threading.RLock()
        self._meta: dict[str, str] = rows.read_meta(connection)
        self.stream = self._meta["stream"]
        self._head = int(self._meta["sequence"])
        self._until_prune = 0
        self._ballast = Ballast(directory)
        self._ballast.reserve()
        self.trouble: str | None = None
        """Why the last transaction could not be written; None if it was."""
        self.damaged: str | None = None
        """Why the next start has to set the store aside; None while it is sound."""
        self._listeners: list[Listener] = []

    def subscribe(self, listener: Listener) -> None:
        """Call the listener after every commit of records, in the order of subscription."""
        self._listeners.append(listener)

    @property
    def head(self) -> int:
        """Return the sequence of the newest record; 0 in an empty store."""
        return self._head

    @property
    def last_record_sequence(self) -> int:
        """Return the sequence of the newest record that is not a heartbeat; 0 in an empty store."""
        return int(self._meta.get("record_sequence", "0"))

    @contextmanager
    def transaction(self, *, durable: bool = True) -> Iterator[sqlite3.Connection]:
        """Open one transaction, fsynced if durable. Raises `StoreError`; then nothing has
        changed.
        """
        with self._lock:
            try:
                self._sync("FULL" if durable else "NORMAL")
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
            self._ballast.reserve()
            with suppress(sqlite3.Error):  # or the next one does it; a change has no time to lose
                self._sync("FULL")

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Let no other thread read or write within the block."""
        with self._lock:
            yield

    def read(
        self, query: str, values: Sequence[object] = (), *, patience: float = -1
    ) -> list[tuple[Any, ...]]:
        """Return the rows of a query, after waiting at most `patience` seconds for the lock. Raises
        `StoreError`.
        """
        if not self._lock.acquire(timeout=patience):
            raise StoreError(f"the store in {self.directory} is busy; does its disk answer?")
        try:
            return self._connection.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise self._trouble(error, writing=False) from error
        finally:
            self._lock.release()

    def meta(self, key: str) -> str | None:
        """Return the value in `meta` under a key, or None."""
        return self._meta.get(key)

    def last_seen(self) -> LastSeen:
        """Return the state of IMDS as the store has it. Raises `StoreError`, or `ValueError` if it
        is damaged.
        """
        events = self.read("SELECT key, value FROM events ORDER BY seen")
        return LastSeen(
            incarnation=json.loads(self._meta.get("incarnation", "null")),
            events=dict(events),
            polled_at=self.polled_at(),
            polled_uptime=last_polled_uptime(self.directory),
            boot_id=self._meta.get("boot_id"),
        )

    def last_revisions(self, keys: Iterable[str]) -> dict[str, int]:
        """Return the last revision of events that were forgotten, by key. Raises `StoreError`."""
        query = "SELECT revision FROM forgotten WHERE key = ?"
        found = {key: self.read(query, (key,)) for key in keys}
        return {key: rows[0][0] for key, rows in found.items() if rows}

    def commit(
        self,
        drafts: Sequence[RecordDraft] = (),
        *,
        events: Iterable[rows.EventRow] = (),
        forgotten: Mapping[str, int] | None = None,
        meta: Mapping[str, str] | None = None,
        also: Callable[[sqlite3.Connection], object] | None = None,
        then: Callable[[], object] = lambda: None,
    ) -> list[Record]:
        """Commit what was seen and its records, all or nothing, fsynced; return the sealed records.

        Of events that are `forgotten`, by key, only the last revision is kept. `also` is called
        with the connection, in the same transaction; `then` is called before anybody can read the
        records. Raises `StoreError`.
        """
        with self._lock:
            records = [
                seal(draft, sequence=self._head + at, stream=self.stream)
                for at, draft in enumerate(drafts, start=1)
            ]
            changed = dict(meta or {})
            if records:
                changed["sequence"] = str(records[-1].sequence)
            lasting = [record.sequence for record in records if not record.is_heartbeat]
            if lasting:
                changed["record_sequence"] = str(lasting[-1])
            if BRIDGE_STORE_RESET in (record.type for record in records):
                changed[RESET_KEY] = "null"
            with self.transaction() as connection:
                rows.insert_records(connection, records)
                rows.upsert_events(connection, events)
                rows.forget(connection, forgotten or {}, sequence=self._head)
                rows.upsert_meta(connection, changed)
                if also is not None:
                    also(connection)
            self._meta |= changed
            self._until_prune -= len(records)
            self._head += len(records)
            then()
        if records:
            for listener in self._listeners:
                listener(records)
        return records

    def prune(self) -> None:
        """Delete some records that every sink has, between two changes. Raises `StoreError`."""
        if self._until_prune > 0:
            return
        with self._lock:
            with self.transaction() as connection:  # synced here, or the next change waits for it
                more = prune(connection)
                prune_forgotten(connection)
            self._until_prune = 0 if more else PRUNE_EVERY
            with suppress(sqlite3.Error):  # the room is given back later
                self._sync("NORMAL")
                shrink(self._connection)

    def identity(self) -> VmIdentity | None:
        """Return the identity as last stored, so that a start need not wait for IMDS."""
        kept = self._meta.get("identity")
        return None if kept is None else VmIdentity.from_wire(json.loads(kept))

    def save_identity(self, identity: VmIdentity, boot_id: str | None) -> None:
        """Store the identity that IMDS gave in this boot. Raises `StoreError`."""
        text = canonical_json(identity.to_wire()).decode()
        values = {"identity": text, CONFIRMED_BOOT_KEY: boot_id or ""}
        if values != {key: self._meta.get(key) for key in values}:
            self.commit(meta=values)

    def mark_polled(self, moment: datetime, *, uptime: float | None = None) -> None:
        """Note the time of the last good poll, and the machine's uptime then, in a file of its own,
        which needs no sync. After a failed write it writes to the store, so that trouble is found
        at each poll. Raises `StoreError`.
        """
        if self.trouble is not None:
            with self.transaction() as connection:
                connection.execute("UPDATE meta SET value = value WHERE key = 'sequence'")
        path = self.directory / POLLED_NAME
        stamp = int(moment.timestamp() * 1_000_000_000)
        lines = (
            moment.astimezone(UTC).isoformat(timespec="microseconds"),
            " " * _UPTIME_DIGITS if uptime is None else f"{uptime:0{_UPTIME_DIGITS}.3f}",
        )
        text = "".join(f"{line}\n" for line in lines)
        try:
            # In place, because every text is of one length: a bridge that is killed leaves one of
            # the two, and a full disk has room for it.
            file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
            try:
                os.write(file, text.encode())
            finally:
                os.close(file)
            os.utime(path, ns=(stamp, stamp))
        except (OSError, OverflowError) as error:
            raise StoreError(f"the state directory {self.directory}: {error}") from error

    def polled_at(self) -> datetime | None:
        """Return when IMDS last gave a valid document; None if it never did."""
        return last_polled(self.directory)

    def close(self) -> None:
        """Close the file and release its lock."""
        with self._lock:
            self._connection.close()

    def _sync(self, mode: str) -> None:
        """Set SQLite's synchronous mode for the next transactions."""
        if mode != self._synchronous:
            self._synchronous = ""  # not known, if this fails
            self._connection.execute(f"PRAGMA synchronous={mode}")
            self._synchronous = mode

    def _trouble(self, error: sqlite3.Error, *, writing: bool) -> StoreError:
        """Return the error to raise for an error of SQLite, after doing what may help the next
        try.
        """
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the rest is SQLite's detail
        if writing:
            self.trouble = str(error)
        if writing and code in _FULL:
            self._ballast.release()
        if code in _DAMAGED:
            self.damaged = str(error)
            with suppress(OSError):
                condemn(self.directory, time.time())
        return StoreError(f"the store in {self.directory}: {error}")


def condemn(directory: Path, now: float) -> None:
    """Note that a store in use was found damaged; `now` in seconds since 1970. A disk that gives an
    error for a moment looks the same to SQLite, so the next start checks it. Raises `OSError`.
    """
    path = directory / CONDEMNED_NAME
    is_again = is_condemned(directory, CONDEMNED_AGAIN) or (
        is_condemned(directory, FOUND_SOUND) and abs(now - path.stat().st_mtime) < _SOUND_SECONDS
    )
    path.write_text(CONDEMNED_AGAIN if is_again else CONDEMNED, encoding="ascii")


def is_condemned(directory: Path, *words: str) -> bool:
    """Check whether the note about the store in a directory is one of these words."""
    try:
        return (directory / CONDEMNED_NAME).read_text(encoding="ascii", errors="replace") in words
    except OSError:
        return False


def last_polled_uptime(directory: Path) -> float | None:
    """Return the machine's uptime at the last good poll, in seconds, or None."""
    with suppress(OSError, ValueError, IndexError):
        return float((directory / POLLED_NAME).read_text(encoding="ascii").split("\n")[1])
    return None


def last_polled(directory: Path) -> datetime | None:
    """Return when the last good poll was, by the file in a state directory; None if it has none.
    The file has the time as its content, because a copy may have lost the modification time. That
    counts only if the file is empty, as 0.2.0 left it, or damaged.
    """
    path = directory / POLLED_NAME
    with suppress(OSError, ValueError):
        moment = datetime.fromisoformat(path.read_text(encoding="ascii").partition("\n")[0])
        if moment.tzinfo is not None:
            return moment
    try:
        return datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except (OSError, OverflowError, ValueError):
        return None
