"""The kubernetes sink in the chart: off unless asked for, and then with no right that it does not
need. tests/ground/test_kubernetes_sink.py tries the policy at a real API server.
"""

from pathlib import Path
from typing import Any

import pytest
from support.chart.chart import (
    CASES,
    accepted,
    bridge_container,
    of_kind,
    one,
    pod_environment,
    pod_spec,
    refused,
    render,
)

from bridge.config.load import load
from sinks.kinds.kubernetes.marks import ANNOTATION, CONDITION, TAINT, Marks, dump_marks
from sinks.kinds.kubernetes.settings import KubernetesSettings

ON = {"kubernetes": {"enabled": True}}
WITH_IT = ("kubernetes", "kubernetes-drain")
RIGHTS = ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
POLICIES = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")


def rights(objects: list[dict[str, Any]]) -> set[tuple[str, str]]:
    """Every verb and resource that the service account gets, in any namespace."""
    rules = [rule for kind in ("ClusterRole", "Role") for rule in one(objects, kind)["rules"]]
    assert all(rule["apiGroups"] == [""] for rule in rules)
    return {(verb, what) for rule in rules for verb in rule["verbs"] for what in rule["resources"]}


def validations(objects: list[dict[str, Any]]) -> str:
    """What the policy validates, as one text."""
    return str(one(objects, "ValidatingAdmissionPolicy")["spec"]["validations"])


@pytest.mark.parametrize("case", sorted(set(CASES) - set(WITH_IT)))
def test_it_is_off_unless_asked_for(case: str) -> None:
    """No token, no role and no policy."""
    objects = render(case)
    assert not [each for kind in (*RIGHTS, *POLICIES) for each in of_kind(objects, kind)]
    assert not [each for each in pod_spec(objects)["volumes"] if "projected" in each]


@pytest.mark.parametrize("case", WITH_IT)
def test_the_token_is_in_the_bridge_s_container_alone(case: str) -> None:
    """The container that runs as root for the state directory has none."""
    spec = pod_spec(render(case))
    assert spec["automountServiceAccountToken"] is False
    (volume,) = (each for each in spec["volumes"] if "projected" in each)
    (mount,) = (m for m in bridge_container(spec)["volumeMounts"] if m["name"] == volume["name"])
    assert mount["readOnly"] is True
    assert mount["mountPath"] == "/var/run/secrets/kubernetes.io/serviceaccount"
    for other in spec["initContainers"]:
        assert volume["name"] not in [each["name"] for each in other["volumeMounts"]]


@pytest.mark.parametrize(
    ("settings", "more"),
    [
        ({}, set()),
        ({"taint": True, "cordon": True}, set()),
        ({"drain": True}, {("list", "pods"), ("create", "pods/eviction")}),
        (
            {"drain": True, "force": True},
            {("list", "pods"), ("create", "pods/eviction"), ("delete", "pods")},
        ),
    ],
    ids=["shown", "taint and cordon", "drain", "force"],
)
def test_the_role_follows_from_the_settings(
    settings: dict[str, Any], more: set[tuple[str, str]], tmp_path: Path
) -> None:
    """Who does not drain has no right over pods; events are written in one namespace."""
    objects = accepted(tmp_path, {**ON, "settings": {"sink": {"kubernetes": settings}}})
    nodes = {("get", "nodes"), ("patch", "nodes"), ("patch", "nodes/status")}
    assert rights(objects) == nodes | {("create", "events")} | more
    assert one(objects, "Role")["metadata"]["namespace"] == "default"
    account = {"kind": "ServiceAccount", "name": pod_spec(objects)["serviceAccountName"]}
    for binding in (*of_kind(objects, "ClusterRoleBinding"), *of_kind(objects, "RoleBinding")):
        assert binding["subjects"] == [{**account, "namespace": "platform"}]


def test_the_policy_is_about_this_service_account(tmp_path: Path) -> None:
    """An error in it stops nobody else, and stops the bridge."""
    objects = accepted(tmp_path, {**ON, "serviceAccount": {"name": "own"}})
    spec = one(objects, "ValidatingAdmissionPolicy")["spec"]
    (condition,) = spec["matchConditions"]
    assert condition["expression"].endswith('== "system:serviceaccount:platform:own"')
    assert spec["failurePolicy"] == "Fail"
    binding = one(objects, "ValidatingAdmissionPolicyBinding")["spec"]
    name = one(objects, "ValidatingAdmissionPolicy")["metadata"]["name"]
    assert binding == {"policyName": name, "validationActions": ["Deny"]}


def test_the_policy_knows_the_sink_s_own_marks() -> None:
    """Annotation, taint and condition are those that the sink writes."""
    objects = render("kubernetes-drain")
    spec = one(objects, "ValidatingAdmissionPolicy")["spec"]
    (ours,) = (each["expression"] for each in spec["variables"] if each["name"] == "isOurs")
    written = dump_marks(Marks(is_cordoned=True))
    assert written is not None
    assert ours.partition("contains('")[2].removesuffix("')") in written
    assert f'"{ANNOTATION}"' in ours
    assert all(f'"{each}"' in validations(objects) for each in (ANNOTATION, TAINT, CONDITION))


def test_the_policy_follows_from_the_settings(tmp_path: Path) -> None:
    """Who asks for no taint and no cordon has a token that cannot make one."""
    shown = validations(accepted(tmp_path, ON))
    assert "the settings of the chart ask for no taint" in shown
    assert "the settings of the chart ask for no cordon" in shown
    acting = validations(render("kubernetes-drain"))
    assert "the settings of the chart ask for" not in acting


def test_the_policy_can_be_left_out(tmp_path: Path) -> None:
    """For Kubernetes before 1.30."""
    values = {"kubernetes": {"enabled": True, "policy": {"enabled": False}}}
    objects = accepted(tmp_path, values)
    assert not [each for kind in POLICIES for each in of_kind(objects, kind)]
    assert [len(of_kind(objects, kind)) for kind in RIGHTS] == [1, 1, 1, 1]


@pytest.mark.parametrize("case", WITH_IT)
def test_the_bridge_has_the_sink(case: str, tmp_path: Path) -> None:
    """One of that kind, which takes the node's name from the chart."""
    objects = render(case)
    environment = pod_environment(pod_spec(objects), tmp_path, objects)
    (sink,) = load({}, environ=environment).sinks
    assert isinstance(sink.settings, KubernetesSettings)
    assert sink.settings.node is None
    assert environment["SEB_NODE__NODE"]
    assert sink.settings.drain is (case == "kubernetes-drain")


def test_names_of_two_releases_differ(tmp_path: Path) -> None:
    """Objects of the whole cluster carry the namespace in their names."""
    objects = accepted(tmp_path, {**ON, "fullnameOverride": "seb"})
    names = {one(objects, kind)["metadata"]["name"] for kind in (*RIGHTS, *POLICIES)}
    assert names == {"platform-seb"}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"settings": {"sink": {"kubernetes": {}}}}, "set kubernetes.enabled"),
        ({"settings": {"sink": {"a": {"kind": "kubernetes"}}}}, "set kubernetes.enabled"),
        (
            {**ON, "settings": {"sink": {"a": {"kind": "kubernetes"}, "kubernetes": {}}}},
            "a and kubernetes are all of kind kubernetes",
        ),
        (
            {**ON, "settings": {"sink": {"kubernetes": {"node": "x"}}}},
            "each pod looks after its own node",
        ),
        ({**ON, "serviceAccount": {"create": False}}, "set serviceAccount.create"),
    ],
    ids=str,
)
def test_contradictions_are_refused(values: dict[str, Any], expected: str, tmp_path: Path) -> None:
    """What would have no rights, another node, or rights for everybody is told in a sentence."""
    assert expected in refused(tmp_path, values)


def test_a_kubeconfig_of_the_owner_needs_no_rights_of_the_chart(tmp_path: Path) -> None:
    """Its rights come with it."""
    sink = {"kubeconfig": "/etc/seb/files/api/config"}
    objects = accepted(tmp_path, {"settings": {"sink": {"kubernetes": sink}}})
    assert not [each for kind in (*RIGHTS, *POLICIES) for each in of_kind(objects, kind)]
