"""The metrics that a bridge serves."""

import re
from datetime import timedelta
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.documents.documents import NOW, body, entry, started
from support.page.monitored_bridge import MonitoredBridge

from bridge.api.metric_definitions import DEFINITIONS
from bridge.approval.approval_values import receipt
from bridge.events import bridge_records
from bridge.imds.client import ImdsError
from bridge.store.approvals import Approval
from wire.receipt import REFUSALS


def by_sink(name: str) -> str:
    """Return the series of the one sink; labels in the order of the text."""
    return f'{name}{{kind="file",sink="file"}}'


@pytest.fixture
def stage(stage: MonitoredBridge) -> MonitoredBridge:
    """A bridge that knows the VM identity and has not polled."""
    stage.begin()
    return stage


def test_exactly_the_documented_metrics_are_served(stage: MonitoredBridge) -> None:
    """The served metrics have exactly the documented names, types, help texts and labels."""
    stage.poll(body(entry()))
    stage.poll(ImdsError("no", reason="http_500"))
    families = {
        family.name: family
        for family in text_string_to_metric_families(stage.metrics.text().decode())
        if family.name.startswith("seb_")
    }
    documented = {each.name.removesuffix("_total"): each for each in DEFINITIONS}
    assert families.keys() == documented.keys()
    for name, family in families.items():
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        expected = documented[name]
        assert (expected.kind, expected.help) == (family.type, family.documentation)
        assert set(expected.labels) == labels, name


def test_before_the_vm_is_known_there_are_metrics(tmp_path: Path) -> None:
    """The metrics of a bridge that waits for the VM identity show that it waits."""
    stage = MonitoredBridge(tmp_path)
    samples = stage.samples()
    assert (samples["seb_looking"], samples["seb_polls_total"]) == (0.0, 0.0)
    stage.close()


def test_polls_are_counted_by_what_they_bring(stage: MonitoredBridge) -> None:
    """Polls are counted by their result, failed ones by reason, with the time of the last good
    one.
    """
    stage.poll(body())
    stage.poll(ImdsError("no", reason="timeout"), after=3.0)
    samples = stage.samples()
    assert samples["seb_polls_total"] == 2.0
    assert samples['seb_poll_errors_total{reason="timeout"}'] == 1.0
    assert samples["seb_poll_duration_seconds_count"] == 2.0
    last = samples["seb_poll_last_success_timestamp_seconds"]
    assert last == (NOW + timedelta(seconds=1)).timestamp()
    attempt = samples["seb_poll_last_attempt_timestamp_seconds"]
    assert attempt == (NOW + timedelta(seconds=4)).timestamp()


def test_pending_events_are_counted_by_type_and_status(stage: MonitoredBridge) -> None:
    """An event that is over is not counted any more, and its series remains, with 0."""
    stage.poll(body(entry()))
    series = (
        'seb_pending_events{affects_this_vm="true",event_status="Scheduled",event_type="Freeze"}'
    )
    nearest = 'seb_next_not_before_timestamp_seconds{affects_this_vm="true"}'
    assert stage.samples()[series] == 1.0
    assert stage.samples()[nearest] > NOW.timestamp()
    stage.poll(body(incarnation=2))
    assert stage.samples()[series] == 0.0
    assert nearest not in stage.samples()


def test_news_is_never_due(stage: MonitoredBridge) -> None:
    """News of an event of another status, such as Advisory, has no time at which it may start."""
    stage.poll(body(entry(status="Advisory")))
    assert not [name for name in stage.samples() if name.startswith("seb_next_not_before")]


def test_words_of_imds_make_no_series_without_end(stage: MonitoredBridge) -> None:
    """An unknown type or status counts as `other`, so that the number of series is limited."""
    for number in range(20):
        stage.poll(body(entry(f"e{number}", event_type=f"Odd{number}")))
    names = [name for name in stage.samples() if "Odd" in name]
    assert names == []
    assert stage.samples()['seb_event_notice_seconds_count{event_type="other"}'] == 20.0


def test_records_are_counted_by_their_transition(stage: MonitoredBridge) -> None:
    """Each counter begins with 0, so that the first record is an increase."""
    name = 'seb_records_total{transition="started",type="seb.event.started.v1"}'
    stage.poll(body(entry()))
    assert stage.samples()[name] == 0.0
    stage.poll(body(started()))
    assert stage.samples()[name] == 1.0


def test_the_backlog_of_a_sink(stage: MonitoredBridge) -> None:
    """A sink's backlog has its size, and the time of its oldest record, which is absent while
    nothing waits.
    """
    stage.poll(body())
    assert stage.samples()[by_sink("seb_sink_backlog_records")] == 0.0
    oldest = by_sink("seb_sink_oldest_pending_timestamp_seconds")
    assert oldest not in stage.samples()
    stage.poll(body(entry()), after=2.0)
    assert stage.samples()[by_sink("seb_sink_backlog_records")] == 1.0
    assert stage.samples()[oldest] == (NOW + timedelta(seconds=3)).timestamp()
    assert stage.samples()[by_sink("seb_sink_up")] == 0.0


def test_an_idle_sink_is_neither_up_nor_down(stage: MonitoredBridge) -> None:
    """Two series distinguish a sink that has delivered nothing yet from one that fails."""
    stage.poll(body())
    stage.parts.dispatcher.health["file"].set_state("idle", None, 0.0)
    samples = stage.samples()
    assert [samples[by_sink(name)] for name in ("seb_sink_up", "seb_sink_idle")] == [0.0, 1.0]
    stage.parts.dispatcher.health["file"].set_state("ok", None, 0.0)
    samples = stage.samples()
    assert [samples[by_sink(name)] for name in ("seb_sink_up", "seb_sink_idle")] == [1.0, 0.0]


def test_deliveries_are_measured(stage: MonitoredBridge) -> None:
    """The delivery time is measured in seconds from a record's observation to its
    acknowledgement.
    """
    stage.metrics.note_delivered("file", [0.003, 40.0])
    samples = stage.samples()
    assert samples[by_sink("seb_sink_delivery_lag_seconds_count")] == 2.0
    assert samples[by_sink("seb_sink_delivery_lag_seconds_sum")] == 40.003


def test_approvals_are_counted_by_their_receipts(stage: MonitoredBridge) -> None:
    """Every outcome of an approval has its series from the start."""
    entry = Approval("cause", "j", "e", None, "rule:x", None, (), state="confirmed")
    approved = receipt(entry, stage.parts.current.observer, NOW)
    stage.store.commit([approved])
    outcomes = re.findall(r'seb_approvals_total{outcome="(\w+)"} (\S+)', text(stage))
    assert sorted(outcomes) == [
        ("accepted", "0.0"),
        ("confirmed", "1.0"),
        ("failed", "0.0"),
        ("posted", "0.0"),
        ("rejected", "0.0"),
    ]


def test_refused_commands_are_counted_by_reason(stage: MonitoredBridge) -> None:
    """Every reason of a refused command has its series from the start."""
    stage.parts.approvals.refusals_by_reason["expired"] += 3
    found = dict(re.findall(r'seb_commands_refused_total{reason="(\w+)"} (\S+)', text(stage)))
    assert found == {reason: "3.0" if reason == "expired" else "0.0" for reason in REFUSALS}


def test_pauses_jumps_and_downtimes_are_counted(stage: MonitoredBridge) -> None:
    """Pauses, jumps of the clock, and downtimes of a VM (not of the bridge alone) are counted."""
    stage.metrics.note_standstill(4.5)
    stage.metrics.note_clock_jump()
    for restarted, gap in ((True, 75.0), (False, 9.0), (None, None), (True, None)):
        stage.store.commit(
            [
                bridge_records.started(
                    stage.parts.current.observer,
                    NOW,
                    sinks=[],
                    restarted=restarted,
                    gap_seconds=gap,
                )
            ]
        )
    samples = stage.samples()
    assert samples["seb_vm_pause_seconds_sum"] == 4.5
    assert samples["seb_clock_jumps_total"] == 1.0
    assert (samples["seb_vm_downtime_seconds_count"], samples["seb_vm_downtime_seconds_sum"]) == (
        1.0,
        75.0,
    )


def text(stage: MonitoredBridge) -> str:
    """Return the metrics as they are served."""
    return stage.metrics.text().decode()
