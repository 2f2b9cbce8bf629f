"""Every expression of the rules and of the dashboard: it parses, and names what there is."""

from pathlib import Path

import pytest
from support.monitoring import dashboard, promql, promtool

from bridge.api.metric_definitions import BY_NAME

EXPRESSIONS = dashboard.queries() | {each["alert"]: each["expr"] for each in promtool.alerts()}


@pytest.mark.parametrize("name", [dashboard.BRIDGE, dashboard.CONSOLE])
def test_every_expression_parses(tool: None, tmp_path: Path, name: str) -> None:
    """Promtool takes every query of a dashboard, its variables filled in: none is unknown."""
    filled = [promql.filled(each) for each in dashboard.queries(name).values()]

    code, said = promtool.check_expressions(filled, tmp_path)

    assert (code, f"{len(filled)} rules found" in said) == (0, True), said
    assert [each for each in filled if "$" in each] == []


def test_a_broken_expression_would_be_found(tool: None, tmp_path: Path) -> None:
    """The check above can fail."""
    code, _ = promtool.check_expressions(["sum(rate(seb_polls_total[5m])"], tmp_path)

    assert code != 0


def test_metrics_exist() -> None:
    """Expressions name metrics that the bridge has, and choose by labels that they have."""
    named = {where: list(promql.selectors(each)) for where, each in EXPRESSIONS.items()}
    wrong = [
        (where, each)
        for where, found in named.items()
        for each in found
        if (has := promql.labels_of(each.metric)) is None or each.labels - has
    ]

    assert (wrong, [where for where, found in named.items() if not found]) == ([], [])


def test_labels_exist() -> None:
    """An expression groups and joins by labels that one of its metrics has."""
    wrong = {}
    for where, expression in EXPRESSIONS.items():
        known = (promql.labels_of(each.metric) or () for each in promql.selectors(expression))
        wrong[where] = promql.listed_labels(expression) - frozenset().union(*known)

    assert {where: labels for where, labels in wrong.items() if labels} == {}


def test_every_metric_is_shown() -> None:
    """A metric that neither the dashboard nor a rule looks at should say why it is there."""
    told_otherwise = {
        "seb_document_incarnation",  # for a look at one VM: it may go back, and adds up to nothing
        "seb_log_lines_dropped_total",  # for a person who misses lines: nothing else is lost
    }
    named = {
        name
        for expression in EXPRESSIONS.values()
        for each in promql.selectors(expression)
        for name in (each.metric, each.metric.rpartition("_")[0])
    }

    assert told_otherwise == set(BY_NAME) - named


@pytest.mark.parametrize(
    ("expression", "metrics", "listed"),
    [
        (
            'a_rate(seb_polls_total{x="up{", y!~"b"}[5m]) > 0 * ignoring (p, q) group_left (r) up',
            [("seb_polls_total", {"x", "y"}), ("up", set())],
            {"p", "q", "r"},
        ),
        ("sum by (le) (rate(seb_a_bucket[5m]))", [("seb_a_bucket", set())], {"le"}),
    ],
)
def test_names_are_read(
    expression: str, metrics: list[tuple[str, set[str]]], listed: set[str]
) -> None:
    """The reader of names finds metrics, matchers and grouping, and nothing within strings."""
    found = [(each.metric, set(each.labels)) for each in promql.selectors(expression)]

    assert (metrics, listed) == (found, set(promql.listed_labels(expression)))


def test_a_histogram_has_buckets_with_le() -> None:
    """A histogram is named by its suffixes only, and only its buckets have le."""
    names = ("seb_poll_duration_seconds", "seb_poll_duration_seconds_bucket", "seb_looking_count")

    assert [None, {"job", "instance", "le"}, None] == [promql.labels_of(each) for each in names]
