"""What Azure does: it announces an event to every VM of a set, starts it, and takes it away."""

import contextlib
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from bridge.simulator.events import SimulatedEvent
from bridge.simulator.simulator import Simulator
from bridge.simulator.timeline import UnknownEventError


class AzureEvent:
    """One event for one VM, shown to all of them, as Azure shows it to an availability set."""

    def __init__(
        self,
        simulators: Sequence[Simulator],
        vm: int,
        event_type: str,
        *,
        duration: int,
        notice: float,
    ) -> None:
        self._simulators = simulators
        self._own = simulators[vm]
        self._due = time.monotonic() + notice
        self._event = SimulatedEvent(
            event_type=event_type,
            resources=(self._own.vm.name,),
            not_before=datetime.now(UTC) + timedelta(seconds=notice),
            duration=duration,
        )
        for simulator in simulators:
            simulator.announce(self._event)

    def wait_until_started(self) -> bool:
        """Wait until it is approved or due, and let it start; whether it was approved."""
        approved = False
        while not approved and (left := self._due - time.monotonic()) > 0:
            with self._own.changed:
                approved = self._own.changed.wait_for(self._is_started, left)
        for simulator in self._simulators:
            simulator.start_event(self._event.event_id)
        return approved

    def _is_started(self) -> bool:
        return self._own.find(self._event.event_id).status == "Started"

    def end(self) -> None:
        """Take it out of every document."""
        for simulator in self._simulators:
            with contextlib.suppress(UnknownEventError):
                simulator.end_event(self._event.event_id)
