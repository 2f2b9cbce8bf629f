"""The metrics of a run. Times are timestamps, never ages; no label has an event id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from bridge.api.gauges import Gauges, known_type
from bridge.api.metric_definitions import BY_NAME
from bridge.api.status import Status
from wire.event import AZURE_TYPES
from wire.record import APPROVAL, BRIDGE_TYPES, EVENT_TYPES, Record

OUTCOMES: Final = ("accepted", "posted", "confirmed", "failed", "rejected")
TRANSITIONS: Final = {kind: kind.split(".")[2] for kind in EVENT_TYPES}
_REASONS: Final = (
    "timeout",
    "refused",
    "unreachable",
    "connection",
    "malformed",
    "too_large",
    "http_400",
    "http_404",
    "http_410",
    "http_429",
    "http_500",
    "http_503",
    "store",
    "bug",
    "other",
)
"""Why a poll can fail: whatever IMDS answers, the number of series is limited."""


class Metrics:
    """Counts what the parts report, and reads the rest from the status at each scrape."""

    def __init__(self, status: Status, sinks: Sequence[tuple[str, str]]) -> None:
        """`sinks`: name and kind of each."""
        disable_created_metrics()  # type: ignore[no-untyped-call]  # they would double the series
        self._registry = CollectorRegistry()
        self._kinds = dict(sinks)
        self._polls = self._counter("seb_polls")
        self._errors = self._counter("seb_poll_errors")
        self._duration = self._histogram("seb_poll_duration_seconds")
        self._notice = self._histogram("seb_event_notice_seconds")
        self._records = self._counter("seb_records")
        self._approvals = self._counter("seb_approvals")
        self._lag = self._histogram("seb_sink_delivery_lag_seconds")
        self._pauses = self._histogram("seb_vm_pause_seconds")
        self._downtimes = self._histogram("seb_vm_downtime_seconds")
        self._jumps = self._counter("seb_clock_jumps")
        self._begin_at_zero()
        self._registry.register(Gauges(status, self._kinds))
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    def note_poll(self, seconds: float, trouble: str | None) -> None:
        """Count a poll that took so many seconds; `trouble` is the reason if it failed."""
        self._polls.inc()
        self._duration.observe(seconds)
        if trouble is not None:
            self._errors.labels(trouble if trouble in _REASONS else "other").inc()

    def note_committed(self, records: Sequence[Record]) -> None:
        """Count records that were committed."""
        for record in records:
            self._records.labels(record.type, TRANSITIONS.get(record.type, "")).inc()
            match record.type:
                case "seb.event.scheduled.v1":
                    self._notify(record)
                case "seb.approval.v1":
                    self._approvals.labels(record.data["state"]).inc()
                case "seb.bridge.started.v1":
                    self._restart(record)

    def note_delivered(self, sink: str, lags: Sequence[float]) -> None:
        """Count records that a sink has acknowledged, each so many seconds after its commit."""
        histogram = self._lag.labels(sink, self._kinds[sink])
        for lag in lags:
            histogram.observe(lag)

    def note_standstill(self, seconds: float) -> None:
        """Count a pause of the VM."""
        self._pauses.observe(seconds)

    def note_clock_jump(self) -> None:
        """Count a change of the wall clock that was set."""
        self._jumps.inc()

    def _notify(self, record: Record) -> None:
        notice = record.data["observation"]["noticeSeconds"]
        if notice is not None:
            kind = known_type(record.data["event"]["eventType"])
            self._notice.labels(kind).observe(max(0.0, notice))

    def _restart(self, record: Record) -> None:
        started = record.data["started"]
        if started["restarted"] and started["gapSeconds"] is not None:
            self._downtimes.observe(started["gapSeconds"])

    def _begin_at_zero(self) -> None:
        """Begin the known series at 0: a counter whose first sample is 1 shows no increase."""
        for kind in (*EVENT_TYPES, *BRIDGE_TYPES, APPROVAL):
            self._records.labels(kind, TRANSITIONS.get(kind, ""))
        for reason in _REASONS:
            self._errors.labels(reason)
        for event_type in AZURE_TYPES:
            self._notice.labels(event_type)
        for outcome in OUTCOMES:
            self._approvals.labels(outcome)
        for name, kind in self._kinds.items():
            self._lag.labels(name, kind)

    def _counter(self, name: str) -> Counter:
        found = BY_NAME[f"{name}_total"]
        return Counter(name, found.help, found.labels, registry=self._registry)

    def _histogram(self, name: str) -> Histogram:
        found = BY_NAME[name]
        return Histogram(
            name, found.help, found.labels, buckets=found.buckets, registry=self._registry
        )
