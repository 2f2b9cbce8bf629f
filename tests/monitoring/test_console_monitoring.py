"""The console's alert rules and dashboard: tried by the real promtool, and about what there is."""

from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from support.console.records import FakeVm
from support.console.stage import ConsoleStage
from support.monitoring import promql, promtool

FILES = promtool.REPOSITORY / "helm" / "files"
RULES = FILES / "console-alerts.yaml"
TESTS = Path(__file__).parent / "console_alerts.yaml"
RUNBOOKS = promtool.REPOSITORY / "docs" / "console.md"
ALERTS = {
    rule["alert"]: rule
    for group in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
}
DASHBOARD: dict[str, Any] = json.loads(
    (FILES / "console-dashboard.json").read_text(encoding="utf-8")
)
PANELS = [each for each in DASHBOARD["panels"] if each["type"] != "row"]
QUERIES = [target["expr"] for panel in PANELS for target in panel["targets"]]
every_alert = pytest.mark.parametrize("name", ALERTS)


def _filled(expression: str) -> str:
    return promql.filled(expression.replace("$console", ".*"))


def test_the_rules_do_what_they_say(tool: None) -> None:
    """Promtool takes them, and its unit tests of them pass."""
    for words in (("check", "rules", str(RULES)), ("test", "rules", str(TESTS))):
        code, said = promtool.promtool(*words)
        assert code == 0, said


@every_alert
def test_each_alert_is_seen_to_fire_and_not_to_fire(name: str) -> None:
    """There is a moment at which it fires, and one at which it does not."""
    tests = yaml.safe_load(TESTS.read_text(encoding="utf-8"))["tests"]
    moments = [each for test in tests for each in test["promql_expr_test"] if name in each["expr"]]
    assert {bool(each["exp_samples"]) for each in moments} == {True, False}


@every_alert
def test_each_alert_says_how_bad_it_is_and_what_to_do(name: str) -> None:
    """An alert has a severity, a summary, a description, and a runbook that exists."""
    alert = ALERTS[name]
    headings = re.findall(r"^#+ (\w+)$", RUNBOOKS.read_text(encoding="utf-8"), re.MULTILINE)
    assert set(alert["annotations"]) == {"summary", "description", "runbook"}
    assert alert["labels"]["severity"] in ("critical", "warning")
    assert alert["annotations"]["runbook"] == f"docs/console.md#{name.lower()}"
    assert name in headings


def test_every_query_of_the_dashboard_parses(tool: None, tmp_path: Path) -> None:
    """Promtool takes each, its variables filled in."""
    code, said = promtool.check_expressions(map(_filled, QUERIES), tmp_path)
    assert code == 0, said
    assert [each for each in map(_filled, QUERIES) if "$" in each] == []


def test_rules_and_dashboard_name_what_the_console_measures(stage: ConsoleStage) -> None:
    """Each metric and label is in a real scrape, and each metric of the console is shown."""
    stage.put(FakeVm().heartbeat(now=stage.now))
    stage.desk.writer.progress.quarantined[("web", "malformed")] += 1
    scraped = stage.http.get(f"{stage.url}/metrics", timeout=20).text
    labels: dict[str, set[str]] = {"up": {"job", "instance"}}
    for family in text_string_to_metric_families(scraped):
        for sample in family.samples:
            labels.setdefault(sample.name, {"job", "instance"}).update(sample.labels)
    named = [
        each
        for expression in [*QUERIES, *(alert["expr"] for alert in ALERTS.values())]
        for each in promql.selectors(_filled(expression))
    ]
    assert [each for each in named if not each.labels <= labels.get(each.metric, set())] == []
    ours = {name for name in labels if name.startswith("seb_console_")}
    assert ours - {each.metric for each in named} == set()


def test_the_dashboard_can_be_imported_beside_the_other() -> None:
    """It has an address of its own, panels that do not overlap, and words if nothing is there."""
    other = json.loads((FILES / "dashboard.json").read_text(encoding="utf-8"))
    assert DASHBOARD["uid"] != other["uid"]
    places = [
        {
            (x, y)
            for x in range(p["gridPos"]["x"], p["gridPos"]["x"] + p["gridPos"]["w"])
            for y in range(p["gridPos"]["y"], p["gridPos"]["y"] + p["gridPos"]["h"])
        }
        for p in DASHBOARD["panels"]
    ]
    assert [a & b for a, b in combinations(places, 2) if a & b] == []
    assert max(x for cells in places for x, _ in cells) < 24
    for panel in PANELS:
        assert panel["description"].endswith(".")
        defaults = panel["fieldConfig"]["defaults"]
        assert panel["type"] == "timeseries" or defaults["noValue"]


@pytest.fixture
def stage(tmp_path: Path) -> Any:
    """A console to scrape."""
    with ConsoleStage(tmp_path) as made:
        yield made
