"""The writer: takes deliveries from a bounded queue and commits many in one transaction.

Nothing is acknowledged before its commit. If the database does not take it, the writer tries again
for ever, the queue fills, and the sources stand still.
"""

from __future__ import annotations

import logging
import queue
import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from sqlalchemy.exc import DataError, IntegrityError, SQLAlchemyError, StatementError

from console.errors import ConsoleError
from console.fleet.fold import fold
from console.intake.delivery import Delivery, Refused
from console.intake.progress import Progress
from console.records.incoming import IncomingRecord
from console.store import writing
from console.store.checkpoints import write_checkpoint
from console.store.errors import told
from console.store.opening import Database

_LOG: Final = logging.getLogger("console")
QUEUE: Final = 1000
"""Deliveries that wait; beyond that, sources wait."""
_MOST: Final = 400
"""Items in one transaction."""
_GATHER_SECONDS: Final = 0.05
_GATHER_ITEMS: Final = 16
"""A broker may send 20 unacknowledged messages at most: never wait for more than that."""
_LONGEST_WAIT: Final = 5.0


class Writer:
    """One thread that alone writes."""

    def __init__(
        self,
        database: Database,
        *,
        committed: Callable[[], None],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self._committed = committed
        self._now = now
        self._queue: queue.Queue[Delivery] = queue.Queue(QUEUE)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self.opened = threading.Event()
        """Set once the database is open and its schema ours."""
        self.progress = Progress()

    def start(self) -> None:
        """Begin; the database need not be reachable yet."""
        self._thread.start()

    def stop(self, timeout: float = 10.0) -> None:
        """Commit what waits, if the database takes it, and end."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout)

    @property
    def waiting(self) -> int:
        """Deliveries in the queue."""
        return self._queue.qsize()

    def put(self, delivery: Delivery, *, timeout: float | None = None) -> None:
        """Hand over; waits while the queue is full. Raises `queue.Full` after `timeout` seconds."""
        self._queue.put(delivery, timeout=timeout)

    def _run(self) -> None:
        if not self._insist(self._open):
            return
        while True:
            batch = self._take()
            if not batch:
                if self._stop.is_set():
                    return
                continue
            stored = self._insist(lambda batch=batch: self._commit(batch))  # type: ignore[misc]
            for delivery in batch:
                with suppress(Exception):  # a source that has gone must not end the writer
                    delivery.done(stored)

    def _open(self) -> None:
        self._database.open()
        self.opened.set()
        self._committed()

    def _insist(self, work: Callable[[], None]) -> bool:
        """Do it until it is done; False if the console ends before that."""
        wait = 0.1
        while True:
            try:
                work()
            except (ConsoleError, SQLAlchemyError) as error:
                words = told(error) if isinstance(error, SQLAlchemyError) else str(error)
                if self.progress.failed(words):
                    _LOG.error("%s", words, extra={"action": "database_failed"})
                if self._stop.wait(random.uniform(wait / 2, wait)):  # noqa: S311  # jitter
                    return False
                wait = min(_LONGEST_WAIT, wait * 2)
            else:
                if self.progress.worked():
                    _LOG.info("the database works again", extra={"action": "database_recovered"})
                return True

    def _take(self) -> list[Delivery]:
        """Everything that waits; heartbeats alone wait a moment for company."""
        try:
            first = self._queue.get(timeout=0.2)
        except queue.Empty:
            return []
        batch, count = [first], len(first.items)
        patient = _only_heartbeats(first)
        until = time.monotonic() + _GATHER_SECONDS
        while count < _MOST:
            wait = until - time.monotonic() if patient and count < _GATHER_ITEMS else 0
            try:
                each = self._queue.get(timeout=wait) if wait > 0 else self._queue.get_nowait()
            except queue.Empty:
                if patient and count < _GATHER_ITEMS and time.monotonic() < until:
                    continue
                break
            batch.append(each)
            count += len(each.items)
            patient = patient and _only_heartbeats(each)
        return batch

    def _commit(self, batch: Sequence[Delivery]) -> None:
        try:
            self._transact(batch)
        except (DataError, IntegrityError, StatementError) as error:
            if isinstance(error, SQLAlchemyError) and _is_about_the_database(error):
                raise
            self._one_by_one(batch)

    def _one_by_one(self, batch: Sequence[Delivery]) -> None:
        """Something in the batch cannot be stored: it alone goes to quarantine."""
        for delivery in batch:
            for item in delivery.items:
                alone = Delivery(source=delivery.source, items=[item], done=_nothing)
                try:
                    self._transact([alone])
                except (DataError, IntegrityError, StatementError) as error:
                    if _is_about_the_database(error):
                        raise
                    sample = item.body if isinstance(item, IncomingRecord) else b""
                    refused = Refused(
                        reason="unstorable", message=told(error), sample=sample, at=self._now()
                    )
                    self._transact(
                        [Delivery(source=delivery.source, items=[refused], done=_nothing)]
                    )
            if delivery.checkpoint is not None:
                self._transact(
                    [
                        Delivery(
                            source=delivery.source,
                            items=[],
                            done=_nothing,
                            checkpoint=delivery.checkpoint,
                        )
                    ]
                )

    def _transact(self, batch: Sequence[Delivery]) -> None:
        items = [item for each in batch for item in each.items if not isinstance(item, Refused)]
        with self._database.writing.begin() as connection:
            number = writing.next_number(connection)
            changes = fold(writing.load(connection, items), items)
            writing.write(connection, changes, number)
            for delivery in batch:
                for item in delivery.items:
                    if isinstance(item, Refused):
                        writing.quarantine(
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


def _only_heartbeats(delivery: Delivery) -> bool:
    return all(
        isinstance(item, IncomingRecord) and item.kind == "heartbeat" for item in delivery.items
    )


def _is_about_the_database(error: SQLAlchemyError) -> bool:
    """Whether it would fail with other data too."""
    return getattr(error, "connection_invalidated", False) or type(error).__name__ in (
        "OperationalError",
        "InterfaceError",
        "InternalError",
        "ProgrammingError",
    )


def _nothing(_stored: bool) -> None:  # noqa: FBT001  # as Delivery.done
    pass
