"""The preparations that are not over, as they are on disk, and each step of one."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from bridge.clock import Clock
from bridge.events.state import CurrentState
from bridge.events.tracked import TrackedEvent
from bridge.preparation.transitions import (
    PreparationCondition,
    PreparationStage,
    next_step,
    stage_of,
)
from bridge.store.database import Store
from bridge.store.preparations import Preparation, PreparationRows
from bridge.store.recipient import role_of
from wire.moment import rfc3339
from wire.preparation import NONE, PREPARED, RECOVERED, PreparationData
from wire.record import PREPARATION, Record, RecordDraft, draft

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


class OpenPreparations:
    """The preparations that are not over. Each change is one commit: a preparation that is half
    over would never be asked for again.

    Only one thread at a time may change them; any thread may read.
    """

    def __init__(
        self, spec: PreparingSpec, store: Store, current: CurrentState, clock: Clock
    ) -> None:
        """Raises `StoreError` if they cannot be read."""
        self._spec = spec
        self._rows = PreparationRows(store)
        self._current = current
        self._clock = clock
        if any(
            each.sink != spec.sink if each.role == spec.role else each.state == "preparing"
            for each in self._rows.all()
        ):
            self._rows.hand_over(spec.sink, spec.role)
        if self._rows.had_other_role(spec.sink, spec.role):
            # What the sink did meanwhile with other states of these events is not known.
            for each in self._rows.all():
                if each.role == spec.role and each.state == "prepared":
                    self._rows.save(replace(each, is_over=True))
        self._by_event: Mapping[str, Preparation] = {
            each.event: each for each in self._rows.all() if each.role == spec.role
        }
        self._interrupted = {
            key for key, each in self._by_event.items() if each.state == "preparing"
        }
        """Events for which an earlier run asked the sink, and did not see it done. It is asked
        again: it may have another name now, or may have been out of the settings meanwhile.
        """

    def all(self) -> list[Preparation]:
        """Return every one of them."""
        return list(self._by_event.values())

    def of_event(self, key: str) -> Preparation | None:
        """Return the preparation for an event, by its key."""
        return self._by_event.get(key)

    def asked_by(self, record: Record) -> Preparation | None:
        """Return the preparation for which `record` asks the sink; None if that is not to be done
        any more, or is asked for again.
        """
        for each in self._by_event.values():
            # A person may have a record tried again that the sink gave up on.
            is_open = stage_of(each) in (PreparationStage.PREPARING, PreparationStage.FAILED)
            if (
                each.request_sequence == record.sequence
                and is_open
                and each.event not in self._interrupted
            ):
                return each
        return None

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

    def interrupted_cause(self, tracked: TrackedEvent) -> str | None:
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

    def event_record(self, preparation: Preparation) -> Record | None:
        """Return the record of the event that the sink is to get. Raises `StoreError`."""
        return self._rows.shown(preparation.event)

    def newest_record(self, key: str) -> Record | None:
        """Return the newest record of an event, by its key. Raises `StoreError`."""
        return self._rows.newest(key)

    def has_end_since(self, preparation: Preparation) -> bool:
        """Check whether the records say that the event has ended since the sink was asked. Raises
        `StoreError`.
        """
        return self._rows.ends_after(preparation.event, preparation.request_sequence)

    def ask(self, tracked: TrackedEvent, cause: str) -> None:
        """Ask the sink to prepare for this state of the event. Raises `StoreError`; then it was not
        asked.
        """
        new = Preparation(
            event=tracked.event.key,
            event_id=tracked.event.event_id,
            fingerprint=tracked.fingerprint,
            sink=self._spec.sink,
            role=self._spec.role,
            cause=cause,
            state="preparing",
            request_sequence=0,
            first_seen=rfc3339(tracked.first_seen),
            before=self._prepared_before(tracked),
        )
        new = self._rows.ask_sink(new, self._record(new))
        self._keep(new)
        self._log(new, None)

    def _prepared_before(self, tracked: TrackedEvent) -> tuple[str, ...]:
        """Return the earlier states of the event for which this VM is prepared: none after its end
        for this VM, or after a run of the program of which it is not known that it ended with 0.
        """
        former = self._by_event.get(tracked.event.key)
        if former is None or former.first_seen != rfc3339(tracked.first_seen):
            return ()
        is_prepared = stage_of(former) is PreparationStage.PREPARED
        return (*former.before, former.fingerprint) if is_prepared else ()

    def assume(self, event_id: str, fingerprint: str, *, first_seen: str) -> None:
        """Assume that the sink needs the start and the end of an event; its present state is not
        prepared. Raises `StoreError`.
        """
        assumed = Preparation(
            event=event_id.casefold(),
            event_id=event_id,
            fingerprint=fingerprint,
            sink=self._spec.sink,
            role=self._spec.role,
            cause=DEADLINE,
            state="prepared",
            request_sequence=0,
            first_seen=first_seen,
            is_over=True,
        )
        self._save(assumed)

    def forget_earlier_states(self, preparation: Preparation) -> None:
        """Note that the VM is not prepared for earlier states of the event any more. Raises
        `StoreError`; then it is noted with the next step.
        """
        if preparation.before:
            after = replace(preparation, before=())
            # Known at once, or the next run could end with 0 before the disk has taken it.
            self._keep(after)
            self._rows.save(after)

    def take_step(
        self, preparation: Preparation, condition: PreparationCondition, reason: str | None = None
    ) -> None:
        """Carry out what the table says. Raises `StoreError`; then nothing has changed."""
        step = next_step(preparation, condition)
        if step is None:
            return
        if step.state is None:
            self._save(replace(preparation, is_over=step.is_over))
            return
        reason = step.reason or reason
        # A run that gave up may have undone what was prepared for earlier states.
        before = () if step.state == "failed" else preparation.before
        after = replace(preparation, state=step.state, is_over=step.is_over, before=before)
        record = self._record(after, reason)
        if step.state == RECOVERED:
            self._rows.finish(after, record)
            self._remove(after)
        else:
            self._save(after, record)
        self._log(after, reason)

    def _save(self, preparation: Preparation, record: RecordDraft | None = None) -> None:
        self._rows.save(preparation, record)
        self._keep(preparation)

    def _keep(self, preparation: Preparation) -> None:
        self._interrupted.discard(preparation.event)
        self._by_event = {**self._by_event, preparation.event: preparation}

    def _remove(self, preparation: Preparation) -> None:
        self._interrupted.discard(preparation.event)
        gone = preparation.event
        self._by_event = {key: each for key, each in self._by_event.items() if key != gone}

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
