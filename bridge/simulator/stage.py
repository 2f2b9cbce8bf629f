"""The part of `Simulator` that changes and reads its document."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime
from typing import Any

from bridge.simulator.events import SimulatedEvent
from bridge.simulator.timeline import SimulatedDocument, Timeline
from bridge.simulator.vm import SimulatedVm


class Stage:
    """The document, its history, and how often each was served; the base of `Simulator`."""

    def __init__(self, vm: SimulatedVm, timeline: Timeline) -> None:
        self.vm = vm
        self._timeline = timeline
        self._gets = 0

    @property
    def history(self) -> list[SimulatedDocument]:
        """Every document so far, oldest first; the last one is what a GET gets now.

        A document counts as served when its last byte is about to leave, so a client that is
        killed while it reads has been 'served' what it never used: two `gets` prove that the first
        answer was read.
        """
        return self._timeline.history

    @property
    def gets(self) -> int:
        """How many GETs of the events came, however they were answered."""
        return self._gets

    def wait_for_gets(self, count: int, *, timeout: float = 10.0) -> bool:
        """Wait until that many GETs of the events came in all; False after `timeout` seconds."""
        with self._timeline.changed:
            return self._timeline.changed.wait_for(lambda: self._gets >= count, timeout)

    def wait_until_served(self, *, gets: int = 1, timeout: float = 10.0) -> bool:
        """Wait until the document that stands was served so often; False after `timeout` s."""
        with self._timeline.changed:
            return self._timeline.changed.wait_for(
                lambda: self._timeline.current.gets >= gets, timeout
            )

    def serve(self, document: Mapping[str, Any] | bytes) -> None:
        """Answer exactly this from now on, bytes as they are, until the next change."""
        self._timeline.serve(document)

    def change(self) -> AbstractContextManager[None]:
        """A block whose edits make one new document: `with simulator.change(): …`."""
        return self._timeline.change()

    def announce(self, event: SimulatedEvent) -> SimulatedEvent:
        """Add an event; answers it with its resources. Raises `ValueError` on a known EventId."""
        if event.resources is None:
            event = replace(event, resources=(self.vm.name,))
        self._timeline.announce(event)
        return event

    def start_event(self, event_id: str) -> None:
        """Let an event be Started. Raises `UnknownEventError`."""
        self._timeline.start_event(event_id)

    def end_event(self, event_id: str) -> None:
        """Take an event out of the document. Raises `UnknownEventError`."""
        self._timeline.end_event(event_id)

    def move(self, event_id: str, not_before: datetime) -> None:
        """Give an event another NotBefore. Raises `UnknownEventError`; `ValueError` if naive."""
        self._timeline.move(event_id, not_before)

    def skip_incarnation(self) -> None:
        """Let the next change pass over one incarnation."""
        self._timeline.skip()

    def reset_incarnation(self, incarnation: int = 0) -> None:
        """Give the next change's document this incarnation."""
        self._timeline.reset(incarnation)
