"""The part of a run that tells people: looks once a second, stores what is new, delivers it."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from sqlalchemy.exc import SQLAlchemyError

from console.errors import ConsoleError
from console.fleet.contact import Ears
from console.fleet.index import Fleet
from console.fleet.values import UNDECIDED, Past
from console.fleet.view import event_item
from console.notices import events
from console.notices.delivery import Delivery
from console.notices.notice import Kind, Notice
from console.notices.vms import VmWatch
from console.store import notices as store
from console.store.audit import AuditRow, last_row
from console.store.errors import told
from console.store.opening import Database
from console.store.writing import next_number
from sinks.base import Sink

_LOG: Final = logging.getLogger("console")
_LOOK_SECONDS: Final = 1.0
_WINDOW_SECONDS: Final = 3600.0
"""What ended longer ago than this is not told any more."""
_SETTLE_SECONDS: Final = 60.0
"""An event's end waits so long for the VMs that it names to say what it cost."""
_MOST_PAST: Final = 500
_OF_VMS: Final = ("vm-silent", "vm-not-back", "vm-heard")

Seen = tuple[Fleet, float, Ears]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What a look needs from the database."""

    past: Sequence[Past]
    endings: Sequence[events.Ending]
    head: AuditRow | None


class Notices:
    """One thread that looks, and one for each sink. Without a sink it does nothing."""

    def __init__(
        self,
        sinks: Sequence[Sink[Any]],
        *,
        database: Database,
        base: str,
        site: str,
        look: Callable[[Callable[[Fleet, float, Ears], list[Notice]]], list[Notice]],
        now: Callable[[], float] = time.time,
    ) -> None:
        """`base` is the console's address in links. `look` gives what a function finds in
        the fleet, called where the fleet is used; nothing while it is not in memory. `now` in
        seconds since 1970.
        """
        self._database = database
        self._base = base
        self._site = site
        self._find = look
        self._now = now
        # A SQLite file has one console: what a killed run had claimed is this one's at once.
        self._console = "" if database.is_sqlite else str(uuid.uuid4())
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="notices", daemon=True)
        self._vms: VmWatch | None = None
        self._begun = 0.0
        self._told: set[str] = set()
        self.deliveries = [
            Delivery(sink, database=database, console=self._console, now=now) for sink in sinks
        ]

    def start(self) -> None:
        """Begin; the database need not be open yet."""
        if self.deliveries:
            self._thread.start()

    def stop(self) -> None:
        """End, within seconds."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(5)
        for each in self.deliveries:
            each.stop()
        if self._vms is not None:
            try:
                with self._database.writing.begin() as connection:
                    store.release(connection, self._console)
            except SQLAlchemyError as error:  # the claims end by themselves
                _LOG.debug("%s", told(error))

    def _run(self) -> None:
        while not self._stop.wait(_LOOK_SECONDS):
            try:
                if self._vms is None:
                    self._begin()
                self._look()
            except SQLAlchemyError as error:
                _LOG.warning("%s", told(error), extra={"action": "notices_not_stored"})
            except ConsoleError as error:
                _LOG.warning("%s", error, extra={"action": "notices_not_stored"})
            except Exception:  # noqa: BLE001  # if this thread ended, people would not be told
                _LOG.exception("a look failed", extra={"action": "notices_failed"})

    def _begin(self) -> None:
        with self._database.writing.begin() as connection:
            next_number(connection)
            self._begun = store.begun(connection, self._now())
            store.add_sinks(connection, [each.name for each in self.deliveries])
            last = store.last_told(connection, _OF_VMS)
        self._vms = VmWatch(cast("dict[str, Kind]", last))
        for each in self.deliveries:
            each.start()

    def _look(self) -> None:
        stored = self._stored()
        found = self._find(lambda fleet, now, ears: self._found(stored, fleet, now, ears))
        new = [each for each in found if each.id not in self._told]
        if not new:
            return
        with self._database.writing.begin() as connection:
            next_number(connection)
            store.tell(connection, new, base=self._base, site=self._site)
        self._told.update(each.id for each in new)
        for delivery in self.deliveries:
            delivery.wake()

    def _stored(self) -> Stored:
        since = max(self._begun, self._now() - _WINDOW_SECONDS)
        with self._database.reading.begin() as connection:
            past = store.ended_since(connection, since, _MOST_PAST)
            rows = store.decisions_over(connection, since, events.FAILURES)
            head = last_row(connection)
        return Stored(
            head=head,
            past=past,
            endings=[
                events.Ending(
                    id=row.id,
                    event_id=row.event_id,
                    outcome=row.outcome,
                    reason=row.outcome_reason,
                    by=row.actor,
                    at=row.over_at,
                )
                for row in rows
            ],
        )

    def _found(self, stored: Stored, fleet: Fleet, now: float, ears: Ears) -> list[Notice]:
        """On the loop's thread: everything that holds now; what was told is sorted out later."""
        assert self._vms is not None  # noqa: S101  # _run began before
        found: list[Notice] = []
        for event in fleet.events.values():
            item = event_item(
                fleet,
                event,
                fleet.sightings[event.event_id],
                fleet.receipts.get(event.event_id, []),
                fleet.decided.get(event.event_id, UNDECIDED),
                now=now,
                ears=ears,
            )
            found += events.of_open(item, now)
        found += [events.over(each) for each in stored.past if _settled(each, now)]
        past = {each.event.event_id: each for each in stored.past}
        for ending in stored.endings:
            known = past.get(ending.event_id)
            if ending.event_id in fleet.events:
                event = fleet.events[ending.event_id]
                known = Past(event=event, witnesses=fleet.sightings[ending.event_id])
            found.append(events.approval_failed(ending, known))
        if stored.head is not None:
            found.append(_of_head(stored.head, now))
        return found + self._vms.look(fleet, stored.past, now, ears)


def _settled(past: Past, now: float) -> bool:
    """Whether every witness that the event names has seen its end, or has had the time for it."""
    open_ones = [
        each
        for each in past.witnesses.values()
        if each.facts.affects and each.facts.state != "ended"
    ]
    return not open_ones or now - past.event.shown_at > _SETTLE_SECONDS


def _of_head(head: AuditRow, now: float) -> Notice:
    """The head of the audit's chain, so that a copy of it stands elsewhere."""
    return Notice(
        kind="audit-head",
        subject="audit",
        fact=(head.number, head.hash),
        at=now,
        title=f"The audit has {head.number} rows",
        text=f"The hash of its last row is {head.hash}",
        path="/audit",
        vm={"name": "console"},
        more={"number": head.number, "hash": head.hash},
    )
