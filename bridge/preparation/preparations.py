"""Asks the sink to prepare this VM, and follows each preparation to its end: once for each state of
an event, even after a crash.

A record in the outbox asks for a preparation, so that the sink gets it in order with all others,
and again after a restart. The result is on disk before that record counts as delivered.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from bridge.clock import Clock
from bridge.events.state import CurrentState
from bridge.events.tracked import TrackedEvent
from bridge.preparation.transitions import PreparationStage, PreparationTrigger, next_step, stage_of
from bridge.store.database import PREPARATIONS_LOST_KEY, Store
from bridge.store.outbox import Outbox
from bridge.store.preparations import Preparation, PreparationRows, is_end
from bridge.store.recipient import role_of
from wire.moment import rfc3339
from wire.preparation import NONE, PREPARED, RECOVERED, PreparationData
from wire.record import EVENT_STARTED, PREPARATION, Record, RecordDraft, draft

_LOG: Final = logging.getLogger(__name__)

DEADLINE: Final = "deadline"
"""The cause of a preparation that begins at its deadline, because nobody asked for it before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparingSpec:
    """The sink that prepares, and how long before an event it does so unasked."""

    sink: str
    kind: str
    lead: float
    """In seconds."""

    @property
    def role(self) -> str:
        """The role in which it prepares."""
        return role_of(self.kind, prepares=True)


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
        self._rows = PreparationRows(store)
        self._current = current
        self._clock = clock
        self._lock = threading.RLock()
        if any(
            each.sink != spec.sink if each.role == spec.role else each.state == "preparing"
            for each in self._rows.all()
        ):
            self._rows.hand_over(spec.sink, spec.role)
        self._by_event: Mapping[str, Preparation] = {
            each.event: each for each in self._rows.all() if each.role == spec.role
        }
        self._interrupted = {
            key for key, each in self._by_event.items() if each.state == "preparing"
        }
        """Events for which an earlier run asked the sink, and did not see it done. It is asked
        again: it may have another name now, or may have been out of the settings meanwhile.
        """

    def state_of(self, tracked: TrackedEvent) -> str | None:
        """Return the state of the preparation for this state of the event; None if there is nothing
        to prepare: the event does not name this VM, or is news.
        """
        if not tracked.affects_this_vm or tracked.event.is_news:
            return None
        found = self._by_event.get(tracked.event.key)
        if found is None or found.is_over or found.event in self._interrupted:
            return NONE
        if found.first_seen != rfc3339(tracked.first_seen):
            return NONE
        if found.fingerprint == tracked.fingerprint:
            return found.state
        # The program has been run for a later state since, and ended with 0 each time.
        return PREPARED if found.state == PREPARED and tracked.fingerprint in found.before else NONE

    def ask(self, tracked: TrackedEvent, cause: str) -> None:
        """Ask the sink to prepare for this state of the event, unless it was asked already. Raises
        `StoreError`; then it was not asked.
        """
        with self._lock:
            if self.state_of(tracked) == NONE:
                self._ask(tracked, cause)

    def _ask(self, tracked: TrackedEvent, cause: str) -> None:
        asked = Preparation(
            event=tracked.event.key,
            event_id=tracked.event.event_id,
            fingerprint=tracked.fingerprint,
            sink=self.spec.sink,
            role=self.spec.role,
            cause=cause,
            state="preparing",
            asked=0,
            first_seen=rfc3339(tracked.first_seen),
            before=self._prepared_before(tracked),
        )
        asked = self._rows.ask_sink(asked, self._record(asked))
        self._replace_row(asked)
        self._log(asked, None)

    def _prepared_before(self, tracked: TrackedEvent) -> tuple[str, ...]:
        """Return the earlier states of the event for which this VM is prepared: none after its end
        for this VM, or after a run of the program of which it is not known that it ended with 0.
        """
        former = self._by_event.get(tracked.event.key)
        if former is None or former.first_seen != rfc3339(tracked.first_seen):
            return ()
        is_prepared = stage_of(former) is PreparationStage.PREPARED
        return (*former.before, former.fingerprint) if is_prepared else ()

    def follow(self) -> None:
        """Follow the preparations that are under way, and ask for those that are due; called after
        a poll, and at a deadline. Raises `StoreError`.
        """
        with self._lock:
            self._assume_lost()
            for each in list(self._by_event.values()):
                self._follow(each)
        for tracked in list(self._current.events.values()):
            if self._is_due(tracked):
                self.ask(tracked, self._unfinished(tracked) or DEADLINE)

    def seconds_to_deadline(self) -> float | None:
        """Return the seconds until `follow` is due without a poll; None if no event has a
        deadline.
        """
        waits = (
            self._seconds_left(tracked)
            for tracked in self._current.events.values()
            if self._is_ahead(tracked)
        )
        return min((seconds for seconds in waits if seconds is not None), default=None)

    def adopt(self, outbox: Outbox) -> None:
        """Give the sink the ends of the events that it received while it did not prepare. Called
        once the outbox knows the sink, and before that is served. Raises `StoreError`.
        """
        sink = self.spec.sink
        for each in list(self._by_event.values()):
            if self._has_passed(each) and outbox.acknowledged_before(sink, each.event):
                self._step(each, PreparationTrigger.RECOVERED)
        for event in outbox.events_known_before(sink):
            newest = self._rows.newest(event)
            tracked = self._current.events.get(event)
            if event not in self._by_event and newest is not None:
                self._assume(
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
            if may_be and tracked.event.key not in self._by_event:
                self._assume(
                    tracked.event.event_id,
                    tracked.fingerprint,
                    first_seen=rfc3339(tracked.first_seen),
                )
        self._store.commit(meta={PREPARATIONS_LOST_KEY: "false"})

    def _may_have_lost(self) -> bool:
        return self._store.meta(PREPARATIONS_LOST_KEY) == "true"

    def _assume(self, event_id: str, fingerprint: str, *, first_seen: str) -> None:
        """Assume that the sink needs the start and the end of an event; its present state is not
        prepared.
        """
        assumed = Preparation(
            event=event_id.casefold(),
            event_id=event_id,
            fingerprint=fingerprint,
            sink=self.spec.sink,
            role=self.spec.role,
            cause=DEADLINE,
            state="prepared",
            asked=0,
            first_seen=first_seen,
            is_over=True,
        )
        self._rows.save(assumed)
        self._replace_row(assumed)

    def _has_passed(self, preparation: Preparation) -> bool:
        """Check whether the event of a preparation has ended since, even if it has returned."""
        tracked = self._current.events.get(preparation.event)
        return (
            tracked is None
            or not tracked.pending
            or rfc3339(tracked.first_seen) != preparation.first_seen
        )

    # Called by the sink's thread

    def event_of(self, record: Record) -> Record | None:
        """Return the record of the event for which `record` asks the sink to prepare; None if that
        is not to be done any more. Raises `StoreError`.
        """
        with self._lock:
            each = self._asked_by(record)
            if each is not None:
                self._follow(each)  # it may have changed since the last `follow`
                each = self._asked_by(record)
            return None if each is None else self._rows.shown(each.event)

    def wants(self, record: Record) -> bool:
        """Check whether a record says that an event which this VM was asked to prepare for has
        started, is over, or no longer names this VM. Once the VM has prepared for the event again,
        an earlier record, which a person may have had tried again, is not for it any more.
        """
        with self._lock:
            each = self._by_event.get((record.event_id or "").casefold())
            if each is not None and each.state == "prepared" and each.asked > record.sequence:
                return False
            # The first records after a loss may come before `follow` has seen their events.
            is_known = each is not None or self._may_have_lost()
        return is_known and (record.type == EVENT_STARTED or is_end(record))

    def note_prepared(self, record: Record) -> None:
        """Note that the sink has done what `record` asked for. Raises `StoreError`; then that is
        not known, and the sink is asked again.
        """
        with self._lock:
            each = self._asked_by(record)
            if each is not None:
                self._step(each, PreparationTrigger.DONE)

    def note_cut_off(self, record: Record) -> None:
        """Note that the sink did what `record` asked for in part: it is asked again, and earlier
        states of the event are not prepared any more. Raises `StoreError`.
        """
        with self._lock:
            each = self._asked_by(record)
            if each is not None and each.before:
                alone = replace(each, before=())
                self._rows.save(alone)
                self._replace_row(alone)

    def note_gave_up(self, record: Record, reason: str) -> None:
        """Note that the sink will never do what `record` asked for. Raises `StoreError`."""
        with self._lock:
            each = self._asked_by(record)
            if each is not None:
                self._step(each, PreparationTrigger.GIVEN_UP, reason)

    def note_recovered(self, record: Record, reason: str | None = None) -> None:
        """Note that the sink has received the end of the event; `reason`: why it could not recover.
        Raises `StoreError`.
        """
        with self._lock:
            each = self._by_event.get((record.event_id or "").casefold())
            # A preparation that was asked for after that record is for the next announcement.
            if each is None or not is_end(record) or each.asked > record.sequence:
                return
            self._step(
                each,
                PreparationTrigger.RECOVERED
                if reason is None
                else PreparationTrigger.NOT_RECOVERED,
                reason,
            )

    def _asked_by(self, record: Record) -> Preparation | None:
        for each in self._by_event.values():
            # A person may have a record tried again that the sink gave up on.
            is_open = stage_of(each) in (PreparationStage.PREPARING, PreparationStage.FAILED)
            if each.asked == record.sequence and is_open and each.event not in self._interrupted:
                return each
        return None

    # When it is due

    def _is_due(self, tracked: TrackedEvent) -> bool:
        seconds = self._seconds_left(tracked)
        if seconds is None or seconds > 0:
            return False
        if tracked.shown and self._current.is_current():
            return True
        # Azure does not wait for an IMDS that gives no document: what was seen last counts, until
        # the event may have begun. One that is over by now costs a recovery.
        return self._is_ahead(tracked)

    def _is_ahead(self, tracked: TrackedEvent) -> bool:
        """Check whether the event's time is known and has not come yet."""
        not_before = tracked.event.not_before
        return not_before is not None and self._current.time_of(tracked) < not_before

    def _seconds_left(self, tracked: TrackedEvent) -> float | None:
        """Return the seconds until the deadline at which this state of an event is prepared for;
        None without a deadline.
        """
        is_coming = tracked.pending and tracked.event.event_status == "Scheduled"
        if not is_coming or not tracked.affects_this_vm or self.state_of(tracked) != NONE:
            return None
        not_before = tracked.event.not_before
        if not_before is None or self._unfinished(tracked):
            return 0.0
        left = (not_before - self._current.time_of(tracked)).total_seconds()
        return max(0.0, left - self.spec.lead)

    def _unfinished(self, tracked: TrackedEvent) -> str | None:
        """Return the cause for which an earlier run asked for this state of the event, if that was
        not done when the run ended, or None.
        """
        found = self._by_event.get(tracked.event.key)
        is_it = (
            found is not None
            and found.event in self._interrupted
            and found.fingerprint == tracked.fingerprint
            and found.first_seen == rfc3339(tracked.first_seen)
        )
        return found.cause if found is not None and is_it else None

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
            or self._rows.ends_after(preparation.event, preparation.asked)
        ):
            self._step(preparation, PreparationTrigger.OVER)
        elif (
            stage_of(preparation) is PreparationStage.PREPARED
            and tracked.fingerprint in preparation.before
        ):
            self._step(
                _for_earlier_state(preparation, tracked.fingerprint), PreparationTrigger.RETURNED
            )
        elif tracked.fingerprint != preparation.fingerprint:
            self._step(preparation, PreparationTrigger.CHANGED)

    def _step(
        self, preparation: Preparation, trigger: PreparationTrigger, reason: str | None = None
    ) -> None:
        """Carry out what the table says. It is one commit: a preparation that is half over would
        never be asked for again.
        """
        step = next_step(preparation, trigger)
        if step is None:
            return
        if step.state is None:
            over = replace(preparation, is_over=step.is_over)
            self._rows.save(over)
            self._replace_row(over)
            return
        reason = step.reason or reason
        after = replace(preparation, state=step.state, is_over=step.is_over)
        record = self._record(after, reason)
        if step.state == RECOVERED:
            self._rows.finish(after, record)
            self._remove_row(after)
        else:
            self._rows.save(after, record)
            self._replace_row(after)
        self._log(after, reason)

    def _remove_row(self, preparation: Preparation) -> None:
        self._interrupted.discard(preparation.event)
        gone = preparation.event
        self._by_event = {key: each for key, each in self._by_event.items() if key != gone}

    def _replace_row(self, preparation: Preparation) -> None:
        self._interrupted.discard(preparation.event)
        self._by_event = {**self._by_event, preparation.event: preparation}

    def _record(self, preparation: Preparation, reason: str | None = None) -> RecordDraft:
        observer = self._current.observer
        data = PreparationData(
            vm=observer.vm,
            node=observer.node,
            bridge=observer.bridge,
            evt=preparation.event_id,
            evh=preparation.fingerprint,
            sink=preparation.sink,
            cause=preparation.cause,
            state=preparation.state,
            reason=None if reason is None else reason[:500],
        )
        subject = f"scheduledEvents/{preparation.event_id}"
        return draft(PREPARATION, data, subject=subject, now=self._clock.now())

    def _log(self, preparation: Preparation, reason: str | None) -> None:
        _LOG.info(
            "the preparation has a new state",
            extra={
                "action": f"preparation.{preparation.state}",
                "event": preparation.event_id,
                "sink": preparation.sink,
                "cause": preparation.cause,
                "reason": reason,
            },
        )


def _for_earlier_state(preparation: Preparation, fingerprint: str) -> Preparation:
    """Return the preparation for an earlier state of the event, which has come back. It is recorded
    again: the last record is about a later state, and a console over HTTPS has only records.
    """
    others = (each for each in preparation.before if each != fingerprint)
    return replace(preparation, fingerprint=fingerprint, before=(*others, preparation.fingerprint))
