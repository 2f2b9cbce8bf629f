"""What the chart hands Prometheus and Grafana, and that it does so only where it is asked to."""

import json
import shutil
from pathlib import Path

import pytest
import yaml
from support.chart.chart import CHART, case_file, of_kind, one, parsed, pod_spec, render, template

ALERTS = CHART / "files" / "alerts.yaml"
DASHBOARD = CHART / "files" / "dashboard.json"


def test_each_pod_is_scraped() -> None:
    """The PodMonitor selects the pods, and reads the metrics from a port that they have; a series
    belongs to a node, whatever its pod and the release are called.
    """
    objects = render("monitoring")
    monitor = one(objects, "PodMonitor")
    assert monitor["apiVersion"] == "monitoring.coreos.com/v1"
    assert monitor["metadata"]["labels"]["release"] == "kube-prometheus-stack"
    labels = one(objects, "DaemonSet")["spec"]["template"]["metadata"]["labels"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    (container,) = pod_spec(objects)["containers"]
    (port,) = container["ports"]
    assert (endpoint["port"], endpoint["path"], endpoint["interval"]) == (
        port["name"],
        "/metrics",
        "30s",
    )

    assert endpoint["relabelings"] == [
        {"targetLabel": "job", "replacement": "scheduled-events-bridge"},
        {"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "instance"},
    ]


def test_azure_monitor_has_kinds_of_its_own() -> None:
    """Azure's managed Prometheus reads the same PodMonitor under a name of its own, and drops what
    comes without its limits.
    """
    monitor = one(render("everything"), "PodMonitor")
    assert monitor["apiVersion"] == "azmonitoring.coreos.com/v1"
    limits = {name: value for name, value in monitor["spec"].items() if name.endswith("Limit")}
    assert limits == {
        "labelLimit": 63,
        "labelNameLengthLimit": 511,
        "labelValueLengthLimit": 1023,
    }


def test_alerts_are_the_chart_s_file() -> None:
    """The PrometheusRule holds the groups of helm/files/alerts.yaml, expressions untouched."""
    rule = one(render("monitoring"), "PrometheusRule")
    assert rule["spec"] == yaml.safe_load(ALERTS.read_text(encoding="utf-8"))
    assert set(rule["spec"]) == {"groups"}
    for group in rule["spec"]["groups"]:
        assert {"name", "rules"} <= set(group)
        for each in group["rules"]:
            assert {"expr", "alert"} <= set(each) or {"expr", "record"} <= set(each)


def test_the_dashboard_is_the_chart_s_file() -> None:
    """The ConfigMap for Grafana's sidecar holds helm/files/dashboard.json, and fits into one."""
    found = [
        each
        for each in of_kind(render("monitoring"), "ConfigMap")
        if "grafana_dashboard" in each["metadata"]["labels"]
    ]
    (dashboard,) = found
    assert dashboard["metadata"]["annotations"] == {"grafana_folder": "Azure"}
    ((name, text),) = dashboard["data"].items()
    assert name.endswith(".json")
    assert json.loads(text) == json.loads(DASHBOARD.read_text(encoding="utf-8"))
    assert len(text) < 1 << 19  # Kubernetes: 1 MiB an object; half of that leaves room


def test_links_to_the_runbooks_are_absolute() -> None:
    """Where the pages are is a value: each alert has the standard annotation, the board a link."""
    url = "https://git.example.com/ops/seb/blob/main/docs"
    output = template(*("--values", case_file("monitoring"), "--set", f"monitoring.docsUrl={url}/"))
    assert output.code == 0, output.err
    objects = parsed(output.out)
    links = [
        each["annotations"].get("runbook_url")
        for group in one(objects, "PrometheusRule")["spec"]["groups"]
        for each in group["rules"]
        if "alert" in each
    ]
    assert links
    assert all(str(each).startswith(f"{url}/monitoring.md#seb") for each in links)
    (board,) = [
        json.loads(text)
        for each in of_kind(objects, "ConfigMap")
        if "grafana_dashboard" in each["metadata"]["labels"]
        for text in each["data"].values()
    ]
    (link,) = board["links"]
    assert (link["url"], link["targetBlank"]) == (f"{url}/monitoring.md", True)


@pytest.mark.parametrize("value", ["image.repository=", "image.repository=null", "image=null"])
def test_an_image_without_a_name_is_refused(value: str) -> None:
    """`:0.2.0` is an image that no node can pull."""
    output = template("--set", value)
    assert (output.code, "image" in output.err) == (1, True)


def test_a_chart_without_the_files_renders(tmp_path: Path) -> None:
    """Without rules and dashboard there is none, and nothing that is empty."""
    chart = tmp_path / "chart"
    shutil.copytree(CHART, chart, ignore=shutil.ignore_patterns("files"))
    output = template("--values", case_file("monitoring"), chart=chart)
    assert output.code == 0, output.err
    objects = parsed(output.out)
    assert of_kind(objects, "PrometheusRule") == []
    assert len(of_kind(objects, "ConfigMap")) == 1
