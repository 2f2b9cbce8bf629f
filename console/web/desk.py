"""What every page and every answer of the API is made from."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from console.access.identity import Access
from console.config.settings import Settings
from console.decisions.service import Decisions
from console.fleet.contact import Ears
from console.fleet.index import Fleet
from console.fleet.moments import moment
from console.intake.writer import Writer
from console.notices.delivery import Delivery
from console.sources.enrolment import Enrolments
from console.sources.state import SourceState
from console.store.opening import Database
from console.web.asked import Asked
from console.web.pull_queue import PullQueue


@dataclass(slots=True, kw_only=True)
class Desk:
    """The running console, as the web sees it; used on the event loop's thread."""

    settings: Settings
    fleet: Fleet
    database: Database
    writer: Writer
    sources: Mapping[str, SourceState]
    access: Access
    started_at: float
    clock: Callable[[], float] = time.time
    enrolments: Enrolments = field(default_factory=lambda: Enrolments(None), repr=False)
    pull_queue: PullQueue = field(default_factory=PullQueue)
    asked: Asked = field(init=False)
    decisions: Decisions = field(init=False)
    """The one door of decisions; set before the first request."""
    deliveries: Sequence[Delivery] = ()
    """To the sinks that people are told over."""
    loaded: bool = False
    """Whether the fleet is in memory."""

    def __post_init__(self) -> None:
        self.asked = Asked(self.fleet)

    def now(self) -> float:
        """Seconds since 1970."""
        return self.clock()

    def ears(self) -> Ears:
        """Since when the console listens."""
        return Ears(
            started_at=self.started_at,
            silent_after=self.settings.silent_after,
            since={name: state.since for name, state in self.sources.items()},
            are_all=self.database.is_sqlite,
        )

    def trouble(self) -> str | None:
        """Why the console cannot serve now; None if it can."""
        if self.writer.progress.trouble is not None:
            return self.writer.progress.trouble
        return None if self.loaded else "the fleet is being read from the database"

    def source_items(self) -> list[dict[str, Any]]:
        """The sources as the API shows them."""
        progress = self.writer.progress
        last = progress.last_record_at
        return [
            {
                "name": state.name,
                "kind": state.kind,
                "connected": state.connected,
                "lastRecordAt": moment(last.get(state.name)),
                "trouble": state.trouble,
                "quarantined": sum(progress.refused(state.name).values()),
            }
            for state in self.sources.values()
        ]
