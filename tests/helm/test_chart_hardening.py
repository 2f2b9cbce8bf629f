"""What the pods may do: next to nothing, whatever the values say."""

from __future__ import annotations

from typing import Any

import pytest
from support.chart.chart import CASES, bridge_container, containers, one, pod_spec, refused, render

USER = 65532


@pytest.mark.parametrize("case", CASES)
def test_every_container_is_confined(case: str) -> None:
    """No container gains a privilege, writes to its image, or makes a call that seccomp forbids."""
    for container in containers(pod_spec(render(case))):
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["privileged"] is False
        assert context["readOnlyRootFilesystem"] is True
        assert context["capabilities"]["drop"] == ["ALL"]
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        assert "memory" in container["resources"]["limits"]


@pytest.mark.parametrize("case", CASES)
def test_the_bridge_is_not_root_and_has_no_capability(case: str) -> None:
    """The bridge itself runs as a user without a name and without a capability."""
    context = bridge_container(pod_spec(render(case)))["securityContext"]
    assert context["runAsNonRoot"] is True
    assert (context["runAsUser"], context["runAsGroup"]) == (USER, USER)
    assert "add" not in context["capabilities"]


@pytest.mark.parametrize("case", CASES)
def test_root_only_gives_a_directory_away(case: str) -> None:
    """Root appears where the chart makes a directory of the node the bridge's own, and nowhere
    else; it has one capability and sees no setting, no secret and nothing but that directory.
    """
    spec = pod_spec(render(case))
    roots = [each for each in containers(spec) if each["securityContext"]["runAsUser"] == 0]
    (state,) = (each for each in spec["volumes"] if each["name"] == "state")
    wanted = state.get("hostPath", {}).get("type") == "DirectoryOrCreate"
    assert [each["name"] for each in roots] == (["prepare-state"] if wanted else [])
    for container in roots:
        assert container in spec["initContainers"]
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["CHOWN"]}
        assert [each["name"] for each in container["volumeMounts"]] == ["state"]
        assert "env" not in container
        assert "envFrom" not in container


@pytest.mark.parametrize("case", CASES)
def test_the_pod_has_no_token_and_shares_nothing(case: str) -> None:
    """No token of the API server, no variables of Services, no namespaces of the node but its
    network where that is asked for.
    """
    spec = pod_spec(render(case))
    assert spec["automountServiceAccountToken"] is False
    assert spec["enableServiceLinks"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["hostNetwork"] is (case == "hostnetwork")
    for name in ("hostPID", "hostIPC", "shareProcessNamespace"):
        assert name not in spec


@pytest.mark.parametrize("case", CASES)
def test_only_the_state_is_of_the_node(case: str) -> None:
    """The one directory of the node that the pod sees is its state, and the one it may write."""
    spec = pod_spec(render(case))
    assert [each["name"] for each in spec["volumes"] if "hostPath" in each] in (["state"], [])
    mounts = bridge_container(spec)["volumeMounts"]
    writable = {each["name"] for each in mounts if not each.get("readOnly")}
    assert writable <= {"state", "tmp", "audit"}
    assert all("subPath" not in each for each in mounts)


def test_an_account_of_its_own_has_no_token() -> None:
    """The ServiceAccount that the chart makes hands out no token either."""
    assert one(render("minimal"), "ServiceAccount")["automountServiceAccountToken"] is False


def test_without_a_hostpath_the_pod_is_restricted() -> None:
    """With emptyDir nothing is left that Pod Security's level `restricted` forbids."""
    spec = pod_spec(render("emptydir"))
    assert "initContainers" not in spec
    assert {next(key for key in each if key != "name") for each in spec["volumes"]} == {
        "configMap",
        "emptyDir",
    }


@pytest.mark.parametrize("case", CASES)
def test_one_bridge_per_state_directory(case: str) -> None:
    """An upgrade ends the old pod before the new one begins."""
    strategy = one(render(case), "DaemonSet")["spec"]["updateStrategy"]
    assert strategy == {"type": "OnDelete"} or strategy["rollingUpdate"]["maxSurge"] == 0


@pytest.mark.parametrize("case", CASES)
def test_probes_ask_for_what_a_restart_can_mend(case: str) -> None:
    """/healthz decides about restarts, /readyz never does, and a start may take two minutes."""
    container = bridge_container(pod_spec(render(case)))
    paths = {
        name: container[f"{name}Probe"]["httpGet"]["path"]
        for name in ("startup", "liveness", "readiness")
    }
    assert paths == {"startup": "/healthz", "liveness": "/healthz", "readiness": "/readyz"}
    startup = container["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] >= 120
    (port,) = container["ports"]
    assert {container[f"{name}Probe"]["httpGet"]["port"] for name in paths} == {port["name"]}


def test_every_node_gets_a_bridge() -> None:
    """All taints are tolerated, and only nodes that are Linux VMs are asked for."""
    spec = pod_spec(render("minimal"))
    assert spec["tolerations"] == [{"operator": "Exists"}]
    assert spec["nodeSelector"] == {"kubernetes.io/os": "linux"}
    (term,) = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert term["matchExpressions"] == [
        {"key": "type", "operator": "NotIn", "values": ["virtual-kubelet"]}
    ]


@pytest.mark.parametrize(
    "values",
    [
        {"podSecurityContext": {"runAsUser": 0}},
        {"securityContext": {"privileged": True}},
        {"updateStrategy": {"maxSurge": 1}},
        {"updateStrategy": {"maxUnavailable": 0}},
        {"enableServiceLinks": True},
        {"state": {"hostPath": {"path": "/etc"}}},
        {"state": {"hostPath": {"path": "/var/lib/../../etc"}}},
        {"state": {"hostPath": {"path": "relative/state"}}},
    ],
    ids=str,
)
def test_hardening_is_no_value(values: dict[str, Any], tmp_path: Any) -> None:
    """What would loosen the pod cannot be given."""
    assert "don't meet the specifications of the schema" in refused(tmp_path, values)
