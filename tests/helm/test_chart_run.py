"""A pod of the chart at work: `seb run` in its environment, asked by its probes."""

from functools import partial
from pathlib import Path
from typing import Any

from support.chart.chart import bridge_container, one, pod_environment, pod_spec, render
from support.eventually import eventually
from support.imds.client import ask
from support.process.bridge import BridgeProcess

from bridge.simulator.simulator import Simulator


def asked(objects: list[dict[str, Any]]) -> set[str]:
    """The paths that the kubelet and Prometheus ask for."""
    container = bridge_container(pod_spec(objects))
    (endpoint,) = one(objects, "PodMonitor")["spec"]["podMetricsEndpoints"]
    probes = ("startupProbe", "livenessProbe", "readinessProbe")
    return {endpoint["path"], *(container[probe]["httpGet"]["path"] for probe in probes)}


def is_well(address: str, path: str) -> bool:
    """Whether a GET is answered with 200."""
    return ask(f"http://{address}", path).status == 200


def test_the_probes_find_a_running_bridge(imds_simulator: Simulator, tmp_path: Path) -> None:
    """The bridge starts with what the chart gives it, and answers all that ask with 200."""
    objects = render("monitoring")
    container = bridge_container(pod_spec(objects))
    environment = pod_environment(pod_spec(objects), tmp_path / "pod", objects)
    environment |= {"SEB_IMDS__URL": imds_simulator.url, "SEB_HTTP__LISTEN": "127.0.0.1:0"}
    with BridgeProcess(*container["args"], env=environment, home=tmp_path) as bridge:
        bridge.wait_for_log("started")
        address = bridge.wait_for_log("http_listening")["address"]
        for path in asked(objects):
            eventually(partial(is_well, address, path), what=f"200 from {path}")
        (record,) = bridge.wait_for_records(1, types="seb.bridge.started")
        assert bridge.stop() == 0
    assert record["data"]["node"]["node"] == environment["SEB_NODE__NODE"]
