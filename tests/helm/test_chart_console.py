"""The chart's console: off by default, confined, and with settings that the console takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from support.chart.chart import CHART, accepted, of_kind, one, refused, render
from support.ground.doc_page import blocks

from console.config.load import load
from console.sources.settings import read_sources

CASES = ("console", "console-postgresql")
BASE: dict[str, Any] = {
    "enabled": True,
    "settings": {
        "source": {"webhook": {"kind": "webhook"}},
        "login": {"mode": "proxy", "proxies": ["10.0.0.7"]},
    },
}


def _pod(case: str) -> dict[str, Any]:
    spec: dict[str, Any] = one(render(case), "Deployment")["spec"]["template"]["spec"]
    return spec


def _settings(objects: list[dict[str, Any]]) -> str:
    (found,) = (
        each
        for each in of_kind(objects, "ConfigMap")
        if each["metadata"]["name"].startswith("console-")
        and each["metadata"]["name"].endswith("-settings")
    )
    text: str = found["data"]["seb.toml"]
    return text


@pytest.mark.parametrize("case", CASES)
def test_the_console_is_confined(case: str) -> None:
    """No root, no capability, no token, and nothing to write to but its state."""
    spec = _pod(case)
    container = spec["containers"][0]
    context = container["securityContext"]
    assert (context["runAsUser"], context["runAsNonRoot"]) == (65532, True)
    assert context["allowPrivilegeEscalation"] is False
    assert context["readOnlyRootFilesystem"] is True
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert (spec["automountServiceAccountToken"], spec["enableServiceLinks"]) == (False, False)
    writable = {each["name"] for each in container["volumeMounts"] if not each.get("readOnly")}
    assert writable == {"state", "tmp"}
    assert "memory" in container["resources"]["limits"]


@pytest.mark.parametrize(
    ("case", "sources"), [("console", ["mqtt"]), ("console-postgresql", ["webhook"])]
)
def test_the_console_takes_its_settings(
    case: str, sources: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file in the ConfigMap, with the container's variables beside it."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "seb.toml"
    path.write_text(_settings(render(case)), encoding="utf-8")
    variables = {
        each["name"]: each["value"]
        for each in _pod(case)["containers"][0]["env"]
        if "value" in each
    }
    settings = load(environ={**variables, "SEB_CONFIG": str(path)})
    assert list(read_sources(settings.source)) == sources
    assert settings.login.mode == "proxy"
    assert settings.listen == "0.0.0.0:9470"
    assert str(settings.state_dir) == "/var/lib/scheduled-events-console"


def test_one_console_keeps_its_database_on_a_volume_of_its_own() -> None:
    """It outlives the release, and an upgrade ends the old pod before the new one begins."""
    objects = render("console")
    claim = one(objects, "PersistentVolumeClaim")
    assert claim["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    (state,) = (each for each in _pod("console")["volumes"] if each["name"] == "state")
    assert state["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert one(objects, "Deployment")["spec"]["strategy"] == {"type": "Recreate"}


def test_several_consoles_share_a_database() -> None:
    """With a Secret that holds its URL there is no volume, and an upgrade never leaves nobody."""
    objects = render("console-postgresql")
    assert of_kind(objects, "PersistentVolumeClaim") == []
    deployment = one(objects, "Deployment")["spec"]
    assert (deployment["replicas"], deployment["strategy"]["type"]) == (2, "RollingUpdate")
    references = {
        each["name"]: each["valueFrom"]["secretKeyRef"]["name"]
        for each in _pod("console-postgresql")["containers"][0]["env"]
        if "valueFrom" in each
    }
    assert references == {
        "SEB_CONSOLE_DATABASE": "console-database",
        "SEB_CONSOLE_LOG__LEVEL": "console-enroll",
    }


def test_people_reach_the_console_and_no_bridge() -> None:
    """Ingress, Service and pod fit each other; the bridges' selector leaves the console alone."""
    objects = render("console")
    service, ingress = one(objects, "Service"), one(objects, "Ingress")
    (rule,) = ingress["spec"]["rules"]
    (path,) = rule["http"]["paths"]
    assert path["backend"]["service"]["name"] == service["metadata"]["name"]
    assert ingress["spec"]["tls"] == [{"hosts": ["console.example"], "secretName": "console-tls"}]
    (port,) = service["spec"]["ports"]
    assert port["targetPort"] == "login"
    selector = service["spec"]["selector"]
    labels = one(objects, "Deployment")["spec"]["template"]["metadata"]["labels"]
    bridges = one(objects, "DaemonSet")["spec"]["template"]["metadata"]["labels"]
    assert selector.items() <= labels.items()
    assert not selector.items() <= bridges.items()
    (monitor,) = (
        each
        for each in of_kind(objects, "PodMonitor")
        if each["spec"]["selector"]["matchLabels"] == selector
    )
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert {"targetLabel": "job", "replacement": "scheduled-events-console"} in endpoint[
        "relabelings"
    ]


def test_rules_and_dashboard_are_the_chart_s_files() -> None:
    """As for the bridges, beside theirs."""
    objects = render("console")
    rules = yaml.safe_load((CHART / "files" / "console-alerts.yaml").read_text(encoding="utf-8"))
    assert rules in [each["spec"] for each in of_kind(objects, "PrometheusRule")]
    dashboard = json.loads((CHART / "files" / "console-dashboard.json").read_text(encoding="utf-8"))
    shown = [
        json.loads(text)
        for each in of_kind(objects, "ConfigMap")
        if "grafana_dashboard" in each["metadata"]["labels"]
        for text in each["data"].values()
    ]
    assert dashboard in shown


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"settings": {"source": BASE["settings"]["source"]}}, "console.settings.login.mode"),
        ({"settings": {"login": BASE["settings"]["login"]}}, "console.settings.source"),
        ({"replicas": 2}, "console.database.secret"),
        ({"ingress": {"enabled": True}}, "console.ingress.host"),
        ({"settings": {**BASE["settings"], "listen": "0.0.0.0:1"}}, "set console.port instead"),
        (
            {"settings": {**BASE["settings"], "source": {"mqtt": {"password": "made-up"}}}},
            "name a Secret",
        ),
    ],
    ids=str,
)
def test_what_cannot_work_is_refused(changed: dict[str, Any], said: str, tmp_path: Path) -> None:
    """With the name of the value, and never with a secret."""
    told = refused(tmp_path, {"console": {**BASE, **changed}})
    assert said in told
    assert "made-up" not in told


def test_the_example_of_the_page_renders(tmp_path: Path) -> None:
    """Whoever copies it has values that the chart takes, and objects that Kubernetes knows."""
    page = [yaml.safe_load(each.text) for each in blocks("docs/console.md", "yaml")]
    (values,) = (each for each in page if "console" in each)
    for manifest in accepted(tmp_path, values):
        kubernetes_validate.validate(manifest, "1.33", strict=True)
