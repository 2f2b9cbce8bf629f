"""docs/aks.md: each values file in it renders, and its sidecar is what the chart makes."""

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from support.chart.chart import (
    accepted,
    bridge_container,
    pod_environment,
    pod_spec,
    render,
)
from support.ground.doc_page import blocks

from bridge.config import reference
from bridge.config.load import load

BLOCKS = [yaml.safe_load(each.text) for each in blocks("docs/aks.md", "yaml")]
VALUES = [block for block in BLOCKS if "kind" not in block]
# Where a bridge keeps and shows things, and how its settings reach it, is not what they are.
PLACES = ("SEB_STATE_DIR", "SEB_CONFIG")


def sidecar() -> dict[str, Any]:
    """The one manifest of the page."""
    (found,) = (block for block in BLOCKS if "kind" in block)
    return dict(found)


def settings(spec: dict[str, Any], root: Path, objects: list[dict[str, Any]]) -> dict[str, str]:
    """What is in force in a pod, but for its places."""
    config = load({}, environ=pod_environment(spec, root, objects))
    found = dict(reference.effective(config))
    return {name: value for name, value in found.items() if name not in PLACES}


def test_the_page_has_examples() -> None:
    """The blocks are found."""
    assert len(VALUES) >= 6


@pytest.mark.parametrize("values", VALUES, ids="-".join)
def test_examples_of_values_render(values: dict[str, Any], tmp_path: Path) -> None:
    """Whoever copies an example has values that the chart takes."""
    for manifest in accepted(tmp_path, values):
        if manifest["kind"] not in ("PodMonitor", "PrometheusRule"):
            kubernetes_validate.validate(manifest, "1.33", strict=True)


@pytest.mark.parametrize("version", ["1.29", "1.33", "1.36"])
def test_the_sidecar_is_valid(version: str) -> None:
    """Kubernetes knows every field of it, from the version on that the page names."""
    kubernetes_validate.validate(sidecar(), version, strict=True)


def test_the_sidecar_is_the_chart_s_container(tmp_path: Path) -> None:
    """It may no more than the chart's container may, and its settings are the same."""
    rendered = render("sidecar")
    spec = sidecar()["spec"]["template"]["spec"]
    documented, made = bridge_container(spec), bridge_container(pod_spec(rendered))
    for part in ("args", "resources", "securityContext", "terminationMessagePolicy"):
        assert documented[part] == made[part]
    assert settings(spec, tmp_path / "page", []) == settings(
        pod_spec(rendered), tmp_path / "chart", rendered
    )


def test_the_sidecar_holds_up_nobody() -> None:
    """It runs beside the pod's containers; IMDS being away takes none of them out of service."""
    spec = sidecar()["spec"]["template"]["spec"]
    container = bridge_container(spec)
    assert container in spec["initContainers"]
    assert container["restartPolicy"] == "Always"
    probes = [name for name in container if name.endswith("Probe")]
    assert probes == ["livenessProbe"]
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert spec["enableServiceLinks"] is False
