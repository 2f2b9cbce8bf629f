"""`/metrics`: numbers for Prometheus; no id of a VM or an event is ever a label."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from console.fleet import view
from console.web.desk import Desk


class Metrics(Collector):
    """Reads the fleet and the writer at each scrape."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._registry = CollectorRegistry()
        self._registry.register(self)

    async def scraped(self, _request: Request) -> Response:
        """The text that Prometheus reads."""
        return Response(generate_latest(self._registry), media_type=CONTENT_TYPE_LATEST)

    def describe(self) -> Iterator[Metric]:
        """Nothing: what there is depends on the sources."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Every metric."""
        desk = self._desk
        seen = view.overview(desk.fleet, desk.now(), desk.ears(), [])
        vms = dict(seen["vms"])
        del vms["total"]
        yield _gauge("vms", "VMs, by how their bridge is heard.", "contact", vms)
        yield _gauge("vm_conditions", "VMs, by what they expect.", "condition", seen["conditions"])
        yield _one("events_open", "Events that are not over.", len(desk.fleet.events))
        yield _one("decisions_due", "Events that wait for a decision.", seen["decisionsDue"])
        missing = sum(vm.missing for vm in desk.fleet.vms.values())
        yield _one("records_missing", "Records that never came, by their sequence.", missing)
        yield from self._sources()
        yield from self._taking_in()

    def _sources(self) -> Iterator[Metric]:
        sources = self._desk.sources.values()
        connected = {each.name: float(each.connected) for each in sources}
        yield _gauge("source_connected", "1 if the source is connected.", "source", connected)
        lag = {each.name: each.lag for each in sources}
        yield _gauge(
            "source_lag_seconds",
            "Seconds that the last record had waited at the broker or hub.",
            "source",
            lag,
        )

    def _taking_in(self) -> Iterator[Metric]:
        progress = self._desk.writer.progress
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
        yield _one("queue", "Deliveries that wait for the writer.", self._desk.writer.waiting)
        yield _one(
            "last_commit_timestamp_seconds",
            "When records were last committed; 0 before the first.",
            progress.committed_at or 0,
        )


def _gauge(name: str, text: str, label: str, values: dict[str, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"seb_console_{name}", text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def _one(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"seb_console_{name}", text, float(value))
