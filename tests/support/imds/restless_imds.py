"""Changes that go on and on at a simulator, and what a bridge must have made of them."""

import hashlib
import json
import random
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, Self

from bridge.simulator.events import SimulatedEvent
from bridge.simulator.simulator import Simulator

KINDS = ("Freeze", "Reboot", "Redeploy", "Preempt")
AT_ONCE = 3
"""How many events are pending at most."""


class RestlessImds:
    """Changes the document at random moments, in a thread; a context manager.

    No change ever repeats an earlier state of its event, so that a state is known by its
    fingerprint.
    """

    def __init__(self, simulator: Simulator, *, seed: int, pause: tuple[float, float]) -> None:
        self._simulator = simulator
        self._random = random.Random(seed)
        self._pause = pause
        self._halt = threading.Event()
        self._thread = threading.Thread(target=self._run, name="restless-imds")
        self._pending: list[SimulatedEvent] = []
        self._started: set[str] = set()
        self._moved = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._halt.set()
        self._thread.join()

    def settle(self) -> None:
        """Stop changing, and let every event end."""
        self._halt.set()
        if self._thread.is_alive():
            self._thread.join()
        with self._simulator.change():
            for event in self._pending:
                self._simulator.end_event(event.event_id)

    def step(self) -> None:
        """Change the document now; for a user that does without the thread."""
        with self._simulator.change():
            for _ in range(self._random.choice((1, 1, 2))):
                self._change()

    def _run(self) -> None:
        while not self._halt.wait(self._random.uniform(*self._pause)):
            self.step()

    def _change(self) -> None:
        choices: list[Callable[[], None]] = []
        if len(self._pending) < AT_ONCE:
            choices.append(self._announce)
        if self._pending:
            choices += [self._advance, self._advance]
        self._random.choice(choices)()

    def _announce(self) -> None:
        event = SimulatedEvent(
            event_type=self._random.choice(KINDS),
            not_before=self._not_before(),
            duration=self._random.choice((-1, 5)),
        )
        self._pending.append(self._simulator.announce(event))

    def _advance(self) -> None:
        """Move an event that is scheduled, start it, or end it."""
        event = self._random.choice(self._pending)
        scheduled = event.event_id not in self._started
        match self._random.choice(("move", "start", "end") if scheduled else ("end",)):
            case "move":
                self._simulator.move(event.event_id, self._not_before())
            case "start":
                self._started.add(event.event_id)
                self._simulator.start_event(event.event_id)
            case _:
                self._pending.remove(event)
                self._simulator.end_event(event.event_id)

    def _not_before(self) -> datetime:
        self._moved += 1
        return datetime.now(UTC) + timedelta(hours=1, seconds=10 * self._moved)


class Observations:
    """Which documents one process after the other must have seen.

    A document that was served twice within one process was read for certain: the second request
    came after the first answer. One that was served once may have died with its reader.
    """

    def __init__(self, simulator: Simulator) -> None:
        self._simulator = simulator
        self._before: list[int] = []
        self._seen: set[int] = set()

    def process_starts(self) -> None:
        """A process is about to begin."""
        self._before = [document.gets for document in self._simulator.history]

    def process_ended(self) -> None:
        """The process is gone."""
        for place, document in enumerate(self._simulator.history):
            before = self._before[place] if place < len(self._before) else 0
            if document.gets - before >= 2:
                self._seen.add(place)

    @property
    def documents(self) -> list[dict[str, Any]]:
        """Those that must have been seen, in order."""
        history = self._simulator.history
        return [history[place].json() for place in sorted(self._seen)]

    def facts(self) -> set[tuple[str, str]]:
        """EventId and fingerprint of every state that must have been recorded."""
        return {
            (event["EventId"], fingerprint(event))
            for document in self.documents
            for event in document["Events"]
        }


def fingerprint(event: dict[str, Any]) -> str:
    """The fingerprint of IMDS's entry, worked out by hand."""
    due, duration = event["NotBefore"], event["DurationInSeconds"]
    moment = f"{parsedate_to_datetime(due):%Y-%m-%dT%H:%M:%SZ}" if due else None
    fields = {
        "eventId": event["EventId"],
        "eventType": event["EventType"],
        "resourceType": event["ResourceType"],
        "resources": sorted(event["Resources"]),
        "eventStatus": event["EventStatus"],
        "notBefore": moment,
        "eventSource": event["EventSource"],
        "durationInSeconds": None if duration == -1 else duration,
    }
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
