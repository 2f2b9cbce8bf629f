"""The state of the application: what a running console is made of, as far as requests use it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from console.access.identity import Access
from console.approvals.service import Decisions
from console.config.settings import Settings
from console.db.opening import Database
from console.db.snapshot import Snapshots
from console.fleet.view import Source
from console.ingest.bounds import Bounds
from console.ingest.enrolment import Enrolments
from console.ingest.state import SourceState
from console.ingest.writer import Writer
from console.notify.worker import SinkWorker
from console.turns.groups import Grouping
from console.web.bodies import Bodies
from console.web.polls import Polls
from console.web.pull_queue import PullQueue


@dataclass(slots=True, kw_only=True)
class AppState:
    """Made once for a run."""

    settings: Settings
    database: Database
    snapshots: Snapshots
    writer: Writer
    sources: Mapping[str, SourceState]
    access: Access
    decisions: Decisions
    grouping: Grouping
    """The groups of the settings."""
    enrolments: Enrolments
    bounds: Bounds
    """How much each VM may send."""
    bodies: Bodies
    pull_queue: PullQueue
    polls: Polls
    sink_workers: Sequence[SinkWorker]
    """To the sinks that people are told over."""
    is_ready: Callable[[], bool]
    """Whether the database has been read once, so that whose secrets were revoked is known, and
    whether it has been written that this run listens: before that no VM could be asked.
    """
    clock: Callable[[], float]
    own_clock: Callable[[], float]
    """This machine's, by which signatures of VMs are judged."""

    def now(self) -> float:
        """Seconds since 1970."""
        return self.clock()

    def source_items(self) -> list[Source]:
        """The sources as the API shows them."""
        progress = self.writer.progress
        last = progress.last_record_at
        return [
            Source(
                name=state.name,
                kind=state.kind,
                connected=state.connected,
                last_record_at=last.get(state.name),
                trouble=state.trouble,
                quarantined=sum(progress.refused(state.name).values()),
            )
            for state in self.sources.values()
        ]
