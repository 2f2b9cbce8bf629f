"""A real Prometheus scrapes a real bridge, and answers every query of the dashboard."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from support.monitoring import dashboard, prometheus, promql, promtool
from support.ports import free_port
from support.process.bridge import NOWHERE, BridgeProcess

from bridge.simulator.events import SimulatedEvent
from bridge.simulator.faults import StatusFault
from bridge.simulator.simulator import Simulator

# What a bridge with a pending event, one good and one failing sink has nothing to show for.
QUIET = {
    "Who does not look, A",
    "Bridges that do not answer, A",
    "Measured pauses, B",
    "Measured pauses, C",
    "Measured downtimes, B",
    "Measured downtimes, C",
    "Dead records over time, A",
    "Dead records over time, B",
    "Approvals by outcome, A",
    "Refused commands, A",
    "Stores that cannot be written, A",
    "Clock set, A",
}
# Seconds of Prometheus that this test scrapes once a second; the other variables are as elsewhere.
RATE = "10s"


@pytest.fixture
def scraped(tmp_path: Path) -> Iterator[prometheus.Prometheus]:
    """A bridge that saw IMDS fail once and an event come, as Prometheus saw it."""
    if prometheus.executable() is None:
        pytest.skip("prometheus is not installed; Debian's package prometheus has it")
    listen = f"127.0.0.1:{free_port()}"
    env = {
        "SEB_STATE_DIR": str(tmp_path / "state"),
        "SEB_HTTP__LISTEN": listen,
        "SEB_HEARTBEAT_INTERVAL": "1",
        "SEB_SINK__FILE__PATH": str(tmp_path / "records"),
        "SEB_SINK__OPS__KIND": "webhook",
        "SEB_SINK__OPS__URL": NOWHERE,
    }
    with (
        Simulator() as simulator,
        BridgeProcess("run", env={**env, "SEB_IMDS__URL": simulator.url}, home=tmp_path) as bridge,
        prometheus.Prometheus(tmp_path, listen) as server,
    ):
        bridge.wait_for_log("started")
        server.wait_for(["seb_looking == 1"])
        simulator.fault(StatusFault(503))
        soon = datetime.now(UTC) + timedelta(minutes=10)
        simulator.announce(
            SimulatedEvent(
                event_type="Freeze",
                resources=(simulator.vm.name,),
                not_before=soon,
                duration=5,
            )
        )
        server.wait_for(
            [
                'ALERTS{alertname="SebEventSoon", alertstate="firing"}',
                "rate(seb_poll_errors_total[10s])",
                "increase(seb_event_notice_seconds_count[10s]) > 0",
                "rate(seb_sink_failures_total[10s]) > 0",
                "rate(seb_sink_delivered_total[10s]) > 0",
            ]
        )
        yield server


def test_a_real_prometheus_finds_everything(scraped: prometheus.Prometheus) -> None:
    """No query of the dashboard and no rule ends in an error, those that have something to show do
    so, and what they use beside the bridge's own metrics comes with every scrape.
    """
    fields = {
        where: promql.filled(query.replace("$__rate_interval", RATE))
        for where, query in dashboard.queries().items()
    }
    errors = scraped.rule_errors()

    assert {where for where, query in fields.items() if not scraped.query(query)} == QUIET
    assert sorted(errors) == sorted(each["alert"] for each in promtool.alerts())
    assert {name: error for name, error in errors.items() if error} == {}
    assert [name for name in sorted(promql.FOREIGN) if not scraped.query(name)] == []
