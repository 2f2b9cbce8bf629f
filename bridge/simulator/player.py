"""Plays one scenario on a timeline, on its own thread, at a speed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import groupby
from typing import assert_never

from bridge.clock import Clock
from bridge.simulator.events import SimulatedEvent
from bridge.simulator.scenarios import Announce, End, Reschedule, Reset, Scenario, Skip, Start, Step
from bridge.simulator.timeline import Timeline, UnknownEventError
from bridge.simulator.vm import neighbour


class Player:
    """One run of a scenario; `hold`: how many seconds at most each document waits to be served."""

    def __init__(
        self,
        scenario: Scenario,
        timeline: Timeline,
        *,
        vm_name: str,
        speed: float,
        hold: float,
        clock: Clock,
    ) -> None:
        self._scenario = scenario
        self._timeline = timeline
        self._vm_name = vm_name
        self._speed = speed
        self._hold = hold
        self._clock = clock
        self._cast: dict[str, tuple[SimulatedEvent, datetime]] = {}
        self._stopping = False
        self._finished = threading.Event()
        self._thread = threading.Thread(target=self._play, name="imds-scenario", daemon=True)

    @property
    def finished(self) -> bool:
        """Whether the scenario has played out, or was stopped."""
        return self._finished.is_set()

    def start(self) -> None:
        """Start the thread that plays the scenario."""
        self._thread.start()

    def wait(self, timeout: float | None) -> bool:
        """Wait for the end of the scenario, at most `timeout` seconds; return whether it has
        come.
        """
        return self._finished.wait(timeout)

    def stop(self) -> None:
        """Stop the scenario at once, between two changes."""
        with self._timeline.changed:
            self._stopping = True
            self._timeline.changed.notify_all()
        self._thread.join()

    def _play(self) -> None:
        try:
            due = time.monotonic()
            last = 0.0
            for at, steps in groupby(self._scenario.steps, key=lambda step: step.at):
                due += (at - last) / self._speed
                last = at
                due = self._wait_until(due, list(steps))
                if self._stopping:
                    return
            self._wait_for_a_get()
        finally:
            self._finished.set()

    def _wait_until(self, due: float, steps: list[Step]) -> float:
        """Wait, then change the document; return when that was due, or when it happened
        if later.
        """
        first = steps[0]
        with self._timeline.changed:
            self._timeline.changed.wait_for(
                lambda: self._stopping or self._early(first), due - time.monotonic()
            )
            self._wait_for_a_get()
            # An approval or a slow poller shifts the rest, or Started would last too short or long.
            moved = min(due, time.monotonic()) if self._early(first) else due
            moved = max(moved, time.monotonic()) if self._hold else moved
            if not self._stopping:
                with self._timeline.change():
                    for step in steps:
                        self._do(step)
        return moved

    def _wait_for_a_get(self) -> None:
        timeline = self._timeline
        with timeline.changed:
            timeline.changed.wait_for(
                lambda: self._stopping or timeline.current.gets > 0, self._hold
            )

    def _early(self, step: Step) -> bool:
        """Check whether the event that the step would start was approved and has started, or is
        gone.
        """
        if not isinstance(step, Start):
            return False
        try:
            return self._timeline.find(self._cast[step.event][0].event_id).status == "Started"
        except UnknownEventError:
            return True

    def _do(self, step: Step) -> None:
        match step:
            case Announce():
                self._announce(step)
            case Start():
                self._edit(step.event, lambda event: self._timeline.start_event(event.event_id))
            case End():
                self._edit(step.event, lambda event: self._timeline.end_event(event.event_id))
            case Reschedule():
                moved = self._cast[step.event][1] + timedelta(seconds=step.notice / self._speed)
                self._edit(step.event, lambda event: self._timeline.move(event.event_id, moved))
            case Skip():
                self._timeline.skip_incarnation()
            case Reset():
                self._timeline.reset_incarnation(step.incarnation)
            case _ as never:
                assert_never(never)

    def _edit(self, key: str, edit: Callable[[SimulatedEvent], None]) -> None:
        with suppress(UnknownEventError):
            edit(self._cast[key][0])

    def _announce(self, step: Announce) -> None:
        now = self._clock.now()
        notice = step.notice
        event = SimulatedEvent(
            event_type=step.kind.event_type,
            status="Started" if notice is None else step.kind.status,
            resources=tuple(neighbour(self._vm_name, distance) for distance in step.vms),
            not_before=None if notice is None else now + timedelta(seconds=notice / self._speed),
            description=step.kind.description,
            source=step.kind.source,
            duration=step.kind.duration,
        )
        self._cast[step.event] = (event, now)
        self._timeline.announce(event)
