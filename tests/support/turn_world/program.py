"""The program of a VM: it goes away for an event, and comes back at the event's end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sinks.base import Sink, SinkError, SinkRejected, SinkSettings
from sinks.samples import sample_context
from wire.record import EVENT_ENDED, EVENT_STARTED, Record


class ProgramWatcher(Protocol):
    """What is told of each run of a program."""

    def begins(self, event_id: str, fingerprint: str) -> None:
        """Note that the program begins to prepare."""

    def recovers(self, event_id: str) -> None:
        """Note that the program has come back, or was told of an end."""


class DrainingProgram(Sink[SinkSettings]):
    """Prepares as `answer` says: `ok`, `fails` or `refuses`."""

    KIND = "drain"

    def __init__(self, watcher: ProgramWatcher) -> None:
        super().__init__("drain", SinkSettings(kind="program"), sample_context())
        self.away: set[str] = set()
        """Events for which the VM is away."""
        self.prepared: dict[str, set[str]] = {}
        """By event, the fingerprints for which a run ended with 0, since one that did not."""
        self.answer = "ok"
        self._watcher = watcher

    def deliver(self, records: Sequence[Record]) -> None:
        """Run once for each record."""
        for record in records:
            self._run(record, str(record.event_id))

    def _run(self, record: Record, event_id: str) -> None:
        if record.type == EVENT_ENDED or not record.affects_this_vm:
            if self.answer == "fails":
                raise SinkError("it could not recover yet")
            self.away.discard(event_id)
            self.prepared.pop(event_id, None)
            self._watcher.recovers(event_id)
            return
        if record.type == EVENT_STARTED:
            self.away.add(event_id)
            return
        self._watcher.begins(event_id, record.data["fingerprint"])
        if self.answer == "fails":
            self.prepared.pop(event_id, None)
            raise SinkError("it could not prepare yet")
        self.away.add(event_id)
        if self.answer == "refuses":
            self.prepared.pop(event_id, None)
            raise SinkRejected("it gives up")
        self.prepared.setdefault(event_id, set()).add(record.data["fingerprint"])
