"""The documents of the simulated IMDS: the current one, and every earlier one, for tests."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from bridge.clock import Clock
from bridge.simulator.events import SimulatedEvent, render, visible
from bridge.simulator.vm import SimulatedVm


class UnknownEventError(LookupError):
    """No event of this EventId is in the document."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedDocument:
    """A document of the simulator. Times are monotonic, `wall` is UTC; `first_served` is None if it
    was never served, `gets` counts how often.
    """

    time: float
    wall: datetime
    body: bytes
    first_served: float | None = None
    gets: int = 0

    def json(self) -> Any:
        """Return the body, parsed. Raises `ValueError` if a hand-written one is not JSON."""
        return json.loads(self.body)


class Timeline:
    """A VM's document, its changes and its history; for any thread. The base of `Simulator`."""

    def __init__(
        self,
        vm: SimulatedVm,
        *,
        clock: Clock,
        incarnation: int,
        versions: Sequence[str],
        on_change: Callable[[SimulatedDocument], None],
    ) -> None:
        self.vm = vm
        self.gets = 0
        """How many GETs of the events came, however they were answered."""
        self.changed = threading.Condition(threading.RLock())
        """Notified at each change of the document, and each time that it is requested or served."""
        self._clock = clock
        self._newest = max(versions)
        self._on_change = on_change
        self._incarnation = incarnation
        self._events: tuple[SimulatedEvent, ...] = ()
        self._edited: tuple[SimulatedEvent, ...] = ()
        self._skipped = 0
        self._reset: int | None = None
        self._depth = 0
        self._raw: dict[str, str] | None = None
        self._approved: set[str] = set()
        self._history: list[SimulatedDocument] = []
        with self.changed:
            self._add_document(render((), incarnation=incarnation, version=self._newest))

    @property
    def history(self) -> list[SimulatedDocument]:
        """Return every document so far; one counts as served when its last byte is about to be
        sent.
        """
        with self.changed:
            return list(self._history)

    @property
    def current(self) -> SimulatedDocument:
        """The document that a GET gets now."""
        with self.changed:
            return self._history[-1]

    def count_get(self) -> None:
        """Count a GET of the events."""
        with self.changed:
            self.gets += 1
            self.changed.notify_all()

    def wait_for_gets(self, count: int, *, timeout: float = 10.0) -> bool:
        """Wait until that many GETs of the events came in all; return False after `timeout`
        seconds.
        """
        with self.changed:
            return self.changed.wait_for(lambda: self.gets >= count, timeout)

    def wait_until_served(self, *, gets: int = 1, timeout: float = 10.0) -> bool:
        """Wait until the current document was served so often; return False after `timeout`
        seconds.
        """
        with self.changed:
            return self.changed.wait_for(lambda: self.current.gets >= gets, timeout)

    def serve(self, document: Mapping[str, Any] | bytes) -> None:
        """Answer exactly this from now on, bytes unchanged, until the next change."""
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        with self.changed:
            self._raw = _statuses(body)
            self._approved.clear()
            self._add_document(body)

    @contextmanager
    def change(self) -> Iterator[None]:
        """Make one new document of all edits in the block: `with simulator.change(): …`."""
        with self.changed:
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
                if self._depth == 0:
                    self._commit()

    def announce(self, event: SimulatedEvent) -> SimulatedEvent:
        """Add an event; return it with its resources. Raises `ValueError` for a known EventId."""
        if event.resources is None:
            event = replace(event, resources=(self.vm.name,))
        with self.change():
            if any(_same(event.event_id, old.event_id) for old in self._edited):
                raise ValueError(f"an event {event.event_id} is already in the document")
            self._approved.discard(event.event_id.lower())
            self._edited = (*self._edited, event)
        return event

    def start_event(self, event_id: str) -> None:
        """Make an event Started. Raises `UnknownEventError`."""
        self._replace(event_id, lambda event: replace(event, status="Started"))

    def move(self, event_id: str, not_before: datetime) -> None:
        """Change the NotBefore of an event. Raises `UnknownEventError`, `ValueError`."""
        self._replace(event_id, lambda event: replace(event, not_before=not_before))

    def end_event(self, event_id: str) -> None:
        """Remove an event from the document. Raises `UnknownEventError`."""
        with self.change():
            old = self.find(event_id)
            self._edited = tuple(e for e in self._edited if e is not old)

    def skip_incarnation(self) -> None:
        """Skip one incarnation at the next change, as if a document was missed."""
        with self.changed:
            self._skipped += 1

    def reset_incarnation(self, incarnation: int = 0) -> None:
        """Use this number for the next change's document, as IMDS does after a day without a
        request.
        """
        with self.changed:
            self._reset = incarnation

    def find(self, event_id: str) -> SimulatedEvent:
        """Return the event as it is; case does not matter. Raises `UnknownEventError`."""
        with self.changed:
            for event in self._edited:
                if _same(event.event_id, event_id):
                    return event
        raise UnknownEventError(f"no event {event_id} is in the document")

    def approve(self, event_ids: Sequence[str], *, version: str) -> list[str]:
        """Note approvals; return the ids that have effect. Raises `UnknownEventError` for all."""
        with self.changed:
            statuses = self._known(version)
            wanted = {event_id.lower(): event_id for event_id in event_ids}
            if unknown := wanted.keys() - statuses.keys():
                raise UnknownEventError(f"no event {', '.join(unknown)} is in the document")
            fresh = {key for key in wanted if statuses[key] == "Scheduled"} - self._approved
            self._approved |= fresh
            return [event_id for key, event_id in wanted.items() if key in fresh]

    def body(self, version: str) -> tuple[int, bytes]:
        """Return the current document in an api-version's form, and its index in the history."""
        with self.changed:
            index = len(self._history) - 1
            if self._raw is not None or version == self._newest:
                return index, self._history[index].body
            events = self._events
            incarnation = self._incarnation
        return index, render(events, incarnation=incarnation, version=version)

    def mark_served(self, index: int) -> None:
        """Note that a GET gets the document with this index in the history."""
        with self.changed:
            old = self._history[index]
            first = self._clock.monotonic() if old.first_served is None else old.first_served
            self._history[index] = replace(old, first_served=first, gets=old.gets + 1)
            self.changed.notify_all()

    def _replace(self, event_id: str, edit: Callable[[SimulatedEvent], SimulatedEvent]) -> None:
        with self.change():
            old = self.find(event_id)
            self._edited = tuple(edit(e) if e is old else e for e in self._edited)

    def _known(self, version: str) -> dict[str, str]:
        if self._raw is not None:
            return self._raw
        shown = (event for event in self._events if visible(event, version))
        return {event.event_id.lower(): event.status for event in shown}

    def _commit(self) -> None:
        before, after = (
            render(events, incarnation=self._incarnation, version=self._newest)
            for events in (self._events, self._edited)
        )
        if before == after:  # a move by less than a second does not change the document
            return
        grown = self._incarnation + 1 + self._skipped
        self._incarnation = grown if self._reset is None else self._reset
        self._events = self._edited
        self._skipped = 0
        self._reset = None
        self._raw = None
        self._add_document(
            render(self._events, incarnation=self._incarnation, version=self._newest)
        )

    def _add_document(self, body: bytes) -> None:
        if self._history and self._history[-1].body == body:
            return
        document = SimulatedDocument(
            time=self._clock.monotonic(), wall=self._clock.now(), body=body
        )
        self._history.append(document)
        if len(self._history) > 1:
            self._on_change(document)
        self.changed.notify_all()


def _same(one: str, other: str) -> bool:
    # Azure: ARM writes an EventId in lower case, IMDS in upper case.
    return one.lower() == other.lower()


def _statuses(body: bytes) -> dict[str, str]:
    """Return the events of a hand-written document, as far as it can be read."""
    try:
        entries = json.loads(body)["Events"]
        return {str(e["EventId"]).lower(): str(e.get("EventStatus")) for e in entries}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}
