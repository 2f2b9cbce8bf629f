"""The chart against a real Kubernetes API server: strict validation, Pod Security, and the life of
a release. There is no kubelet, so no pod runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.eventually import eventually
from support.ground.cache import ROOT
from support.ground.kube import KubernetesCluster, missing

CHART = str(ROOT / "helm")
VALUES = {each.stem: each for each in sorted((ROOT / "tests" / "helm" / "values").glob("*.yaml"))}
IMAGE = ("--set", "image.repository=registry.example/seb")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
each_values = pytest.mark.parametrize("name", VALUES)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesCluster]:
    """A cluster without pods."""
    if why := missing():
        pytest.skip(why)
    with KubernetesCluster(tmp_path_factory.mktemp("kube")) as made:
        yield made


def install(cluster: KubernetesCluster, name: str, namespace: str) -> None:
    """Install or upgrade the release with one of the values files."""
    words = ("upgrade", "--install", "seb", CHART, "-n", namespace, *IMAGE, "-f", str(VALUES[name]))
    done = cluster.helm(*words)
    assert done.returncode == 0, done.stderr


@each_values
def test_strict(cluster: KubernetesCluster, name: str) -> None:
    """The API server takes every object of the chart with strict validation of its fields."""
    namespace = cluster.namespace(f"strict-{name}")
    words = ("template", "seb", CHART, "-n", namespace, *IMAGE, "-f", str(VALUES[name]))
    rendered = cluster.helm(*words)
    assert rendered.returncode == 0, rendered.stderr
    how = ("--server-side", "--validate=strict", "--dry-run=server", "-f", "-")
    done = cluster.kubectl("apply", *how, given=rendered.stdout)
    assert (done.returncode, "Warning" in done.stderr) == (0, False), done.stderr


@each_values
def test_pod_security(cluster: KubernetesCluster, name: str) -> None:
    """Pod Security admits the pod at `baseline`, unless it needs a hostPath or hostNetwork."""
    namespace = cluster.namespace(f"install-{name}")
    install(cluster, name, namespace)
    template = cluster.get("daemonset", "-n", namespace)["items"][0]["spec"]["template"]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**template["metadata"], "name": "x"},
        "spec": template["spec"],
    }
    allowed = {}
    for level in ("privileged", "baseline", "restricted"):
        place = cluster.namespace(f"{level}-{name}", enforce=level)
        how = ("--validate=strict", "--dry-run=server", "-n", place, "-f", "-")
        done = cluster.kubectl("create", *how, given=json.dumps(pod))
        allowed[level] = done.stderr if done.returncode else ""
    volumes = template["spec"].get("volumes", [])
    needs_host = bool(
        template["spec"].get("hostNetwork") or any("hostPath" in each for each in volumes)
    )
    assert allowed["privileged"] == ""
    assert bool(allowed["baseline"]) == needs_host, allowed["baseline"]
    assert needs_host or not allowed["restricted"], allowed["restricted"]


def test_life(cluster: KubernetesCluster) -> None:
    """A release is installed, gets one pod a node, is changed, rolled back, and removed whole."""
    namespace = cluster.namespace("life")
    install(cluster, "mqtt", namespace)

    def pods() -> int:
        return len(cluster.get("pods", "-n", namespace)["items"])

    eventually(lambda: pods() == 2, what="a pod on each node", timeout=60)
    first = cluster.get("daemonset", "-n", namespace)["items"][0]["spec"]
    install(cluster, "emptydir", namespace)
    assert cluster.get("daemonset", "-n", namespace)["items"][0]["spec"] != first
    done = cluster.helm("rollback", "seb", "1", "-n", namespace)
    assert done.returncode == 0, done.stderr
    assert cluster.get("daemonset", "-n", namespace)["items"][0]["spec"] == first
    done = cluster.helm("uninstall", "seb", "-n", namespace)
    assert done.returncode == 0, done.stderr
    kinds = "daemonset,configmap,secret,serviceaccount,networkpolicy,role,rolebinding,service"
    eventually(
        lambda: (
            [
                each["metadata"]["name"]
                for each in cluster.get(kinds, "-n", namespace)["items"]
                if each["metadata"]["name"] not in ("kube-root-ca.crt", "default")
            ]
            == []
        ),
        what="nothing left",
        timeout=60,
    )


def test_a_mistake_is_refused(cluster: KubernetesCluster, tmp_path: Path) -> None:
    """The server's validation looks: a misspelt field would not pass."""
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndate: {}\n")
    how = ("--server-side", "--validate=strict", "--dry-run=server", "-f", str(wrong))
    assert "date" in cluster.kubectl("apply", *how).stderr
