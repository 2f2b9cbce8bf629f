"""The simulated Azure: its events, the document that each VM gets, and requests to start."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

from support.documents.documents import StandInImds, body, entry
from support.turn_world.simulation import Simulation

from bridge.imds.client import ImdsError
from bridge.imds.exchange import WithheldError


@dataclass
class WorldEvent:
    """One event, as Azure knows it."""

    event_id: str
    names: list[str]
    not_before: float
    is_broadcast: bool
    """Whether VMs that it does not name have it in their documents too."""
    status: str = "Scheduled"
    starts_at: float | None = None
    """When it starts because a VM has asked for that."""
    ends_at: float = 0.0
    missing_until: float = 0.0
    """Until when every document leaves it out."""

    @property
    def is_open_to_change(self) -> bool:
        """Whether Azure can still change it: it has not started, and was not told to."""
        return self.status == "Scheduled" and self.starts_at is None


class Azure:
    """Announces, starts and ends events. `on_start` is called with an event that a VM starts."""

    def __init__(self, simulation: Simulation, on_start: Callable[[WorldEvent], None]) -> None:
        self.events: dict[str, WorldEvent] = {}
        self._simulation = simulation
        self._on_start = on_start
        self._announced = 0

    def announce(self, names: Sequence[str], notice: float, *, is_broadcast: bool) -> WorldEvent:
        """Announce an event that starts after so many seconds at the latest."""
        event_id = f"E{self._announced}"
        self._announced += 1
        at = self._simulation.now + notice
        event = WorldEvent(event_id, list(names), at, is_broadcast)
        self.events[event_id] = event
        where = "to all" if is_broadcast else "to these alone"
        self._simulation.log(f"azure: announces {event_id} of {names} in {notice:.0f} s, {where}")
        return event

    def cancel(self, event: WorldEvent) -> None:
        """Cancel an event: it is missing from every document from now on."""
        self._simulation.log(f"azure: cancels {event.event_id}")
        del self.events[event.event_id]

    def leave_out(self, event: WorldEvent, seconds: float) -> None:
        """Leave an event out of every document for a while."""
        self._simulation.log(f"azure: {event.event_id} is left out for {seconds} s")
        event.missing_until = self._simulation.now + seconds

    def entries_for(self, name: str, hidden: Collection[str]) -> list[dict[str, Any]]:
        """Return the events in the document of a VM, except the hidden ones."""
        return [
            entry(
                event.event_id,
                status=event.status,
                event_type="Reboot",
                resources=event.names,
                not_before=_not_before(event),
            )
            for event in self.events.values()
            if event.event_id not in hidden
            and self._simulation.now >= event.missing_until
            and (event.is_broadcast or name in event.names)
        ]

    def request_start(self, name: str, event_id: str) -> None:
        """Take the request of a VM to start an event. Raises `ImdsError` where the VM gets no good
        answer: it may have taken effect or not.
        """
        simulation = self._simulation
        event = self.events.get(event_id)
        answers = [*["good"] * 6, "lost", "503", "503, no effect", "lost, no effect"]
        answer = simulation.trouble(answers, "good")
        simulation.log(f"{name}: POST for {event_id}, answer: {answer}")
        is_missing = event is not None and simulation.now < event.missing_until
        if event is None or (is_missing and simulation.random.random() < 0.5):
            raise ImdsError("HTTP 400", reason="http_400")
        if "no effect" not in answer and event.is_open_to_change:
            event.starts_at = simulation.now + simulation.trouble([0, 0, 2, 5, 10], 0)
            self._on_start(event)
            if event.starts_at > simulation.now and simulation.chance(0.4):
                self.leave_out(event, simulation.pick([1, 2, 3]))
        if answer.startswith("503"):
            raise ImdsError("HTTP 503", reason="http_503")
        if answer.startswith("lost"):
            raise ImdsError("the connection broke", reason="connection")

    def advance(self) -> list[WorldEvent]:
        """End the events that are over; start those that are due, and return these."""
        simulation = self._simulation
        starting = []
        for event in list(self.events.values()):
            if event.status == "Started" and simulation.now >= event.ends_at:
                simulation.log(f"azure: ends {event.event_id}")
                del self.events[event.event_id]
            elif event.status == "Scheduled" and simulation.now >= _start_of(event):
                by = "a VM" if event.starts_at is not None else "its time"
                simulation.log(f"azure: starts {event.event_id} of {event.names}, by {by}")
                event.status = "Started"
                event.missing_until = 0.0
                event.ends_at = simulation.now + simulation.pick([10, 40, 120, 300])
                starting.append(event)
        return starting


class VmImds(StandInImds):
    """The IMDS of one VM."""

    def __init__(self, azure: Azure, name: str, simulation: Simulation) -> None:
        super().__init__()
        self.hidden: set[str] = set()
        """Events that its next document leaves out."""
        self.is_silent = False
        self._azure = azure
        self.name = name
        self._simulation = simulation
        self._incarnation = 1

    def document(self) -> bytes:
        """Return the document as it is now."""
        if self.is_silent:
            raise ImdsError("HTTP 503", reason="http_503")
        if self._simulation.chance(0.02):
            raise ImdsError("the connection broke", reason="connection")
        self._incarnation += 1
        entries = self._azure.entries_for(self.name, self.hidden)
        return body(*entries, incarnation=self._incarnation)

    def start(self, event_id: str, *, may_send: Callable[[], bool]) -> None:
        """Ask Azure to start an event, as the client of IMDS does."""
        if not may_send():
            raise WithheldError
        self._azure.request_start(self.name, event_id)


def _start_of(event: WorldEvent) -> float:
    return event.not_before if event.starts_at is None else min(event.starts_at, event.not_before)


def _not_before(event: WorldEvent) -> str:
    if event.status != "Scheduled":
        return ""
    return format_datetime(datetime.fromtimestamp(event.not_before, UTC), usegmt=True)
