"""What docs/monitoring.md has people copy is valid, and fits what the rules go by."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.monitoring import promql, promtool

DOCS = promtool.REPOSITORY / "docs"
TEXT = (DOCS / "monitoring.md").read_text(encoding="utf-8")
JOBS = re.compile(
    "|".join(
        pattern
        for each in promtool.alerts()
        if each["alert"] == "SebDown"
        for pattern in re.findall(r'job=~"([^"]+)"', each["expr"])
    )
)


def blocks(language: str) -> list[str]:
    """The code blocks of a language, in their order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def configurations() -> list[dict[str, Any]]:
    """The blocks that configure Prometheus' scraping."""
    loaded = [yaml.safe_load(each) for each in blocks("yaml")]
    return [each for each in loaded if "scrape_configs" in each]


@pytest.mark.parametrize("number", range(len(configurations())))
def test_a_scrape_configuration_is_valid(tool: None, number: int, tmp_path: Path) -> None:
    """Promtool finds nothing wrong with a configuration that is shown."""
    path = tmp_path / "prometheus.yml"
    path.write_text(yaml.safe_dump(configurations()[number]))

    code, said = promtool.promtool("check", "config", "--syntax-only", str(path))

    assert code == 0, said


def test_scraping_gives_the_rules_what_they_go_by() -> None:
    """Every job that is shown is one that the rules know, and every target gets a name."""
    jobs = {each["job_name"] for made in configurations() for each in made["scrape_configs"]}
    monitors = [
        endpoint["relabelings"]
        for block in blocks("yaml")
        for endpoint in yaml.safe_load(block).get("spec", {}).get("podMetricsEndpoints", ())
    ]
    jobs |= {r["replacement"] for each in monitors for r in each if r["targetLabel"] == "job"}

    assert len(monitors) == 1
    assert [job for job in jobs if JOBS.fullmatch(job) is None] == []
    assert TEXT.count("{instance: ") == 2
    assert TEXT.count("target_label: instance") == 1
    assert TEXT.count("targetLabel: instance") == 1


def test_the_chart_makes_a_job_that_the_rules_know() -> None:
    """The chart's PodMonitor names the job and the instance as the rules want them."""
    monitor = promtool.REPOSITORY / "helm" / "templates" / "podmonitor.yaml"
    text = monitor.read_text(encoding="utf-8")
    (job,) = re.findall(r"targetLabel: job\n\s+replacement: (\S+)", text)

    assert JOBS.fullmatch(job)
    assert "targetLabel: instance" in text


def test_the_join_that_is_shown_is_valid(tool: None, tmp_path: Path) -> None:
    """The expression that people copy parses, and joins by labels that there are."""
    (expression,) = blocks("promql")
    named = list(promql.selectors(expression))
    has = frozenset().union(*(promql.labels_of(each.metric) or () for each in named))

    code, said = promtool.check_expressions([expression], tmp_path)

    assert code == 0, said
    assert len(named) == 2
    assert frozenset() == promql.listed_labels(expression) - has


def test_the_values_of_the_chart_exist() -> None:
    """Each value that a person is told to set is one of the chart's."""
    values = yaml.safe_load((promtool.REPOSITORY / "helm" / "values.yaml").read_text())
    missing = []
    for name in re.findall(r"--set ([\w.]+)=", TEXT):
        at: Any = values
        for word in name.split("."):
            at = at.get(word) if isinstance(at, dict) else None
        if at is None:
            missing.append(name)

    assert missing == []


def test_every_metric_in_the_text_exists() -> None:
    """The documentation names no metric that there is not."""
    named = {each.metric for each in promql.selectors(TEXT)} - {"up"}

    assert sorted(each for each in named if promql.labels_of(each) is None) == []
