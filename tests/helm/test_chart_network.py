"""The NetworkPolicy: IMDS, DNS and the ports of the sinks go out, a scrape comes in."""

from pathlib import Path
from typing import Any

import pytest
from support.chart.chart import accepted, one, pod_spec, refused, render

IMDS = {
    "to": [{"ipBlock": {"cidr": "169.254.169.254/32"}}],
    "ports": [{"protocol": "TCP", "port": 80}],
}
DNS = {"ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]}


def policy(objects: list[dict[str, Any]]) -> dict[str, Any]:
    """What the policy says."""
    spec: dict[str, Any] = one(objects, "NetworkPolicy")["spec"]
    return spec


def sink_ports(objects: list[dict[str, Any]]) -> set[int]:
    """The ports that are open for sinks."""
    imds, dns, *rest = policy(objects)["egress"]
    assert (imds, dns) == (IMDS, DNS)
    return {each["port"] for rule in rest for each in rule["ports"]}


@pytest.mark.parametrize(
    ("case", "ports"),
    [
        ("mqtt", {8883}),
        ("eventhub", {5671}),
        ("eventhub-identity", {443, 5671}),
        ("webhook", {443, 8443}),
        ("everything", {80, 443, 5671, 8080, 8883}),
        ("kubernetes-drain", {443, 6443}),
    ],
)
def test_sinks_have_their_ports(case: str, ports: set[int]) -> None:
    """The ports follow from the settings of the sinks; nobody lists them twice."""
    assert sink_ports(render(case)) == ports


@pytest.mark.parametrize(
    ("settings", "ports"),
    [
        ({}, set()),
        ({"sink": {"mqtt": {"host": "a"}}}, {1883}),
        ({"sink": {"mqtt": {"host": "a", "tls": {}}}}, {8883}),
        ({"sink": {"mqtt": {"host": "a", "port": 18830}}}, {18830}),
        ({"sink": {"one": {"kind": "mqtt", "host": "a", "tls": {"ca": "/ca"}}}}, {8883}),
        ({"sink": {"webhook": {"url": "http://a/b"}}}, {80}),
        ({"sink": {"webhook": {"url": "https://a/b"}}}, {443}),
        ({"sink": {"webhook": {"url": "https://[fd00::1]:8443/b"}}}, {8443}),
        ({"sink": {"webhook": {"url": "https://[fd00::1]/b"}}}, {443}),
        ({"sink": {"one": {"kind": "webhook"}}}, {443}),
        ({"commands": {"pull_url": "https://a:8444/c", "pull_token_file": "/etc/t"}}, {8444}),
    ],
    ids=str,
)
def test_ports_follow_from_addresses(
    settings: dict[str, Any], ports: set[int], tmp_path: Path
) -> None:
    """A port that is given counts, and else the protocol's own; for commands, too."""
    values = {"networkPolicy": {"enabled": True}, "settings": settings}
    assert sink_ports(accepted(tmp_path, values)) == ports


def test_only_a_named_namespace_comes_in() -> None:
    """The policy binds what the DaemonSet makes; pods of the namespaces that are named reach the
    one port, and without a name the rule is there and lets nobody in.
    """
    spec = policy(render("eventhub"))
    assert (spec["policyTypes"], spec["ingress"]) == (["Ingress", "Egress"], [])
    objects = render("mqtt")
    labels = one(objects, "DaemonSet")["spec"]["template"]["metadata"]["labels"]
    assert policy(objects)["podSelector"]["matchLabels"].items() <= labels.items()
    (rule,) = policy(objects)["ingress"]
    assert rule["ports"] == [{"protocol": "TCP", "port": "http"}]
    (source,) = rule["from"]
    (match,) = source["namespaceSelector"]["matchExpressions"]
    assert (match["key"], match["values"]) == ("kubernetes.io/metadata.name", ["monitoring"])


def test_sinks_can_be_held_to_networks() -> None:
    """Where networks are named, the sinks' ports are open to those alone."""
    (rule,) = (each for each in policy(render("webhook"))["egress"] if each not in (IMDS, DNS))
    assert rule["to"] == [{"ipBlock": {"cidr": "10.20.0.0/16"}}]


def test_it_is_refused_where_it_would_only_look_so(tmp_path: Path) -> None:
    """Kubernetes binds no pod in the node's network, so the two together are an error."""
    error = refused(tmp_path, {"hostNetwork": True, "networkPolicy": {"enabled": True}})
    assert "binds no pod that has hostNetwork" in error


def test_the_nodes_network_has_a_dns_of_the_cluster() -> None:
    """In the node's network names of Services resolve only with the policy that says so."""
    assert pod_spec(render("hostnetwork"))["dnsPolicy"] == "ClusterFirstWithHostNet"
    assert pod_spec(render("minimal"))["dnsPolicy"] == "ClusterFirst"
