"""Asks the sink to prepare this VM, and follows each preparation to its end: once for each state of
an event, even after a crash.

A record in the outbox asks for a preparation, so that the sink gets it in order with all others,
and again after a restart. The result is on disk before that record counts as delivered.
"""

from __future__ import annotations

import threading
from dataclasses import replace

from bridge.clock import Clock
from bridge.events.state import CurrentState
from bridge.events.tracked import TrackedEvent
from bridge.preparation.deadlines import Deadlines
from bridge.preparation.open_preparations import DEADLINE, OpenPreparations, PreparingSpec
from bridge.preparation.transitions import PreparationCondition, PreparationStage, stage_of
from bridge.store.database import PREPARATIONS_LOST_KEY, Store
from bridge.store.outbox import Outbox
from bridge.store.preparations import Preparation
from wire.moment import rfc3339
from wire.preparation import NONE
from wire.record import EVENT_STARTED, Record


class Preparations:
    """Asks the sink to prepare this VM, and follows each preparation to its end.

    Polls, people and the sink call it, so all methods may be called from any thread.
    """

    def __init__(
        self,
        spec: PreparingSpec,
        store: Store,
        current: CurrentState,
        clock: Clock,
    ) -> None:
        """Raises `StoreError` if the stored preparations cannot be read."""
        self.spec = spec
        self._store = store
        self._current = current
        self._lock = threading.RLock()
        self._open = OpenPreparations(spec, store, current, clock)
        self._deadlines = Deadlines(self._open, current, spec.lead)

    def state_of(self, tracked: TrackedEvent) -> str | None:
        """Return the state of the preparation for this state of the event; None if there is nothing
        to prepare: the event does not name this VM, or is news.
        """
        return self._open.state_of(tracked)

    def ask(self, tracked: TrackedEvent, cause: str) -> None:
        """Ask the sink to prepare for this state of the event, unless it was asked already. Raises
        `StoreError`; then it was not asked.
        """
        with self._lock:
            if self.state_of(tracked) == NONE:
                self._open.ask(tracked, cause)

    def follow(self) -> None:
        """Follow the preparations that are under way, and ask for those that are due; called after
        a poll, and at a deadline. Raises `StoreError`.
        """
        with self._lock:
            self._assume_lost()
            for each in self._open.all():
                self._follow(each)
        for tracked in list(self._current.events.values()):
            if self._deadlines.is_due(tracked):
                self.ask(tracked, self._open.interrupted_cause(tracked) or DEADLINE)

    def seconds_to_deadline(self) -> float | None:
        """Return the seconds until `follow` is due without a poll; None if no event has a
        deadline.
        """
        return self._deadlines.seconds_to_next()

    def _follow(self, preparation: Preparation) -> None:
        """Check whether the event is still the one of the preparation. What an earlier run asked
        for and did not see done ends in the records too.
        """
        if stage_of(preparation) is PreparationStage.OVER:
            return  # only the program ends it
        tracked = self._current.events.get(preparation.event)
        if (
            tracked is None
            or not tracked.affects_this_vm
            or self._has_passed(preparation)
            # It may name this VM again by now.
            or self._open.has_end_since(preparation)
        ):
            self._open.take_step(preparation, PreparationCondition.OVER)
        elif (
            stage_of(preparation) is PreparationStage.PREPARED
            and tracked.fingerprint in preparation.before
        ):
            self._open.take_step(
                _for_earlier_state(preparation, tracked.fingerprint), PreparationCondition.RETURNED
            )
        elif tracked.fingerprint != preparation.fingerprint:
            self._open.take_step(preparation, PreparationCondition.CHANGED)

    def _has_passed(self, preparation: Preparation) -> bool:
        """Check whether the event of a preparation has ended since, even if it has returned."""
        tracked = self._current.events.get(preparation.event)
        return (
            tracked is None
            or not tracked.pending
            or rfc3339(tracked.first_seen) != preparation.first_seen
        )

    # After a change of the settings, or a loss of the store

    def adopt(self, outbox: Outbox) -> None:
        """Give the sink the ends of the events that it received while it did not prepare. Called
        once the outbox knows the sink, and before that is served. Raises `StoreError`.
        """
        sink = self.spec.sink
        for each in self._open.all():
            if self._has_passed(each) and outbox.has_acknowledged_in_plain_role(sink, each.event):
                self._open.take_step(each, PreparationCondition.RECOVERED)
        for event in outbox.events_known_before(sink):
            newest = self._open.newest_record(event)
            tracked = self._current.events.get(event)
            if self._open.of_event(event) is None and newest is not None:
                self._open.assume(
                    newest.data["event"]["eventId"],
                    newest.data["fingerprint"],
                    first_seen="" if tracked is None else rfc3339(tracked.first_seen),
                )
        outbox.forget_events_known_before(sink)
        with self._lock:
            self._assume_lost()

    def _assume_lost(self) -> None:
        """Assume, after a loss of the store, that this VM has prepared for every event of the first
        document: one recovery too many does less harm than a VM that stays away.
        """
        has_document = self._current.gaps.has_polled() or self._current.incarnation is not None
        if not self._may_have_lost() or not has_document:
            return
        for tracked in list(self._current.events.values()):
            may_be = tracked.pending and tracked.affects_this_vm and not tracked.event.is_news
            if may_be and self._open.of_event(tracked.event.key) is None:
                self._open.assume(
                    tracked.event.event_id,
                    tracked.fingerprint,
                    first_seen=rfc3339(tracked.first_seen),
                )
        self._store.commit(meta={PREPARATIONS_LOST_KEY: "false"})

    def _may_have_lost(self) -> bool:
        return self._store.meta(PREPARATIONS_LOST_KEY) == "true"

    # Called by the sink's thread

    def event_of(self, record: Record) -> Record | None:
        """Return the record of the event for which `record` asks the sink to prepare; None if the
        VM need not prepare for it any more. Raises `StoreError`.
        """
        with self._lock:
            each = self._open.asked_by(record)
            if each is not None:
                self._follow(each)  # it may have changed since the last `follow`
                each = self._open.asked_by(record)
            return None if each is None else self._open.event_record(each)

    def wants(self, record: Record) -> bool:
        """Check whether a record says that an event which this VM was asked to prepare for has
        started, is over, or no longer names this VM. Once the VM has prepared for the event again,
        an earlier record, which a person may have had tried again, is not for it any more.
        """
        with self._lock:
            each = self._open.of_event((record.event_id or "").casefold())
            if (
                each is not None
                and each.state == "prepared"
                and each.request_sequence > record.sequence
            ):
                return False
            # The first records after a loss may come before `follow` has seen their events.
            is_known = each is not None or self._may_have_lost()
        return is_known and (record.type == EVENT_STARTED or record.is_end)

    def note_prepared(self, record: Record) -> None:
        """Note that the sink has done what `record` asked for. Raises `StoreError`; then that is
        not known, and the sink is asked again.
        """
        with self._lock:
            each = self._open.asked_by(record)
            if each is not None:
                self._open.take_step(each, PreparationCondition.DONE)

    def note_cut_off(self, record: Record) -> None:
        """Note that the sink did what `record` asked for in part: it is asked again, and earlier
        states of the event are not prepared any more. Raises `StoreError`.
        """
        with self._lock:
            each = self._open.asked_by(record)
            if each is not None:
                self._open.forget_earlier_states(each)

    def note_gave_up(self, record: Record, reason: str) -> None:
        """Note that the sink will never do what `record` asked for. Raises `StoreError`."""
        with self._lock:
            each = self._open.asked_by(record)
            if each is not None:
                self._open.take_step(each, PreparationCondition.GIVEN_UP, reason)

    def note_recovered(self, record: Record, reason: str | None = None) -> None:
        """Note that the sink has received the end of the event; `reason`: why it could not recover.
        Raises `StoreError`.
        """
        with self._lock:
            each = self._open.of_event((record.event_id or "").casefold())
            # A preparation that was asked for after that record is for the next announcement.
            if each is None or not record.is_end or each.request_sequence > record.sequence:
                return
            self._open.take_step(
                each,
                PreparationCondition.RECOVERED
                if reason is None
                else PreparationCondition.NOT_RECOVERED,
                reason,
            )


def _for_earlier_state(preparation: Preparation, fingerprint: str) -> Preparation:
    """Return the preparation for an earlier state of the event, which has come back. It is recorded
    again: the last record is about a later state, and a console over HTTPS has only records.
    """
    others = (each for each in preparation.before if each != fingerprint)
    return replace(preparation, fingerprint=fingerprint, before=(*others, preparation.fingerprint))
