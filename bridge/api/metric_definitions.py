"""Every metric: its name, meaning and labels, which dashboards and alerts rely on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

MetricType = Literal["counter", "gauge", "histogram"]

SINK: Final = ("sink", "kind")
_LAG: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_SHORT: Final = (0.001, 0.0025, *_LAG[:10], 30.0, 150.0)
_LONG_LAG: Final = (*_LAG, 300.0, 1_800.0, 7_200.0, 86_400.0)
_NOTICE: Final = (0.0, 15.0, 30.0, 60.0, 300.0, 600.0, 840.0, 900.0, 960.0, 1_800.0, 86_400.0)
_PAUSE: Final = (0.5, 1.0, 2.0, 3.0, 5.0, 8.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0)
_DOWNTIME: Final = (10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1_800.0, 7_200.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A metric as it is documented; a counter's name ends in _total."""

    name: str
    kind: MetricType
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


def _counter(name: str, text: str, *labels: str) -> Definition:
    return Definition(name=name, kind="counter", help=text, labels=labels)


def _gauge(name: str, text: str, *labels: str) -> Definition:
    return Definition(name=name, kind="gauge", help=text, labels=labels)


def _histogram(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Definition:
    return Definition(name=name, kind="histogram", help=text, labels=labels, buckets=buckets)


DEFINITIONS: Final = (
    _gauge("seb_build_info", "Always 1; the version of the bridge", "version"),
    _gauge(
        "seb_vm_info",
        "Always 1; which VM this is, once it is known",
        "vm_id",
        "vm_name",
        "resource_group",
        "location",
        "scale_set",
    ),
    _counter("seb_polls_total", "Polls of IMDS that have ended, failed ones included"),
    _counter("seb_poll_errors_total", "Polls that brought no document, by reason", "reason"),
    _counter(
        "seb_polls_skipped_total", "Polls that were skipped because the one before had not ended"
    ),
    _histogram("seb_poll_duration_seconds", "How long a poll took, commit included", _SHORT),
    _gauge("seb_poll_last_attempt_timestamp_seconds", "When a poll last ended, failed or not"),
    _gauge(
        "seb_poll_last_success_timestamp_seconds",
        "When IMDS last gave a valid document; kept over a restart, absent before the first",
    ),
    _gauge("seb_looking", "1 if IMDS gave a valid document recently, as for /readyz; else 0"),
    _gauge("seb_store_writable", "1 if the store can be written, else 0"),
    _gauge("seb_document_incarnation", "DocumentIncarnation of the last document; it may go back"),
    _gauge(
        "seb_pending_events",
        "Events that are scheduled or started",
        "event_type",
        "event_status",
        "affects_this_vm",
    ),
    _gauge(
        "seb_next_not_before_timestamp_seconds",
        "The earliest NotBefore of the scheduled events; absent without one",
        "affects_this_vm",
    ),
    _histogram(
        "seb_event_notice_seconds",
        "How long before its NotBefore an event was first seen",
        _NOTICE,
        "event_type",
    ),
    _counter(
        "seb_records_total",
        "Committed records; transition is empty if the record is not about an event",
        "type",
        "transition",
    ),
    _counter("seb_sink_delivered_total", "Records that the sink has acknowledged", *SINK),
    _counter("seb_sink_failures_total", "Attempts of the sink that failed", *SINK),
    _counter("seb_sink_dead_total", "Records that were marked as dead for the sink", *SINK),
    _gauge("seb_sink_dead_records", "Records that are dead for the sink now", *SINK),
    _gauge("seb_sink_backlog_records", "Records that are not delivered to the sink yet", *SINK),
    _gauge(
        "seb_sink_oldest_pending_timestamp_seconds",
        "When the oldest record that is not delivered yet was observed; absent without one",
        *SINK,
    ),
    _histogram(
        "seb_sink_delivery_lag_seconds",
        "Seconds from the observation of a record to the sink's acknowledgement",
        _LONG_LAG,
        *SINK,
    ),
    _gauge("seb_sink_up", "1 if the sink acknowledged the last record, else 0", *SINK),
    _gauge(
        "seb_sink_idle",
        "1 if the sink does not fail but has acknowledged no record since the start or its last "
        "refusal, else 0",
        *SINK,
    ),
    _counter("seb_approvals_total", "Steps of approvals, by the state of the receipt", "outcome"),
    _counter(
        "seb_commands_refused_total", "Signed commands that were refused, by reason", "reason"
    ),
    _histogram("seb_vm_pause_seconds", "Measured pauses of the VM, in seconds", _PAUSE),
    _histogram(
        "seb_vm_downtime_seconds",
        "Seconds from the last poll before a restart of the VM to the first after it",
        _DOWNTIME,
    ),
    _counter("seb_clock_jumps_total", "How often the wall clock was set"),
    _gauge("seb_store_size_bytes", "Size of the store on disk"),
    _counter("seb_log_lines_dropped_total", "Lines of the log that standard error did not take"),
)
"""In the order of the documentation."""

BY_NAME: Final = {each.name: each for each in DEFINITIONS}
