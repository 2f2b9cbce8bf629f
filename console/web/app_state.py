"""The parts of a running console that the requests of people and programs use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from console.access.identity import Access
from console.approvals.service import Decisions
from console.config.settings import ConsoleSettings
from console.db.connection.opening import Database
from console.db.snapshot import Snapshots
from console.db.turn_facts.kept_turn_facts import KeptTurnFacts
from console.fleet.fleet_view import Source
from console.ingest.state import SourceState
from console.ingest.writer import Writer
from console.notify.sink_worker import SinkWorker
from console.turns.groups import Grouping
from console.web.bridges.parts import BridgeRequestParts


@dataclass(slots=True, kw_only=True)
class AppState:
    """The parts of one run; made once."""

    settings: ConsoleSettings
    database: Database
    snapshots: Snapshots
    writer: Writer
    sources: Mapping[str, SourceState]
    access: Access
    decisions: Decisions
    grouping: Grouping
    """The groups of the settings."""
    turn_facts: KeptTurnFacts
    bridges: BridgeRequestParts
    """What only the requests of bridges use."""
    sink_workers: Sequence[SinkWorker]
    """The workers of the sinks for notices."""
    is_ready: Callable[[], bool]
    """Whether the database was read once, so that revoked secrets are known, and whether this run's
    listening was written: before that no VM could be asked.
    """
    clock: Callable[[], float]

    def now(self) -> float:
        """Return seconds since 1970."""
        return self.clock()

    def source_items(self) -> list[Source]:
        """Return the sources as the API shows them."""
        progress = self.writer.progress
        last = progress.last_record_at
        return [
            Source(
                name=state.name,
                kind=state.kind,
                connected=state.is_connected,
                last_record_at=last.get(state.name),
                trouble=state.trouble,
                quarantined=sum(progress.quarantined_of(state.name).values()),
            )
            for state in self.sources.values()
        ]
