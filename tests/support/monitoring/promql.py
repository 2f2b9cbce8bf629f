"""Which metrics and labels an expression names. It reads names; promtool does the parsing."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from bridge.api.metric_definitions import BY_NAME

# What is on every series by the scrape, and what a histogram's buckets have.
TARGET_LABELS = frozenset({"job", "instance"})
# Metrics that are not the bridge's own: Prometheus', and prometheus_client's of the process.
FOREIGN = frozenset(
    {
        "up",
        "process_cpu_seconds_total",
        "process_resident_memory_bytes",
    }
)
_STRING = re.compile(r'"[^"]*"')
_METRIC = re.compile(r"\b(seb_\w+|process_\w+|python_\w+|up)\b(?:\s*\{([^}]*)\})?")
_MATCHED = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
_LISTED = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_SUFFIX = re.compile(r"_(bucket|sum|count)$")
# Grafana's variables, each as a value that it might have.
_VARIABLES = {"$vm": ".*", "$console": ".*", "$__rate_interval": "5m", "$__range": "6h"}


@dataclass(frozen=True, slots=True)
class Selector:
    """A metric, and the labels that it is chosen by."""

    metric: str
    labels: frozenset[str]


def filled(expression: str) -> str:
    """The expression as Grafana would send it."""
    for name, value in _VARIABLES.items():
        expression = expression.replace(name, value)
    return expression


def selectors(expression: str) -> Iterator[Selector]:
    """Each metric that it names."""
    for found in _METRIC.finditer(_STRING.sub('""', expression)):
        yield Selector(found[1], frozenset(_MATCHED.findall(found[2] or "")))


def listed_labels(expression: str) -> frozenset[str]:
    """The labels that it groups or joins by."""
    words = (each.split(",") for each in _LISTED.findall(_STRING.sub('""', expression)))
    return frozenset(word.strip() for each in words for word in each if word.strip())


def labels_of(metric: str) -> frozenset[str] | None:
    """The labels that a metric has, those of the scrape included; None where there is none."""
    if metric in FOREIGN:
        return TARGET_LABELS
    found = BY_NAME.get(metric)
    if found is None:
        found, suffix = BY_NAME.get(_SUFFIX.sub("", metric)), _SUFFIX.search(metric)
        if found is None or suffix is None or found.kind != "histogram":
            return None
        bucket = {"le"} if suffix[1] == "bucket" else set()
        return TARGET_LABELS | set(found.labels) | bucket
    return None if found.kind == "histogram" else TARGET_LABELS | set(found.labels)
