"""The current state of the VM and its events. The poller and the identity job write it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Self

from bridge.clock import STOOD_SECONDS, Clock, SteadyTime
from bridge.events.gaps import GapTracker
from bridge.events.normalize import pending_event
from bridge.events.tracked import TrackedEvent, load_tracked
from bridge.store.database import LastSeen
from wire.observer import Observer
from wire.state import PendingEvent
from wire.vm import VmIdentity


@dataclass(frozen=True, slots=True, kw_only=True)
class PollTrouble:
    """Why the last poll gave no document: one word, and a sentence."""

    reason: str
    message: str


@dataclass(slots=True, kw_only=True)
class CurrentState:
    """The state of one run. Any thread may read it: each value is replaced as a whole."""

    observer: Observer
    clock: Clock
    gaps: GapTracker
    events: Mapping[str, TrackedEvent]
    """Every event that is remembered, by key; never changed in place."""
    incarnation: int | None
    """DocumentIncarnation of the committed document; None before the first."""
    api_version: str
    """The api-version of requests to IMDS."""
    trouble: PollTrouble | None = None
    """The trouble of the last poll; None if it succeeded."""
    preparation: Callable[[TrackedEvent], str | None] = lambda _: None
    """Returns the state of this VM's preparation for an event; None if it prepares nothing."""
    prepares: bool = False
    """Whether a sink prepares this VM."""
    compared_as: str | None = None
    """The name of this VM with which the last document was compared; None before the first."""
    is_behind: bool = False
    """Whether IMDS has answered with a newer document, which is not committed yet."""
    _times: Mapping[tuple[str, datetime], SteadyTime] = field(default_factory=dict)
    """The clock for each pending event, by its key and the time at which it was first seen."""

    @classmethod
    def after(
        cls,
        seen: LastSeen,
        observer: Observer,
        clock: Clock,
        *,
        interval: float,
        boot_id: str | None,
        api_version: str,
    ) -> Self:
        """Return the state at the start of a run. Raises what `load_events` raises."""
        events = load_events(seen.events)
        rebooted = None if None in (seen.boot_id, boot_id) else seen.boot_id != boot_id
        state = cls(
            observer=observer,
            clock=clock,
            gaps=GapTracker(
                clock,
                interval=interval,
                polled_at=seen.polled_at,
                polled_uptime=seen.polled_uptime,
                rebooted=rebooted,
            ),
            events=events,
            incarnation=seen.incarnation,
            api_version=api_version,
        )
        state._times = {
            (key, each.first_seen): SteadyTime(
                clock,
                since=each.first_seen,
                uptime_then=each.uptime,
                is_same_boot=rebooted is False and not each.measured.restarted,
                least=seen.polled_at,
                trusted_after=STOOD_SECONDS,
            )
            for key, each in events.items()
            if each.pending
        }
        state.set_events(events, seen.incarnation)
        return state

    @property
    def vm(self) -> VmIdentity:
        """The identity of this VM, as IMDS gave it last."""
        return self.observer.vm

    def set_identity(self, vm: VmIdentity) -> None:
        """Note that IMDS has given the identity again."""
        self.observer = replace(self.observer, vm=vm)

    def set_events(self, events: Mapping[str, TrackedEvent], incarnation: int | None) -> None:
        """Set the committed events and the incarnation of their document."""
        self._times = {
            (key, each.first_seen): self._times.get((key, each.first_seen))
            or SteadyTime(
                self.clock,
                since=each.first_seen,
                uptime_then=each.uptime,
                is_same_boot=True,
                trusted_after=STOOD_SECONDS,
            )
            for key, each in events.items()
            if each.pending
        }
        self.events = events
        self.incarnation = incarnation

    def time_of(self, tracked: TrackedEvent) -> datetime:
        """Return the time against which the start of an event is measured: by the clock as it was
        when the event was first seen. If the clock was set back since, nothing is delayed, because
        `not_before` is by Azure's clock. If it was set forward, it counts after a while.
        """
        time = self._times.get((tracked.event.key, tracked.first_seen))
        return self.clock.now() if time is None else time.now()

    def time_of_key(self, key: str) -> datetime | None:
        """Return the same for an event by its key; None if it is not known."""
        tracked = self.events.get(key)
        return None if tracked is None else self.time_of(tracked)

    @property
    def store_trouble(self) -> str | None:
        """Return why the bridge cannot commit, as a sentence, or None."""
        trouble = self.trouble
        return trouble.message if trouble is not None and trouble.reason == "store" else None

    def is_current(self) -> bool:
        """Check whether the last poll succeeded and is recent, and knew this VM by its present
        name, and no newer document is here: what is known is what IMDS says now.
        """
        knows_name = self.compared_as in (None, self.vm.name)
        is_good = knows_name and self.trouble is None and not self.is_behind
        return is_good and self.gaps.is_current()

    def pending(self) -> list[PendingEvent]:
        """Return the events that are pending now, as committed."""
        return [
            pending_event(each, preparation=self.preparation(each))
            for each in self.events.values()
            if each.pending
        ]

    def urgent(self, seconds: float) -> bool:
        """Check whether an event that names this VM has begun, or may begin within so
        many seconds.
        """
        return any(
            each.event.not_before is None
            or (each.event.not_before - self.time_of(each)).total_seconds() <= seconds
            for each in self.events.values()
            if each.pending and each.affects_this_vm and not each.event.is_news
        )


def load_events(kept: Mapping[str, str]) -> dict[str, TrackedEvent]:
    """Return the stored events by key. Raises `ValueError`, `LookupError` or `TypeError` if they
    are damaged.
    """
    return {key: load_tracked(value) for key, value in kept.items()}
