"""From the settings of the sources to their readers; only the kinds that are named are imported."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Protocol, runtime_checkable

from console.db.opening import Database
from console.ingest.bounds import Bounds
from console.ingest.settings import EventHubSource, MqttSource, SourceSettings
from console.ingest.state import SourceState
from console.ingest.writer import Writer
from sinks.mqtt.messages import Message


class Reader(Protocol):
    """A source that reads by itself; a webhook source waits for requests instead."""

    def start(self) -> None:
        """Start to read; returns at once."""

    def stop(self) -> None:
        """End, within seconds."""


@runtime_checkable
class Publisher(Protocol):
    """A source that can send too."""

    @property
    def name(self) -> str:
        """Of the source."""

    def publish(self, message: Message, done: Callable[[str | None], None]) -> bool:
        """Send; False if there is no connection. `done` is called on another thread, once the
        broker has it (None) or refuses it (why).
        """


def make_readers(
    sources: Mapping[str, SourceSettings],
    states: Mapping[str, SourceState],
    *,
    writer: Writer,
    bounds: Bounds,
    database: Database,
    directory: Path,
    now: Callable[[], float] = time.time,
) -> list[Reader]:
    """The readers of every source that has one, not started; `now` in seconds since 1970."""
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
                    bounds=bounds,
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


def publishers(readers: Iterable[Reader]) -> dict[str, Publisher]:
    """Those that can send commands, by the name of their source."""
    return {each.name: each for each in readers if isinstance(each, Publisher)}
