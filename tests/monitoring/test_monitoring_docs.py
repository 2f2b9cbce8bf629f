"""What docs/monitoring.md has people copy is valid, and fits what the rules go by."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.ground.doc_page import blocks
from support.monitoring import promql, promtool

PAGE = "docs/monitoring.md"
TEXT = (promtool.REPOSITORY / PAGE).read_text(encoding="utf-8")
JOBS = re.compile(
    "|".join(
        pattern
        for each in promtool.alerts()
        if each["alert"] == "SebDown"
        for pattern in re.findall(r'job=~"([^"]+)"', each["expr"])
    )
)


YAML = [yaml.safe_load(each.text) for each in blocks(PAGE, "yaml")]
CONFIGURATIONS = [each for each in YAML if "scrape_configs" in each]


@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=range(len(CONFIGURATIONS)))
def test_a_scrape_configuration_is_valid(
    tool: None, configuration: dict[str, Any], tmp_path: Path
) -> None:
    """Promtool finds nothing wrong with a configuration that is shown."""
    path = tmp_path / "prometheus.yml"
    path.write_text(yaml.safe_dump(configuration))

    code, said = promtool.promtool("check", "config", "--syntax-only", str(path))

    assert code == 0, said


def test_scraping_gives_the_rules_what_they_go_by() -> None:
    """Every job that is shown is one that the rules know, and every target gets a name."""
    jobs = {each["job_name"] for made in CONFIGURATIONS for each in made["scrape_configs"]}
    monitors = [
        endpoint["relabelings"]
        for block in YAML
        for endpoint in block.get("spec", {}).get("podMetricsEndpoints", ())
    ]
    jobs |= {r["replacement"] for each in monitors for r in each if r["targetLabel"] == "job"}

    assert len(monitors) == 1
    assert [job for job in jobs if JOBS.fullmatch(job) is None] == []
    assert TEXT.count("{instance: ") == 2
    assert TEXT.count("target_label: instance") == 1
    assert TEXT.count("targetLabel: instance") == 1


def test_the_join_that_is_shown_is_valid(tool: None, tmp_path: Path) -> None:
    """The expression that people copy parses, and joins by labels that there are."""
    (expression,) = (each.text for each in blocks(PAGE, "promql"))
    named = list(promql.selectors(expression))
    has = frozenset().union(*(promql.labels_of(each.metric) or () for each in named))

    code, said = promtool.check_expressions([expression], tmp_path)

    assert code == 0, said
    assert len(named) == 2
    assert frozenset() == promql.listed_labels(expression) - has


def test_the_runbooks_become_links(tmp_path: Path) -> None:
    """The command that is shown names the place in each rule of a copy."""
    (block,) = (each for each in blocks(PAGE, "sh") if "alerts.yaml" in each.text)
    shutil.copy(promtool.REPOSITORY / "helm" / "files" / "alerts.yaml", tmp_path)
    before = (tmp_path / "alerts.yaml").read_text().count("runbook: docs/")
    subprocess.run(["sh", "-ec", block.text], cwd=tmp_path, check=True)
    after = (tmp_path / "alerts.yaml").read_text()
    assert after.count("runbook_url: https://git.example.com/") == before > 0
    assert "runbook: docs/" not in after


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
