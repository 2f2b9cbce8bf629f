"""The chart's console: off by default, confined, and with settings that the console takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from support.chart.chart import CHART, accepted, case_file, of_kind, one, refused, render
from support.ground.doc_page import blocks

from console.config.load import load
from console.ingest.settings import read_sources

CASES = ("console", "console-postgresql")
BASE: dict[str, Any] = {
    "enabled": True,
    "settings": {
        "source": {"webhook": {"kind": "webhook"}},
        "login": {"mode": "proxy", "proxies": ["10.0.0.7"]},
    },
}


def _pod(case: str) -> dict[str, Any]:
    kind = "StatefulSet" if case == "console-postgresql" else "Deployment"
    spec: dict[str, Any] = one(render(case), kind)["spec"]["template"]["spec"]
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
    ("case", "sources"), [("console", ["mqtt"]), ("console-postgresql", ["broker", "webhook"])]
)
def test_the_console_takes_its_settings(
    case: str, sources: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file in the ConfigMap, with the container's variables beside it."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "seb.toml"
    path.write_text(_settings(render(case)), encoding="utf-8")
    variables = {
        each["name"]: each["value"].replace("$(POD_NAME)", "console-seb-0")  # as Kubernetes does
        for each in _pod(case)["containers"][0]["env"]
        if "value" in each
    }
    settings = load(environ={**variables, "SEB_CONFIG": str(path)})
    assert sorted(read_sources(settings.source)) == sources
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
    """With a Secret that holds its URL there is no volume, and an upgrade ends a pod at a time."""
    objects = render("console-postgresql")
    assert of_kind(objects, "PersistentVolumeClaim") == []
    assert of_kind(objects, "Deployment") == []
    spec = one(objects, "StatefulSet")["spec"]
    assert spec["replicas"] == 2
    assert spec["serviceName"] == one(objects, "Service")["metadata"]["name"]
    references = {
        each["name"]: each["valueFrom"]["secretKeyRef"]["name"]
        for each in _pod("console-postgresql")["containers"][0]["env"]
        if "secretKeyRef" in each.get("valueFrom", {})
    }
    assert references == {
        "SEB_CONSOLE_DATABASE": "console-database",
        "SEB_CONSOLE_LOG__LEVEL": "console-enroll",
    }


def test_each_replica_has_a_client_id_that_stays(tmp_path: Path) -> None:
    """A pod that is replaced has the name of the one before it, and so its session at the broker;
    one id for several consoles is refused.
    """
    environment = {
        each["name"]: each for each in _pod("console-postgresql")["containers"][0]["env"]
    }
    assert environment["POD_NAME"]["valueFrom"]["fieldRef"] == {"fieldPath": "metadata.name"}
    client_id = environment["SEB_CONSOLE_SOURCE__BROKER__CLIENT_ID"]
    assert client_id["value"] == "$(POD_NAME)-broker"
    assert list(environment).index("POD_NAME") < list(environment).index(client_id["name"])
    assert "SEB_CONSOLE_SOURCE__WEBHOOK__CLIENT_ID" not in environment
    shared = {"kind": "mqtt", "host": "broker.example", "client_id": "console"}
    values = {
        **BASE,
        "replicas": 2,
        "database": {"secret": "console-database"},
        "settings": {**BASE["settings"], "source": {"broker": shared}},
    }
    assert "leave it out, and each gets its own" in refused(tmp_path, {"console": values})


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
    ("changed", "expected"),
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
def test_what_cannot_work_is_refused(
    changed: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    """With the name of the value, and never with a secret."""
    error = refused(tmp_path, {"console": {**BASE, **changed}})
    assert expected in error
    assert "made-up" not in error


def test_the_example_of_the_page_renders(tmp_path: Path) -> None:
    """Whoever copies it has values that the chart takes, and objects that Kubernetes knows."""
    page = [yaml.safe_load(each.text) for each in blocks("docs/console-install.md", "yaml")]
    (values,) = (each for each in page if "console" in each)
    for manifest in accepted(tmp_path, values):
        kubernetes_validate.validate(manifest, "1.33", strict=True)


def test_the_console_comes_without_the_bridges(tmp_path: Path) -> None:
    """With `bridges.enabled: false` nothing runs on the nodes, and the console is as with them."""
    values = yaml.safe_load(Path(case_file("console")).read_text(encoding="utf-8"))
    both = accepted(tmp_path, values)
    alone = accepted(tmp_path, {**values, "bridges": {"enabled": False}})
    left_out = [each for each in both if each not in alone]
    assert {each["kind"] for each in left_out} >= {"DaemonSet"}
    assert [each for each in alone if each not in both] == []
    assert not [each for each in alone if each["kind"] == "DaemonSet"]
    assert [each for each in alone if each["kind"] == "Deployment"]


def test_neither_is_refused(tmp_path: Path) -> None:
    """A release that would install nothing says so."""
    assert "nothing would be installed" in refused(tmp_path, {"bridges": {"enabled": False}})
