"""The thread that makes notices: it checks once a second, stores what is new, and wakes
the sinks. It also replaces a worker whose sink hangs.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Final

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from console.db import notices as notice_rows
from console.db.connection.errors import message_of
from console.db.connection.transactions import write_to
from console.db.notices import IncidentSubject
from console.db.snapshot import Snapshots
from console.notify.conflict_notices import conflict_notices
from console.notify.due_notices import due_notices
from console.notify.incidents import IncidentNotices
from console.notify.sink_worker import SinkWorker
from console.notify.vm_notices import vm_notices
from sinks.base import Sink
from sinks.shared.errors import SebError

_LOG: Final = logging.getLogger("console")
_CHECK_SECONDS: Final = 1.0


class NoticeWorker:
    """One thread that checks what is due, and one for each sink. Without a sink it does nothing."""

    def __init__(
        self,
        sinks: Sequence[Sink[Any]],
        *,
        snapshots: Snapshots,
        base: str,
        site: str,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`base` is the console's address in links; `monotonic` measures how long a sink takes."""
        self._snapshots = snapshots
        self._database = snapshots.database
        self._base = base
        self._site = site
        # A SQLite file has one console. All its runs have the same id, so that each takes over the
        # claims of a killed one at once.
        self._run_id = "" if self._database.is_sqlite else str(uuid.uuid4())
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="notices", daemon=True)
        self._begun: float | None = None
        self.workers = [
            SinkWorker(
                sink,
                database=self._database,
                run_id=self._run_id,
                now=snapshots.clock,
                monotonic=monotonic,
            )
            for sink in sinks
        ]
        self._stuck: list[SinkWorker] = []

    def start(self) -> None:
        """Start the thread, if there are sinks; the database may be opened later."""
        if self.workers:
            self._thread.start()

    def stop(self) -> None:
        """Stop all threads, within seconds."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(5)
        for each in self.workers:
            each.stop()
        if self._begun is not None:
            try:
                with self._database.writing.begin() as connection:
                    notice_rows.release(connection, self._run_id)
            except SQLAlchemyError as error:  # the claims end by themselves
                _LOG.debug("%s", message_of(error))

    def supervise(self) -> None:
        """Replace stuck workers; called once a second."""
        for index, worker in enumerate(self.workers):
            if not worker.abandon_if_stuck():
                continue
            try:
                successor = worker.successor()
            except Exception:  # noqa: BLE001  # one sink's bug must not stop the others
                _LOG.exception("no new sink", extra={"action": "sink_bug", "sink": worker.name})
                continue
            self._stuck.append(worker)
            worker.health.stuck_threads += 1
            self.workers[index] = successor
            successor.start()
        self._stuck = [worker for worker in self._stuck if worker.is_alive]
        for each in self.workers:
            each.health.stuck_threads = sum(stuck.name == each.name for stuck in self._stuck)

    def _run(self) -> None:
        while not self._stop.wait(_CHECK_SECONDS):
            try:
                self.supervise()
                if self._begun is None:
                    self._begun = self._begin()
                self._find_and_store(self._begun)
            except SQLAlchemyError as error:
                _LOG.warning("%s", message_of(error), extra={"action": "notices_not_stored"})
            except SebError as error:
                _LOG.warning("%s", error, extra={"action": "notices_not_stored"})
            except Exception:  # noqa: BLE001  # without this thread there would be no notices
                _LOG.exception("a check for notices failed", extra={"action": "notices_failed"})

    def _begin(self) -> float:
        """Start the workers; return when consoles of this database began to send notices."""
        with write_to(self._database) as (connection, _):
            begun = notice_rows.first_console_start(connection, self._snapshots.clock())
            notice_rows.insert_cursors(connection, [each.name for each in self.workers])
        for each in self.workers:
            each.start()
        return begun

    def _find_and_store(self, begun: float) -> None:
        """Find the notices that are due, and store them with the incidents that they open and end.

        The incidents are read again in the writing transaction: what another console stored
        meanwhile, or a write that failed, is handled at the next check.
        """
        with self._snapshots.open() as snapshot:
            now = snapshot.now
            found = due_notices(snapshot, begun=begun)
        about_contact = vm_notices(found.vms, found.incidents, now)
        about_identity = conflict_notices(found.conflicts, found.conflict_incidents, now)
        if about_contact.is_empty and about_identity.is_empty and not found.notices:
            return
        with write_to(self._database) as (connection, _):
            known = found.known(notice_rows.incidents(connection, "contact"))
            about_contact = vm_notices(found.vms, known, now)
            _store_incidents(connection, "contact", about_contact, now)
            known = notice_rows.incidents(connection, "identity")
            about_identity = conflict_notices(found.conflicts, known, now)
            _store_incidents(connection, "identity", about_identity, now)
            every = [*found.notices, *about_contact.notices, *about_identity.notices]
            notice_rows.insert_notices(connection, every, base=self._base, site=self._site, now=now)
        for worker in self.workers:
            worker.wake()


def _store_incidents(
    connection: Connection, about: IncidentSubject, found: IncidentNotices, now: float
) -> None:
    """Store the incidents that these notices open, and delete those that they end."""
    notice_rows.delete_incidents(connection, about, found.ended)
    notice_rows.upsert_incidents(connection, about, found.opened, now)
