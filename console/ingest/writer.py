"""The writer: takes deliveries from a bounded queue and commits many in one transaction.

Nothing is acknowledged before its commit. If the database does not take it, the writer tries again
for ever, the queue fills, and the sources stand still.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final, TypeGuard
from uuid import uuid4

from sqlalchemy import Connection
from sqlalchemy.exc import InterfaceError, InternalError, OperationalError, SQLAlchemyError

from console.db import batches
from console.db.checkpoints import write_checkpoint
from console.db.clock import CommonClock
from console.db.errors import words_of
from console.db.opening import Database
from console.db.retention import delete_before
from console.fleet.fold import EXCESSES, fold
from console.ingest.delivery import Delivery, Refused
from console.ingest.inbox import Inbox
from console.ingest.listening import ListeningLog
from console.ingest.progress import Progress
from console.records.incoming import Incoming, IncomingRecord
from sinks.shared.errors import SebError

_LOG: Final = logging.getLogger("console")
QUEUE: Final = 1000
"""Deliveries that wait; beyond that, sources wait."""
_QUEUE_BYTES: Final = 32 * 1024 * 1024
"""Bytes of what waits; values in memory take some times that."""
_MAX_ITEMS: Final = 2000
"""Items in one transaction; the last delivery may bring more. The more there are, the less each
costs: pages of an index that several of them change are written once.
"""
_MAX_BYTES: Final = 4 * 1024 * 1024
"""The same in bytes."""
_GATHER_SECONDS: Final = 0.05
_GATHER_ITEMS: Final = 16
"""A broker may send 20 unacknowledged messages at most: never wait for more than that."""
_MAX_WAIT: Final = 1.0
_RETENTION_ROWS: Final = 500
"""Rows of a table that retention deletes in one transaction."""
_ABOUT_THE_DATABASE: Final = (OperationalError, InterfaceError, InternalError)
"""Errors of the database itself, not of the data; SQLSTATE tells the exceptions."""
_ABOUT_DATA: Final = ("22", "54")
"""Classes of SQLSTATE that are about the data after all, such as a value that is too long for an
index (54000)."""


class Writer:
    """One thread that alone writes."""

    def __init__(
        self,
        database: Database,
        *,
        opened: Callable[[], None],
        committed: Callable[[], None],
        listening: ListeningLog | None = None,
        silent_after: float | None = None,
        clock: CommonClock | None = None,
    ) -> None:
        """`opened` and `committed` are called on this thread. `listening`: what is written down of
        when this console listened; `silent_after` in seconds, if it is the same for every VM.
        """
        self._database = database
        self._listening = listening or ListeningLog(uuid4().hex, ())
        self._silent_after = silent_after
        self._when_opened = opened
        self._committed = committed
        self._now = clock or CommonClock()
        """Compared with the database's each time that the listening is written down."""
        self._inbox = Inbox(most=QUEUE, most_bytes=_QUEUE_BYTES)
        self._max_deliveries = _MAX_ITEMS
        """In one transaction: fewer, after one that the database did not take."""
        self._retire_before: float | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self.opened = threading.Event()
        """Set once the database is open and its schema ours."""
        self.progress = Progress()

    def start(self) -> None:
        """Start the thread; the database need not be reachable yet."""
        self._thread.start()

    def stop(self, timeout: float = 10.0) -> None:
        """Commit what waits, if the database takes it, and end."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout)

    @property
    def waiting(self) -> int:
        """Deliveries in the queue."""
        return len(self._inbox)

    @property
    def waiting_bytes(self) -> int:
        """Bytes of the deliveries in the queue."""
        return self._inbox.size

    def put(self, delivery: Delivery, *, timeout: float | None = None) -> None:
        """Hand over; waits while the queue is full. Raises `queue.Full` after `timeout` seconds."""
        self._inbox.put(delivery, timeout)

    def retire_before(self, moment: float) -> None:
        """Delete records and past events from before a moment, a few at a time, when idle."""
        self._retire_before = moment

    def _run(self) -> None:
        if not self._retry_until_done(self._open):
            return
        while True:
            if self._retire_before is not None:
                self._retire()
            if self._listening.is_due(self._now()):
                self._retry_until_done(self._note_listening)
            batch = self._take()
            if not batch:
                if self._stop.is_set():
                    self._end()
                    return
                continue
            self._commit_all(batch)

    def _retire(self) -> None:
        """Delete some rows; what comes in meanwhile need not wait for the rest."""
        moment = self._retire_before

        def work() -> None:
            with self._database.writing.begin() as connection:
                if moment is None or not delete_before(connection, moment, _RETENTION_ROWS):
                    self._retire_before = None

        self._retry_until_done(work)

    def _note_listening(self) -> None:
        """Every few seconds, so that it is also known whether the database works."""
        with self._database.writing.begin() as connection:
            self._now.compare(connection)
            self._listening.write(connection, self._now())
        try:
            self._settle()
        except Exception as error:
            is_of_data = _sqlstate(error).startswith(_ABOUT_DATA)
            if isinstance(error, _ABOUT_THE_DATABASE) and not is_of_data:
                raise
            # What comes in must not wait for its correction.
            _LOG.exception("this is a bug in the console", extra={"action": "settle_bug"})

    def _settle(self) -> None:
        """Write what changes because time has passed."""
        with self._database.writing.begin() as connection:
            number = batches.next_number(connection)
            has_changed = batches.settle(
                connection, number, now=self._now(), silent_after=self._silent_after
            )
            if not has_changed:
                connection.rollback()  # no number for nothing: pages would ask again
        if has_changed:
            self._committed()

    def _end(self) -> None:
        """Write that this console listens no more, if the database takes it."""
        with suppress(SQLAlchemyError), self._database.writing.begin() as connection:
            self._listening.end(connection, self._now())

    def _open(self) -> None:
        self._database.open()
        with self._database.writing.begin() as connection:
            self._now.compare(connection)
            self._listening.begin(connection, self._now(), is_alone=self._database.is_sqlite)
        self.opened.set()
        self._when_opened()

    def _retry_until_done(self, work: Callable[[], None]) -> bool:
        """Do it until it is done; False if the console ends before that."""
        wait = 0.1
        while True:
            self.progress.asked()
            try:
                work()
            except (SebError, SQLAlchemyError) as error:
                words = words_of(error) if isinstance(error, SQLAlchemyError) else str(error)
                if self.progress.failed(words):
                    _LOG.error("%s", words, extra={"action": "database_failed"})
                if self._stop.wait(random.uniform(wait / 2, wait)):  # noqa: S311  # jitter
                    return False
                wait = min(_MAX_WAIT, wait * 2)
            else:
                if self.progress.worked():
                    _LOG.info("the database works again", extra={"action": "database_recovered"})
                return True

    def _take(self) -> list[Delivery]:
        """Everything that waits; heartbeats alone wait a moment for company."""
        first = self._inbox.take(timeout=0.2)
        if first is None:
            return []
        batch, count, size = [first], len(first.items), first.size
        patient = _only_heartbeats(first)
        until = time.monotonic() + _GATHER_SECONDS
        while count < _MAX_ITEMS and size < _MAX_BYTES:
            wait = until - time.monotonic() if patient and count < _GATHER_ITEMS else 0.0
            each = self._inbox.take(timeout=max(0.0, wait))
            if each is None:
                break
            batch.append(each)
            count += len(each.items)
            size += each.size
            patient = patient and _only_heartbeats(each)
        return batch

    def _commit_all(self, batch: Sequence[Delivery]) -> None:
        """Commit, and say so, until the console ends; in pieces, if the database has not taken as
        much before: what takes too long for its limits would do so again.
        """
        rest = batch
        while rest:
            stored = self._retry_until_done(lambda: self._commit(rest[: self._max_deliveries]))  # noqa: B023
            count = self._max_deliveries if stored else len(rest)
            some, rest = rest[:count], rest[count:]
            self._max_deliveries = min(
                _MAX_ITEMS, self._max_deliveries + 1 + self._max_deliveries // 4
            )
            for delivery in some:
                with suppress(Exception):  # a source that has gone must not end the writer
                    delivery.done(stored)

    def _commit(self, batch: Sequence[Delivery]) -> None:
        try:
            self._commit_or_isolate(batch)
        except _ABOUT_THE_DATABASE:
            self._max_deliveries = max(1, len(batch) // 2)
            raise

    def _commit_or_isolate(self, batch: Sequence[Delivery]) -> None:
        try:
            self._commit_together(batch)
        except _ABOUT_THE_DATABASE as error:
            if not _sqlstate(error).startswith(_ABOUT_DATA):
                raise
            self._isolate(batch)
        except Exception:  # noqa: BLE001  # something in the batch, or a bug that it brings out
            self._isolate(batch)

    def _isolate(self, batch: Sequence[Delivery]) -> None:
        """Commit a batch of which an item cannot be stored: each delivery by itself."""
        for delivery in batch:
            self._isolate_items(delivery.source, delivery.items)
            if delivery.checkpoint is not None:
                self._commit_together([replace(delivery, items=())])

    def _isolate_items(self, source: str, items: Sequence[Incoming | Refused]) -> None:
        """Commit items, by halves until the one is found that cannot be stored; it goes to
        quarantine instead.
        """
        if not items:
            return
        try:
            self._commit_together([Delivery(source=source, items=items, done=_nothing)])
        except Exception as error:
            is_of_data = _sqlstate(error).startswith(_ABOUT_DATA)
            if isinstance(error, _ABOUT_THE_DATABASE) and not is_of_data:
                raise
            if len(items) > 1:
                middle = len(items) // 2
                self._isolate_items(source, items[:middle])
                self._isolate_items(source, items[middle:])
                return
            words = words_of(error) if isinstance(error, SQLAlchemyError) else repr(error)[:300]
            fields = {"action": "record_not_stored", "source": source}
            _LOG.exception("%s", words, extra=fields)
            sample = items[0].body if isinstance(items[0], IncomingRecord) else b""
            refused = Refused(reason="unstorable", message=words, sample=sample, at=self._now())
            self._commit_together([Delivery(source=source, items=[refused], done=_nothing)])

    def _set_aside(
        self, connection: Connection, refused: Iterable[tuple[str, IncomingRecord]]
    ) -> None:
        """Count what is more than a VM may have stored."""
        for (source, reason), several in _by_source(refused).items():
            last = several[-1]
            batches.quarantine(
                connection,
                source=source,
                reason=reason,
                message=f"{last.vm.vm_id}: {EXCESSES[reason]}",
                sample=last.body,
                at=last.received_at,
                count=len(several),
            )
            self.progress.quarantined[(source, reason)] += len(several)

    def _commit_together(self, batch: Sequence[Delivery]) -> None:
        """Everything that a batch changes, in one transaction."""
        items = [item for each in batch for item in each.items if _says_something(item)]
        with self._database.writing.begin() as connection:
            number = batches.next_number(connection)
            items = batches.as_known(connection, items)
            known = batches.load(connection, items, silent_after=self._silent_after)
            changes = fold(known, items, silent_after=self._silent_after)
            batches.write(connection, changes, number, now=self._now())
            self._set_aside(connection, changes.refused)
            for delivery in batch:
                for item in delivery.items:
                    if isinstance(item, Refused):
                        batches.quarantine(
                            connection,
                            source=delivery.source,
                            reason=item.reason,
                            message=item.message,
                            sample=item.sample,
                            at=item.at,
                        )
                if delivery.checkpoint is not None:
                    write_checkpoint(connection, delivery.checkpoint)
        self.progress.count(batch, duplicates=changes.duplicates, at=self._now())
        self._committed()


def _by_source(
    refused: Iterable[tuple[str, IncomingRecord]],
) -> dict[tuple[str, str], list[IncomingRecord]]:
    """What is refused, by its source and the word for why."""
    found: dict[tuple[str, str], list[IncomingRecord]] = {}
    for reason, each in refused:
        found.setdefault((each.source, reason), []).append(each)
    return found


def _says_something(item: Incoming | Refused) -> TypeGuard[Incoming]:
    """Whether it is about a VM: neither refused nor sent to test the way."""
    return not isinstance(item, Refused) and not (isinstance(item, IncomingRecord) and item.is_test)


def _only_heartbeats(delivery: Delivery) -> bool:
    return all(
        isinstance(item, IncomingRecord) and item.kind == "heartbeat" for item in delivery.items
    )


def _sqlstate(error: Exception) -> str:
    """PostgreSQL's own word for what is wrong; empty with SQLite."""
    return getattr(getattr(error, "orig", None), "sqlstate", None) or ""


def _nothing(_stored: bool) -> None:  # noqa: FBT001  # as Delivery.done
    pass
