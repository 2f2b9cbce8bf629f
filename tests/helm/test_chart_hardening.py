"""What the pods may do: next to nothing, whatever the values say."""

from typing import Any

import pytest
from support.chart.chart import (
    CASES,
    bridge_container,
    containers,
    of_kind,
    one,
    pod_spec,
    refused,
    render,
)

USER = 65532


@pytest.mark.parametrize("case", CASES)
def test_every_container_is_confined(case: str) -> None:
    """No container gains a privilege, writes to its image, or makes a call that seccomp forbids;
    the bridge itself runs as a user without a name and without a capability.
    """
    spec = pod_spec(render(case))
    for container in containers(spec):
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["privileged"] is False
        assert context["readOnlyRootFilesystem"] is True
        assert context["capabilities"]["drop"] == ["ALL"]
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        assert "memory" in container["resources"]["limits"]
    context = bridge_container(spec)["securityContext"]
    assert context["runAsNonRoot"] is True
    assert (context["runAsUser"], context["runAsGroup"]) == (USER, USER)
    assert "add" not in context["capabilities"]


@pytest.mark.parametrize("case", CASES)
def test_the_pod_has_no_token_and_shares_nothing(case: str) -> None:
    """No token of the API server, no variables of Services, no namespaces of the node but its
    network where that is asked for; of its directories the state alone, the one it may write.
    """
    objects = render(case)
    spec = pod_spec(objects)
    tokens = [spec, *of_kind(objects, "ServiceAccount")]
    assert {each["automountServiceAccountToken"] for each in tokens} == {False}
    assert spec["enableServiceLinks"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["hostNetwork"] is (case == "hostnetwork")
    assert not {"hostPID", "hostIPC", "shareProcessNamespace"} & spec.keys()
    assert [each["name"] for each in spec["volumes"] if "hostPath" in each] in (["state"], [])
    mounts = bridge_container(spec)["volumeMounts"]
    writable = {each["name"] for each in mounts if not each.get("readOnly")}
    assert writable <= {"state", "tmp", "audit"}
    assert all("subPath" not in each for each in mounts)


@pytest.mark.parametrize("case", CASES)
def test_an_upgrade_and_probes(case: str) -> None:
    """An upgrade ends the old pod before the new one begins; /healthz decides about restarts,
    /readyz never does, and a start may take two minutes.
    """
    objects = render(case)
    strategy = one(objects, "DaemonSet")["spec"]["updateStrategy"]
    assert strategy == {"type": "OnDelete"} or strategy["rollingUpdate"]["maxSurge"] == 0
    container = bridge_container(pod_spec(objects))
    (port,) = container["ports"]
    fields = {name: container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness")}
    fields["readiness"] = container["readinessProbe"]["httpGet"]
    assert {name: (each["path"], each["port"]) for name, each in fields.items()} == {
        "startup": ("/healthz", port["name"]),
        "liveness": ("/healthz", port["name"]),
        "readiness": ("/readyz", port["name"]),
    }
    startup = container["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] >= 120


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


def test_without_a_hostpath_the_pod_is_restricted() -> None:
    """With emptyDir nothing is left that Pod Security's level `restricted` forbids."""
    spec = pod_spec(render("emptydir"))
    assert "initContainers" not in spec
    assert {next(key for key in each if key != "name") for each in spec["volumes"]} == {
        "configMap",
        "emptyDir",
    }


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
