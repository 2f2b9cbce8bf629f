"""What the chart hands the bridge: settings that the bridge's own loader takes in."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from support.chart.chart import (
    CASES,
    NODE,
    accepted,
    bridge_container,
    of_kind,
    pod_environment,
    pod_spec,
    render,
)

from bridge.config.load import Configuration, load

SINKS = {
    "approval": {"mqtt"},
    "console": {"mqtt"},
    "console-postgresql": {"stdout"},
    "emptydir": {"stdout"},
    "eventhub": {"eventhub"},
    "eventhub-identity": {"eventhub"},
    "everything": {"audit", "eventhub", "mqtt", "ops", "pull", "stdout"},
    "hostnetwork": {"stdout"},
    "kubernetes": {"kubernetes"},
    "kubernetes-drain": {"node"},
    "minimal": {"stdout"},
    "monitoring": {"stdout"},
    "mqtt": {"mqtt"},
    "sidecar": {"mqtt"},
    "webhook": {"chat", "ops"},
}


def environment(objects: list[dict[str, Any]], tmp_path: Path) -> dict[str, str]:
    """The environment of the bridge in a pod of these manifests."""
    return pod_environment(pod_spec(objects), tmp_path / "pod", objects)


def loaded(objects: list[dict[str, Any]], tmp_path: Path) -> Configuration:
    """What the bridge makes of it."""
    return load({}, environ=environment(objects, tmp_path))


@pytest.mark.parametrize("case", CASES)
def test_the_bridge_accepts_what_is_rendered(case: str, tmp_path: Path) -> None:
    """No variable, no file and no setting of a pod is one that the bridge would refuse; records
    name node and pod, by the downward API, and the cluster, by a value.
    """
    config = loaded(render(case), tmp_path)
    assert {spec.name for spec in config.sinks} == SINKS[case]
    node = config.settings.node
    assert (node.node, node.pod) == (NODE["spec.nodeName"], NODE["metadata.name"])
    assert case != "mqtt" or node.cluster == "prod-weu"


def test_settings_reach_the_bridge_unchanged(tmp_path: Path) -> None:
    """Each kind of value arrives: number, fraction, truth, text, list, table, and rules."""
    settings = {
        "site": 'a "site" with \\ and <ü>',
        "poll_interval": 0.5,
        "heartbeat_interval": 86400,
        "identity": {"tags": ["team", "cost center"]},
        "sink": {
            "mqtt": {"host": "broker.example", "port": 8883, "commands": False, "tls": {}},
            "drain": {
                "kind": "program",
                "command": ["/bin/drain", "--because=$(POD) a&b"],
                "timeout": 1.5,
            },
            "chat": {"kind": "webhook", "template": '{"text": {{ record.id | tojson }}}\n'},
        },
        "approval": {
            "rules": [
                {"name": "one", "event_type": ["Freeze", "Reboot"], "max_duration": 10},
                {"name": "two", "after": ["drain"], "affects_this_vm": True},
            ]
        },
    }
    objects = accepted(tmp_path, {"settings": settings})
    (config,) = (each for each in of_kind(objects, "ConfigMap") if "seb.toml" in each["data"])
    assert tomllib.loads(config["data"]["seb.toml"]) == settings


def test_settings_of_a_sink_join_its_secret(tmp_path: Path) -> None:
    """A sink's settings and its secret come from two places and make one sink."""
    (spec,) = loaded(render("eventhub"), tmp_path).sinks
    assert (spec.name, spec.settings.way) == ("eventhub", "connection_string")  # type: ignore[attr-defined]
    assert spec.settings.name == "scheduled-events"  # type: ignore[attr-defined]


def test_secrets_come_from_a_directory(tmp_path: Path) -> None:
    """A mounted Secret whose keys are names of variables is the bridge's secrets directory."""
    config = loaded(render("webhook"), tmp_path)
    (chat,) = (spec for spec in config.sinks if spec.name == "chat")
    assert chat.settings.shown == "https://chat.example"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("case", "listen"),
    [
        ("minimal", "0.0.0.0:9469"),
        ("hostnetwork", "10.20.0.7:19469"),
        ("everything", "[::]:9470"),
    ],
)
def test_the_kubelet_reaches_the_server(case: str, listen: str, tmp_path: Path) -> None:
    """The server listens where probes and Prometheus ask: never on loopback, and in the node's
    network on one address of the node alone.
    """
    objects = render(case)
    assert loaded(objects, tmp_path).settings.http.listen == listen
    (port,) = bridge_container(pod_spec(objects))["ports"]
    assert listen.endswith(f":{port['containerPort']}")


def test_the_state_is_where_the_volume_is(tmp_path: Path) -> None:
    """The store lies in the mounted directory, not in the image's own."""
    objects = render("minimal")
    mounts = {each["name"]: each for each in bridge_container(pod_spec(objects))["volumeMounts"]}
    found = environment(objects, tmp_path)["SEB_STATE_DIR"]
    assert found == str(tmp_path / "pod" / mounts["state"]["mountPath"].lstrip("/"))


def test_rules_and_keys_reach_the_bridge(tmp_path: Path) -> None:
    """The owner's rules and the keys of the control plane are in force."""
    approval = loaded(render("approval"), tmp_path).settings.approval
    assert [rule.name for rule in approval.rules] == ["own-reboots", "short-pauses"]
    assert approval.trust is not None
    assert approval.trust.name == "trust.jwks"


def test_other_settings_are_another_pod(tmp_path: Path) -> None:
    """A changed setting changes the pod's template, so that an upgrade brings it to each node; a
    changed key does not, for the bridge reads that file anew.
    """

    def template(values: dict[str, Any]) -> dict[str, Any]:
        objects = accepted(tmp_path, values)
        (found,) = of_kind(objects, "DaemonSet")
        made: dict[str, Any] = found["spec"]["template"]
        return made

    assert template({"settings": {"site": "a"}}) != template({"settings": {"site": "b"}})
    keys = ({"approval": {"trust": {"jwks": text}}} for text in ("{}", '{"keys": []}'))
    assert template(next(keys)) == template(next(keys))
