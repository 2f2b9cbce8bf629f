"""The console's alert rules and dashboard are about what a console measures."""

from __future__ import annotations

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from support.console.records import FakeVm
from support.console.stage import ConsoleStage
from support.monitoring import dashboard, promql, promtool

EXPRESSIONS = [
    *dashboard.queries(dashboard.CONSOLE).values(),
    *(each["expr"] for each in promtool.alerts(promtool.CONSOLE_ALERTS)),
]


def test_rules_and_dashboard_name_what_the_console_measures(tmp_path: Path) -> None:
    """Each metric and label is in a real scrape, and each metric of the console is shown."""
    sink = {"SINK__FILE__PATH": str(tmp_path / "notices.jsonl")}
    with ConsoleStage(tmp_path, **sink) as stage:
        stage.put(FakeVm().heartbeat(now=stage.now))
        stage.state.writer.progress.quarantined[("web", "malformed")] += 1
        scraped = stage.http.get(f"{stage.url}/metrics", timeout=20).text
    labels: dict[str, set[str]] = {"up": {"job", "instance"}}
    for family in text_string_to_metric_families(scraped):
        for sample in family.samples:
            labels.setdefault(sample.name, {"job", "instance"}).update(sample.labels)
    named = [each for one in EXPRESSIONS for each in promql.selectors(promql.filled(one))]
    assert [each for each in named if not each.labels <= labels.get(each.metric, set())] == []
    ours = {name for name in labels if name.startswith("seb_console_")}
    assert ours - {each.metric for each in named} == set()
