"""The chart as a whole: it lints, it renders, and Kubernetes knows every field of it."""

from __future__ import annotations

import kubernetes_validate
import pytest
import yaml
from support.chart.chart import CASES, CHART, case_file, helm, of_kind, one, render

from bridge.version import __version__

CRDS = ("PodMonitor", "PrometheusRule")
KUBERNETES = ("1.29", "1.33", "1.36")
"""Native sidecars came with 1.29; the others are what AKS offers."""


def test_there_are_cases() -> None:
    """The values files are found."""
    assert len(CASES) >= 8


@pytest.mark.parametrize("case", CASES)
def test_lints(case: str) -> None:
    """`helm lint --strict` has nothing to say."""
    said = helm("lint", "--strict", str(CHART), "--values", case_file(case))
    assert said.code == 0, said.out + said.err
    assert "[WARNING]" not in said.out


@pytest.mark.parametrize("case", CASES)
def test_kubernetes_knows_every_field(case: str) -> None:
    """Each manifest is valid, with no field that a version does not know."""
    for manifest in render(case):
        if manifest["kind"] in CRDS:
            continue
        for version in KUBERNETES:
            kubernetes_validate.validate(manifest, version, strict=True)


def test_an_invalid_manifest_would_be_found() -> None:
    """The validation that the tests rely on does refuse a field that Kubernetes does not know."""
    manifest = one(render("minimal"), "DaemonSet")
    manifest["spec"]["template"]["spec"]["enableServiceLink"] = False
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(manifest, KUBERNETES[0], strict=True)


@pytest.mark.parametrize("case", CASES)
def test_no_rights_are_asked_for(case: str) -> None:
    """There is no RBAC, no Secret, and nothing that reaches beyond the release's namespace."""
    objects = render(case)
    allowed = {"DaemonSet", "ConfigMap", "ServiceAccount", "NetworkPolicy", *CRDS}
    if case.startswith("console"):
        allowed |= {"Deployment", "Service", "Ingress", "PersistentVolumeClaim"}
    assert {each["kind"] for each in objects} <= allowed
    assert {each["metadata"]["namespace"] for each in objects} == {"platform"}


@pytest.mark.parametrize("case", CASES)
def test_names_are_unique_and_short(case: str) -> None:
    """Two objects of one kind never share a name, and a pod's label can hold each name."""
    names = [(each["kind"], each["metadata"]["name"]) for each in render(case)]
    assert sorted(set(names)) == sorted(names)
    assert max(len(name) for _, name in names) <= 63


def test_versions_agree() -> None:
    """The image that is pulled unless another is named is the version in this repository."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["appVersion"] == __version__
    (container,) = one(render("minimal"), "DaemonSet")["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"scheduled-events-bridge:{__version__}"


def test_no_service_is_called_seb() -> None:
    """Such a Service would put its own SEB_ variables into everybody's pods."""
    names = [
        each["metadata"]["name"] for case in CASES for each in of_kind(render(case), "Service")
    ]
    assert [name for name in names if name.startswith("seb")] == []
    assert [of_kind(render("minimal"), kind) for kind in ("Service", "Deployment")] == [[], []]
