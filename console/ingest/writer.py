"""The writer: takes deliveries from a bounded queue and commits many of them in one transaction.

Nothing is acknowledged before its commit. While the database does not accept it, the writer tries
again for ever, the queue fills, and the sources wait.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final, TypeGuard
from uuid import uuid4

from sqlalchemy import Connection
from sqlalchemy.exc import InterfaceError, InternalError, OperationalError, SQLAlchemyError

from console.db.batches.batch_transaction import write_batch
from console.db.connection.clock import CommonClock
from console.db.connection.errors import message_of
from console.db.connection.opening import Database
from console.db.connection.transactions import begin_write
from console.db.decisions.latest_groups import (
    StartedGroups,
    take_the_lead,
    write_latest_groups,
)
from console.db.events.known_events import NO_GROUPS
from console.db.sources.checkpoints import write_checkpoint
from console.db.sources.listening import (
    does_another_listen,
    was_nobody_listening,
    write_unbroken_since,
)
from console.db.sources.quarantine import count_quarantined
from console.db.upkeep.retention import delete_before
from console.db.upkeep.timed_changes import write_timed_changes
from console.fleet.contact import BY_HEARTBEATS, SilentTime
from console.fleet.limits import LIMITS
from console.ingest.inbox import Inbox
from console.ingest.intake_counters import IntakeCounters
from console.ingest.listening import ListeningLog
from console.ingest.source_batch import QuarantinedMessage, SourceBatch
from console.records.incoming import IncomingMessage, IncomingRecord
from console.turns.groups import Grouping
from sinks.shared.errors import SebError

_LOG: Final = logging.getLogger("console")
QUEUE: Final = 1000
"""How many deliveries may wait; beyond that the sources wait."""
_QUEUE_BYTES: Final = 32 * 1024 * 1024
"""How many bytes may wait; the values in memory take several times that."""
_MAX_ITEMS: Final = 2000
"""How many items one transaction has; the last delivery may exceed it. More items cost less each: a
page of an index that several of them change is written once.
"""
_MAX_BYTES: Final = 4 * 1024 * 1024
"""The same limit in bytes."""
_GATHER_SECONDS: Final = 0.05
_GATHER_ITEMS: Final = 16
"""For how many items a transaction waits. A broker may send at most 20 unacknowledged messages, so
this must not be more.
"""
_MAX_WAIT_SECONDS: Final = 1.0
_RETENTION_ROWS: Final = 500
"""How many rows of a table retention deletes in one transaction."""
_ABOUT_THE_DATABASE: Final = (OperationalError, InterfaceError, InternalError)
"""Errors of the database itself and not of the data; SQLSTATE identifies the exceptions."""
_ABOUT_DATA: Final = ("22", "54")
"""Classes of SQLSTATE that are about the data after all, such as a value that is too long for an
index (54000).
"""


class Writer:
    """The thread that writes what comes in. No other thread does."""

    def __init__(
        self,
        database: Database,
        *,
        on_open: Callable[[], None],
        on_commit: Callable[[], None],
        on_break: Callable[[], None] = lambda: None,
        on_incomplete: Callable[[Collection[str]], None] = lambda _: None,
        listening: ListeningLog | None = None,
        silent_time: SilentTime = BY_HEARTBEATS,
        grouping: Grouping = NO_GROUPS,
        clock: CommonClock | None = None,
    ) -> None:
        """These are called on the writer's thread: `on_break` after a time in which messages may
        have been lost, `on_incomplete` with the vmIds of VMs of which records are missing.
        `listening` writes when this console was connected.
        """
        self._database = database
        self._listening = listening or ListeningLog(uuid4().hex, ())
        self._silent_time = silent_time
        self._grouping = grouping
        self._on_open = on_open
        self._on_commit = on_commit
        self._on_break = on_break
        self._on_incomplete = on_incomplete
        self._now = clock or CommonClock()
        """Compared with the database's clock each time that the listening is written."""
        self._started_at = 0.0
        """When the database was opened, by its clock."""
        self._inbox = Inbox(most=QUEUE, most_bytes=_QUEUE_BYTES)
        self._max_deliveries = _MAX_ITEMS
        """How many deliveries one transaction has; fewer after one that the database did not
        accept.
        """
        self._delete_moment: float | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self.opened = threading.Event()
        """Set once the database is open and its schema is current."""
        self.progress = IntakeCounters()

    def start(self) -> None:
        """Start the thread; the database need not be reachable yet."""
        self._thread.start()

    def stop(self, timeout: float = 10.0) -> None:
        """Commit what waits, if the database accepts it, and stop."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout)

    @property
    def waiting(self) -> int:
        """How many deliveries wait."""
        return len(self._inbox)

    def put(self, delivery: SourceBatch, *, timeout: float | None = None) -> None:
        """Add a delivery; wait while the queue is full. Raises `queue.Full` after `timeout`
        seconds.
        """
        self._inbox.put(delivery, timeout)

    def delete_before(self, moment: float) -> None:
        """Delete records and past events from before a moment: a few at a time, and only while no
        delivery waits.
        """
        self._delete_moment = moment

    def _run(self) -> None:
        if not self._retry_until_done(self._open):
            return
        while True:
            if self._delete_moment is not None:
                self._delete_old()
            has_break = self._database.continuity.has_break
            if has_break or self._listening.is_due(self._now()):
                self._retry_until_done(self._note_listening)
            batch = self._next_batch()
            if not batch:
                if self._stop.is_set():
                    self._end()
                    return
                continue
            self._commit_all(batch)

    def _delete_old(self) -> None:
        """Delete some old rows. The rest follow later, so that incoming messages do not wait for
        them.
        """
        moment = self._delete_moment

        def work() -> None:
            with self._database.writing.begin() as connection:
                if moment is None or not delete_before(connection, moment, _RETENTION_ROWS):
                    self._delete_moment = None

        self._retry_until_done(work)

    def _note_listening(self) -> None:
        """Write when this console was connected. This happens every few seconds, so it also shows
        whether the database works.
        """
        breaks = self._database.continuity.breaks()
        has_break = self._database.continuity.has_break
        with self._database.writing.begin() as connection:
            self._now.compare(connection)
            begins_again = self._listening.write(connection, self._now(), has_break=has_break)
            if begins_again and (has_break or not self._has_company(connection)):
                write_unbroken_since(connection, self._now())
            take_the_lead(connection, self._started_groups(), self._now())
        self._database.continuity.note(breaks)
        if begins_again:
            _LOG.warning(
                "the database was away or has lost transactions, or the clock was set; what VMs"
                " told meanwhile is read again",
                extra={"action": "listening_again"},
            )
            self._on_break()
        try:
            self._write_timed_changes()
        except Exception as error:
            is_of_data = _sqlstate(error).startswith(_ABOUT_DATA)
            if isinstance(error, _ABOUT_THE_DATABASE) and not is_of_data:
                raise
            # Incoming messages must not wait until this bug is fixed.
            _LOG.exception("this is a bug in the console", extra={"action": "settle_bug"})

    def _has_company(self, connection: Connection) -> bool:
        """Check whether another console has listened meanwhile. What this one alone was to hear
        shows in the intervals that it writes.
        """
        return does_another_listen(connection, self._listening.run_id, self._now())

    def _started_groups(self) -> StartedGroups:
        return StartedGroups(
            hash=self._grouping.hash,
            run_id=self._listening.run_id,
            started_at=self._started_at,
        )

    def _write_timed_changes(self) -> None:
        """Write what changes because time has passed."""
        with begin_write(self._database) as (connection, change_number):
            has_changed = write_timed_changes(
                connection, change_number, now=self._now(), silent_time=self._silent_time
            )
            if not has_changed:
                connection.rollback()  # an unused number would make pages ask again
        if has_changed:
            self._on_commit()

    def _end(self) -> None:
        """Write that this console is not connected any more, if the database can be written."""
        with suppress(SQLAlchemyError), self._database.writing.begin() as connection:
            self._listening.end(connection, self._now())

    def _open(self) -> None:
        self._database.open()
        with self._database.writing.begin() as connection:
            self._now.compare(connection)
            if was_nobody_listening(connection, self._now()):
                write_unbroken_since(connection, self._now())
            self._listening.begin(connection, self._now(), is_alone=self._database.is_sqlite)
            self._started_at = self._now()
            write_latest_groups(connection, self._started_groups())
        self.opened.set()
        self._on_open()

    def _retry_until_done(self, work: Callable[[], None]) -> bool:
        """Try until it succeeds; return False if the console stops before that."""
        wait = 0.1
        while True:
            self.progress.note_begin()
            try:
                work()
            except (SebError, SQLAlchemyError) as error:
                message = message_of(error) if isinstance(error, SQLAlchemyError) else str(error)
                if self.progress.note_failure(message):
                    _LOG.error("%s", message, extra={"action": "database_failed"})
                if self._stop.wait(random.uniform(wait / 2, wait)):  # noqa: S311  # jitter
                    return False
                wait = min(_MAX_WAIT_SECONDS, wait * 2)
            else:
                if self.progress.note_success():
                    _LOG.info("the database works again", extra={"action": "database_recovered"})
                return True

    def _next_batch(self) -> list[SourceBatch]:
        """Return everything that waits. If that is only heartbeats, wait a moment for more."""
        first = self._inbox.pop(timeout=0.2)
        if first is None:
            return []
        batch = [first]
        count = len(first.items)
        size = first.size
        patient = _only_heartbeats(first)
        until = time.monotonic() + _GATHER_SECONDS
        while count < _MAX_ITEMS and size < _MAX_BYTES:
            wait = until - time.monotonic() if patient and count < _GATHER_ITEMS else 0.0
            each = self._inbox.pop(timeout=max(0.0, wait))
            if each is None:
                break
            batch.append(each)
            count += len(each.items)
            size += each.size
            patient = patient and _only_heartbeats(each)
        return batch

    def _commit_all(self, batch: Sequence[SourceBatch]) -> None:
        """Commit and confirm deliveries, until the console stops. If the database did not accept as
        many before, commit them in smaller parts, because a transaction that took too long would do
        so again.
        """
        rest = batch
        while rest:
            stored = self._retry_until_done(lambda: self._commit(rest[: self._max_deliveries]))  # noqa: B023
            count = self._max_deliveries if stored else len(rest)
            some = rest[:count]
            rest = rest[count:]
            self._max_deliveries = min(
                _MAX_ITEMS, self._max_deliveries + 1 + self._max_deliveries // 4
            )
            for delivery in some:
                with suppress(Exception):  # a source that has gone must not end the writer
                    delivery.on_end(stored)

    def _commit(self, batch: Sequence[SourceBatch]) -> None:
        try:
            self._commit_or_isolate(batch)
        except _ABOUT_THE_DATABASE:
            self._max_deliveries = max(1, len(batch) // 2)
            raise

    def _commit_or_isolate(self, batch: Sequence[SourceBatch]) -> None:
        try:
            self._commit_together(batch)
        except _ABOUT_THE_DATABASE as error:
            if not _sqlstate(error).startswith(_ABOUT_DATA):
                raise
            self._isolate(batch)
        except Exception:  # noqa: BLE001  # something in the batch, or a bug that it brings out
            self._isolate(batch)

    def _isolate(self, batch: Sequence[SourceBatch]) -> None:
        """Commit each delivery of a batch by itself, because one item cannot be stored."""
        for delivery in batch:
            self._isolate_items(delivery.source, delivery.items)
            if delivery.checkpoint is not None:
                self._commit_together([replace(delivery, items=())])

    def _isolate_items(
        self, source: str, items: Sequence[IncomingMessage | QuarantinedMessage]
    ) -> None:
        """Commit items, and divide them in halves until the one is found that cannot be stored; it
        is quarantined.
        """
        if not items:
            return
        try:
            self._commit_together([SourceBatch(source=source, items=items, on_end=_nothing)])
        except Exception as error:
            is_of_data = _sqlstate(error).startswith(_ABOUT_DATA)
            if isinstance(error, _ABOUT_THE_DATABASE) and not is_of_data:
                raise
            if len(items) > 1:
                middle = len(items) // 2
                self._isolate_items(source, items[:middle])
                self._isolate_items(source, items[middle:])
                return
            message = message_of(error) if isinstance(error, SQLAlchemyError) else repr(error)[:300]
            fields = {"action": "record_not_stored", "source": source}
            _LOG.exception("%s", message, extra=fields)
            sample = items[0].body if isinstance(items[0], IncomingRecord) else b""
            quarantined = QuarantinedMessage(
                reason="unstorable", message=message, sample=sample, at=self._now()
            )
            self._commit_together(
                [SourceBatch(source=source, items=[quarantined], on_end=_nothing)]
            )

    def _quarantine_excess(
        self, connection: Connection, quarantined: Iterable[tuple[str, IncomingRecord]]
    ) -> None:
        """Quarantine the records that exceed what a VM may store."""
        for (source, reason), several in _by_source(quarantined).items():
            last = several[-1]
            count_quarantined(
                connection,
                source=source,
                reason=reason,
                message=f"{last.vm.vm_id}: {LIMITS[reason]}",
                sample=last.body,
                at=last.received_at,
                count=len(several),
            )
            self.progress.quarantined[(source, reason)] += len(several)

    def _commit_together(self, batch: Sequence[SourceBatch]) -> None:
        """Write everything that a batch changes, in one transaction."""
        items = [item for each in batch for item in each.items if _is_about_a_vm(item)]
        with begin_write(self._database) as (connection, change_number):
            changes = write_batch(
                connection,
                items,
                change_number,
                now=self._now(),
                silent_time=self._silent_time,
                grouping=self._grouping,
            )
            self._quarantine_excess(connection, changes.quarantined)
            for delivery in batch:
                for item in delivery.items:
                    if isinstance(item, QuarantinedMessage):
                        count_quarantined(
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
        if changes.incomplete_vms:
            self._on_incomplete(changes.incomplete_vms)
        self._on_commit()


def _by_source(
    quarantined: Iterable[tuple[str, IncomingRecord]],
) -> dict[tuple[str, str], list[IncomingRecord]]:
    """Return the quarantined records, by source and reason."""
    found: dict[tuple[str, str], list[IncomingRecord]] = {}
    for reason, each in quarantined:
        found.setdefault((each.source, reason), []).append(each)
    return found


def _is_about_a_vm(item: IncomingMessage | QuarantinedMessage) -> TypeGuard[IncomingMessage]:
    """Check whether an item is about a VM: a message of one, and no test of the connection."""
    return not isinstance(item, QuarantinedMessage) and not (
        isinstance(item, IncomingRecord) and item.is_test
    )


def _only_heartbeats(delivery: SourceBatch) -> bool:
    return all(
        isinstance(item, IncomingRecord) and item.kind == "heartbeat" for item in delivery.items
    )


def _sqlstate(error: Exception) -> str:
    """Return PostgreSQL's code of an error; empty with SQLite."""
    return getattr(getattr(error, "orig", None), "sqlstate", None) or ""


def _nothing(_stored: bool) -> None:  # noqa: FBT001  # as SourceBatch.on_end
    pass
