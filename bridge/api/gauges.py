"""The gauges: read from the status at each scrape, and not stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from bridge.api.metric_definitions import BY_NAME
from bridge.api.status import Running, Status
from bridge.delivery.health import Health
from bridge.events.tracked import TrackedEvent
from bridge.store.database import StoreError
from bridge.version import __version__
from sinks.shared import logs
from wire.event import AZURE_TYPES
from wire.receipt import REFUSALS

STATUSES: Final = ("Scheduled", "Started")
_BOOL: Final = {True: "true", False: "false"}

Family = GaugeMetricFamily | CounterMetricFamily


def known_type(event_type: str | None) -> str:
    """Return the type as a label; unknown types share one, so that the number of series
    is limited.
    """
    return event_type if event_type in AZURE_TYPES else "other"


class Gauges(Collector):
    """Reads a status for Prometheus."""

    def __init__(self, status: Status, kinds: Mapping[str, str]) -> None:
        """`kinds`: each sink's kind by its name."""
        self._status = status
        self._kinds = kinds

    def describe(self) -> list[Metric]:
        """Return nothing: the registry must not read a status that does not exist yet."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Return the metrics at this moment."""
        running = self._status.running
        yield _one("seb_build_info", 1, __version__)
        yield from self._polling(running)
        yield _one("seb_store_size_bytes", self._status.store_bytes())
        yield _one("seb_log_lines_dropped_total", logs.dropped())
        if running is not None:
            vm = running.current.observer.vm
            labels = (vm.vm_id, vm.name, vm.resource_group, vm.location, vm.scale_set)
            yield _one("seb_vm_info", 1, *(each or "" for each in labels))
            yield from self._events(running)
            yield from self._sinks(running)
            yield self._refusals(running)

    def _polling(self, running: Running | None) -> Iterator[Metric]:
        status = self._status
        name = "seb_poll_last_attempt_timestamp_seconds"
        yield _moment(name, status.liveness.attempted_at)
        yield _one("seb_looking", status.is_polling())
        if running is not None:
            polled_at = running.current.gaps.polled_at
            yield _moment("seb_poll_last_success_timestamp_seconds", polled_at)
            yield _one("seb_polls_skipped_total", status.skipped())
            yield _one("seb_store_writable", status.store_trouble() is None)

    def _events(self, running: Running) -> Iterator[Metric]:
        if running.current.incarnation is not None:
            yield _one("seb_document_incarnation", running.current.incarnation)
        pending = self._status.pending()
        counted = _family("seb_pending_events")
        found = Counter(_labels(each) for each in pending)
        for kind in AZURE_TYPES:
            for status in STATUSES:
                found.setdefault((kind, status, "true"), 0)
        for labels, count in found.items():
            counted.add_metric(labels, count)
        yield counted
        nearest = _family("seb_next_not_before_timestamp_seconds")
        for affects in (True, False):
            moments = [
                each.event.not_before
                for each in pending
                if each.affects_this_vm is affects
                and each.event.not_before is not None
                and not each.event.is_news
            ]
            if moments:
                nearest.add_metric([_BOOL[affects]], min(moments).timestamp())
        yield nearest

    def _sinks(self, running: Running) -> Iterator[Metric]:
        health = running.dispatcher.health
        totals: tuple[tuple[str, Callable[[Health], float]], ...] = (
            ("seb_sink_delivered_total", lambda each: each.delivered),
            ("seb_sink_failures_total", lambda each: each.failed),
            ("seb_sink_dead_total", lambda each: each.dead),
            ("seb_sink_up", lambda each: each.state == "ok"),
            ("seb_sink_idle", lambda each: each.state == "idle"),
        )
        for name, reading in totals:
            family = _family(name)
            for sink, each in health.items():
                family.add_metric((sink, self._kinds[sink]), reading(each))
            yield family
        try:
            backlogs = self._status.backlogs()
        except StoreError:
            return  # no figures if the store cannot be read; seb_store_writable reports that
        dead = _family("seb_sink_dead_records")
        waiting = _family("seb_sink_backlog_records")
        oldest = _family("seb_sink_oldest_pending_timestamp_seconds")
        for sink, backlog in backlogs.items():
            labels = (sink, self._kinds[sink])
            dead.add_metric(labels, backlog.dead)
            waiting.add_metric(labels, backlog.records)
            if backlog.oldest is not None:
                oldest.add_metric(labels, datetime.fromisoformat(backlog.oldest).timestamp())
        yield from (dead, waiting, oldest)

    def _refusals(self, running: Running) -> Metric:
        family = _family("seb_commands_refused_total")
        refusals = running.refusals_by_reason()
        for reason in REFUSALS:
            family.add_metric([reason], refusals.get(reason, 0))
        return family


def _labels(tracked: TrackedEvent) -> tuple[str, str, str]:
    status = tracked.status if tracked.status in STATUSES else "other"
    return known_type(tracked.event.event_type), status, _BOOL[tracked.affects_this_vm]


def _family(name: str) -> Family:
    found = BY_NAME[name]
    family = CounterMetricFamily if found.kind == "counter" else GaugeMetricFamily
    return family(name, found.help, labels=found.labels)


def _one(name: str, value: float, *labels: str) -> Metric:
    family = _family(name)
    family.add_metric(labels, value)
    return family


def _moment(name: str, moment: datetime | None) -> Metric:
    """Return a metric with a timestamp. It has no sample before the first timestamp."""
    family = _family(name)
    if moment is not None:
        family.add_metric((), moment.timestamp())
    return family
