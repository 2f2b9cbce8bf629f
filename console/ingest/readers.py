"""Makes the readers of the sources from their settings; imports only the kinds that are used."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Protocol

from console.db.connection.opening import Database
from console.ingest.settings import EventHubSource, MqttSource, SourceSettings
from console.ingest.state import SourceState
from console.ingest.vm_limits import VmLimits
from console.ingest.writer import Writer
from sinks.kinds.mqtt.messages import Message


class SourcePublisher(Protocol):
    """Sends messages over the connection of a source."""

    @property
    def name(self) -> str:
        """The source's name."""

    def publish(self, message: Message, on_answer: Callable[[str | None], None]) -> bool:
        """Send a message; return False without a connection. `on_answer` is called on another
        thread, with None once the broker has the message, or with the reason for which it refuses
        it.
        """


class Reader(Protocol):
    """A source that reads by itself. A webhook source waits for requests instead."""

    @property
    def publisher(self) -> SourcePublisher | None:
        """What sends commands over the same connection; None if it only reads."""

    def start(self) -> None:
        """Start to read; return at once."""

    def read_again(self) -> None:
        """Ask the source again for what it keeps; return at once. Messages may be lost that were
        read before.
        """

    def ask_about(self, vm_ids: Collection[str]) -> None:
        """Ask the source again for what it keeps of these VMs, of which records are missing; return
        at once.
        """

    def stop(self) -> None:
        """Stop, within seconds."""


def make_readers(
    sources: Mapping[str, SourceSettings],
    states: Mapping[str, SourceState],
    *,
    writer: Writer,
    vm_limits: VmLimits,
    database: Database,
    directory: Path,
    now: Callable[[], float] = time.time,
) -> list[Reader]:
    """Return the readers of all sources that have one, not started; `now` in seconds since 1970."""
    readers: list[Reader] = []
    for name, settings in sources.items():
        if isinstance(settings, MqttSource):
            from console.ingest.client_id import kept_client_id  # noqa: PLC0415
            from console.ingest.mqtt import MqttReader  # noqa: PLC0415

            readers.append(
                MqttReader(
                    settings,
                    state=states[name],
                    writer=writer,
                    vm_limits=vm_limits,
                    client_id=settings.client_id or kept_client_id(directory, name),
                    now=now,
                )
            )
        elif isinstance(settings, EventHubSource):
            from console.ingest.eventhub import EventHubReader  # noqa: PLC0415

            readers.append(
                EventHubReader(
                    settings, state=states[name], writer=writer, database=database, now=now
                )
            )
    return readers


def publishers(readers: Iterable[Reader]) -> dict[str, SourcePublisher]:
    """Return what can send commands, by the name of the source."""
    found = (each.publisher for each in readers)
    return {each.name: each for each in found if each is not None}
