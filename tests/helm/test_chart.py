"""The chart as a whole: it lints, it renders, and Kubernetes knows every field of it."""

import kubernetes_validate
import pytest
import yaml
from support.chart.chart import CASES, CHART, case_file, helm, one, render

from bridge.version import __version__

CRDS = ("PodMonitor", "PrometheusRule")
BEYOND = {"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}
BEYOND |= {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
"""What the kubernetes sink needs outside the release's namespace."""
KUBERNETES = ("1.29", "1.33", "1.36")
"""Native sidecars came with 1.29; the others are what AKS offers."""


def test_there_are_cases() -> None:
    """The values files are found."""
    assert len(CASES) >= 8


@pytest.mark.parametrize("case", CASES)
def test_it_lints_and_kubernetes_knows_every_field(case: str) -> None:
    """`helm lint --strict` has nothing to say, and no version finds a field that it does not know;
    only the kubernetes sink asks for rights or reaches beyond the release's namespace, and no two
    objects share a name.
    """
    said = helm("lint", "--strict", str(CHART), "--values", case_file(case))
    assert said.code == 0, said.out + said.err
    assert "[WARNING]" not in said.out
    objects = render(case)
    for manifest in objects:
        if manifest["kind"] in CRDS:
            continue
        # A policy of admission is v1 from 1.30 on.
        since = 1 if manifest["kind"].startswith("ValidatingAdmissionPolicy") else 0
        for version in KUBERNETES[since:]:
            kubernetes_validate.validate(manifest, version, strict=True)
    allowed = {"DaemonSet", "ConfigMap", "ServiceAccount", "NetworkPolicy", *CRDS}
    if case.startswith("console"):
        allowed |= {"Deployment", "StatefulSet", "Service", "Ingress", "PersistentVolumeClaim"}
    if case.startswith("kubernetes"):
        allowed |= BEYOND
    assert {each["kind"] for each in objects} <= allowed
    inside = [each["metadata"] for each in objects if each["kind"] not in BEYOND]
    assert {each["namespace"] for each in inside} == {"platform"}
    names = [(each["kind"], each["metadata"]["name"]) for each in objects]
    assert sorted(set(names)) == sorted(names)
    assert max(len(name) for _, name in names) <= 63  # a pod's label can hold it
    # A Service seb would put its own SEB_ variables into everybody's pods.
    assert not [name for kind, name in names if kind == "Service" and name.startswith("seb")]


def test_a_default_install_is_small() -> None:
    """No console, no monitoring that needs an operator's CRDs, no policy that could cut a sink."""
    kinds = sorted(each["kind"] for each in render("minimal"))
    assert kinds == ["ConfigMap", "DaemonSet", "ServiceAccount"]


def test_an_invalid_manifest_would_be_found() -> None:
    """The validation that the tests rely on does refuse a field that Kubernetes does not know."""
    manifest = one(render("minimal"), "DaemonSet")
    manifest["spec"]["template"]["spec"]["enableServiceLink"] = False
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(manifest, KUBERNETES[0], strict=True)


def test_versions_agree() -> None:
    """The image that is pulled unless another is named is the version in this repository."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["appVersion"] == __version__
    (container,) = one(render("minimal"), "DaemonSet")["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"scheduled-events-bridge:{__version__}"
