"""`/metrics`: numbers for Prometheus. The id of a VM or an event is never a label."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from console.audit import audit_log
from console.db.connection.errors import DatabaseFailedError
from console.db.decisions import decision_rows
from console.db.snapshot import Snapshot
from console.fleet.decisions import status_of_open
from console.turns.away import away_by_group
from console.turns.facts import TurnFacts
from console.turns.transitions import TABLE
from console.web.api.overview import overview
from console.web.app_state import AppState


class ConsoleMetrics(Collector):
    """Reads the fleet and the writer at each scrape."""

    def __init__(self, state: AppState) -> None:
        self._state = state
        self._registry = CollectorRegistry()
        self._registry.register(self)
        self._reading = asyncio.Lock()
        self._next: asyncio.Task[bytes] | None = None
        """The reading that has not begun. All requests before it begins get its result."""
        self._rests_until = 0.0
        """When the next reading may begin, on the loop's clock."""

    async def scrape(self, _request: Request) -> Response:
        """Answer with the text for Prometheus. If the database does not answer, the text has
        nothing about the fleet.

        Strangers may request it, and it reads every VM. So there is one reading at a time, for all
        requests before it began, and a pause of the same length after it.
        """
        if self._next is None:
            self._next = asyncio.create_task(self._read())
        text = await asyncio.shield(self._next)
        return Response(text, media_type=CONTENT_TYPE_LATEST)

    async def _read(self) -> bytes:
        loop = asyncio.get_running_loop()
        async with self._reading:
            await asyncio.sleep(self._rests_until - loop.time())
            self._next = None
            began = loop.time()
            try:
                return await asyncio.to_thread(generate_latest, self._registry)
            finally:
                self._rests_until = 2 * loop.time() - began

    def describe(self) -> Iterator[Metric]:
        """Return nothing: the metrics depend on the sources."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Yield every metric of the sources and the writer."""
        with suppress(DatabaseFailedError), self._state.snapshots.open() as snapshot:
            yield from list(_fleet(snapshot))
            if self._state.grouping.settings:
                yield from list(_groups(self._state.turn_facts.facts_to_show(snapshot)))
        held = len(self._state.bridges.held_polls)
        yield _one("polls_held", "VMs that wait for commands over HTTPS.", held)
        yield CounterMetricFamily(
            "seb_console_polls_refused",
            "Requests for commands whose token was not that VM's.",
            self._state.bridges.held_polls.refused_polls,
        )
        yield from self._sources()
        yield from self._intake()
        yield from self._notices()

    def _sources(self) -> Iterator[Metric]:
        sources = self._state.sources.values()
        connected = {each.name: float(each.is_connected) for each in sources}
        yield _gauge("source_connected", "1 if the source is connected.", "source", connected)
        lag = {each.name: each.lag for each in sources}
        yield _gauge(
            "source_lag_seconds",
            "Seconds that the last record had waited at the broker or hub.",
            "source",
            lag,
        )

    def _intake(self) -> Iterator[Metric]:
        progress = self._state.writer.progress
        records = CounterMetricFamily(
            "seb_console_records", "Records that were taken in, duplicates too.", labels=["source"]
        )
        for source, count in list(progress.records.items()):
            records.add_metric([source], count)
        yield records
        quarantined = CounterMetricFamily(
            "seb_console_quarantined",
            "Messages that were not a record of ours.",
            labels=["source", "reason"],
        )
        for labels, count in list(progress.quarantined.items()):
            quarantined.add_metric(list(labels), count)
        yield quarantined
        yield CounterMetricFamily(
            "seb_console_duplicates", "Records that had come in before.", progress.duplicates
        )
        yield _one("database_up", "1 if the database takes records.", progress.trouble is None)
        yield _one("queue", "Deliveries that wait for the writer.", self._state.writer.waiting)
        yield _one(
            "last_commit_timestamp_seconds",
            "When records were last committed; 0 before the first.",
            progress.committed_at or 0,
        )

    def _notices(self) -> Iterator[Metric]:
        workers = self._state.sink_workers
        up = {each.name: float(each.health.trouble is None) for each in workers}
        yield _gauge("sink_up", "1 if the sink takes notices.", "sink", up)
        notices = CounterMetricFamily(
            "seb_console_notices", "Notices, by what became of them.", labels=["sink", "outcome"]
        )
        for each in workers:
            notices.add_metric([each.name, "delivered"], each.health.delivered)
            notices.add_metric([each.name, "rejected"], each.health.rejected)
        yield notices


def _gauge(name: str, text: str, label: str, values: dict[str, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"seb_console_{name}", text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def _one(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"seb_console_{name}", text, float(value))


def _fleet(snapshot: Snapshot) -> Iterator[Metric]:
    """Yield the metrics from the database: VMs, events, decisions, and a copy of the audit's
    head.
    """
    numbers = overview(snapshot, [])
    vms = numbers.vms.model_dump()
    del vms["total"]
    yield _gauge("vms", "VMs, by how their bridge is heard.", "contact", vms)
    yield _gauge(
        "vm_conditions", "VMs, by what they expect.", "condition", numbers.conditions.model_dump()
    )
    yield _one("events_open", "Events that are not over.", snapshot.event_lists.count_open())
    yield _one("decisions_due", "Events that wait for a decision.", numbers.decisions_due)
    yield _one(
        "records_missing",
        "Records that never came, by their sequence.",
        snapshot.vm_lists.count_missing_records(),
    )
    counted = dict.fromkeys(("approving", "second", "left"), 0.0)
    for each in decision_rows.read_all_open(snapshot.connection):
        if (word := status_of_open(each)) is not None:
            counted[word] += 1
    yield _gauge("decisions_open", "Decisions that are not over.", "state", counted)
    head = audit_log.head(snapshot.connection)
    yield _gauge(
        "audit_head",
        "Rows in the audit, and the hash of the last one, for `audit verify --head`.",
        "hash",
        {head.hash: float(head.number)},
    )


def _groups(facts: TurnFacts) -> Iterator[Metric]:
    """Yield how many VMs are away in each group, and how many turns have each state."""
    away = away_by_group(facts)
    members = {key: float(group.size) for key, group in facts.groups.items()}
    counts = {key: float(len(away.get(key, {}))) for key in facts.groups}
    yield _gauge("group_away", "VMs of the group that are away.", "group", counts)
    yield _gauge("group_members", "VMs of the group that are not retired.", "group", members)
    states: dict[str, float] = dict.fromkeys(TABLE, 0.0)
    del states["over"]
    for turn in facts.turns.values():
        states[turn.state] = states.get(turn.state, 0) + 1
    yield _gauge("turns", "Events that wait for their turn or have it.", "state", states)
