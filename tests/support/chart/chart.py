"""The chart as `helm` (PATH, GOPATH or $HELM) renders it, and a pod as the kubelet sets it up."""

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

ROOT: Final = Path(__file__).resolve().parents[3]
CHART: Final = ROOT / "helm"
VALUES: Final = ROOT / "tests" / "helm" / "values"
CASES: Final = tuple(sorted(path.stem for path in VALUES.glob("*.yaml")))
"""The names of the values files that every property is checked with."""

PATIENCE: Final = 60.0
NODE: Final = {
    "spec.nodeName": "aks-workers-12345678-vmss000002",
    "metadata.name": "seb-x7k2p",
    "status.podIP": "10.20.0.7",
}
"""What the downward API tells."""

_SIGNING_KEY = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
_CONNECTION = (
    "Endpoint=sb://fleet.servicebus.windows.net/;SharedAccessKeyName=send;"
    "SharedAccessKey=bWFkZS11cC1mb3ItdGVzdHM="
)
EXISTING: Final[Mapping[str, Mapping[str, str]]] = {
    "mqtt-credentials": {"password": "made-up", "tls.crt": "certificate", "tls.key": "key"},
    "corporate-ca": {"ca.crt": "certificate"},
    "eventhub": {"connection-string": _CONNECTION},
    "eventhub-directory": {"SEB_SINK__EVENTHUB__CONNECTION_STRING": _CONNECTION, "other": "x"},
    "ops-webhook": {"signing-key": _SIGNING_KEY, "headers": '{"X-Team": "made-up"}'},
    "chat": {"SEB_SINK__CHAT__URL": "https://chat.example/services/made-up"},
    "control": {"url": "https://control.example/commands", "token": "made-up"},
    "control-plane-keys": {"keys.json": '{"keys": []}'},
}
"""The Secrets and ConfigMaps that the values files expect in the namespace."""


@functools.cache
def helm_path() -> str | None:
    """Where `helm` is, if anywhere."""
    if found := os.environ.get("HELM") or shutil.which("helm"):
        return found
    places = [os.environ.get("GOBIN", ""), str(Path.home() / "go" / "bin")]
    if go := shutil.which("go"):
        result = subprocess.run([go, "env", "GOPATH"], capture_output=True, text=True, check=False)
        places += [str(Path(each) / "bin") for each in result.stdout.strip().split(os.pathsep)]
    found_there = (shutil.which("helm", path=each) for each in places if each)
    return next((path for path in found_there if path), None)


@dataclass(frozen=True, slots=True)
class Said:
    """What `helm` answered."""

    code: int
    out: str
    err: str


def helm(*arguments: str) -> Said:
    """Run `helm`; it neither sees nor needs a cluster. Where it is missing the test is skipped."""
    program = helm_path()
    if program is None:
        pytest.skip("helm is neither on PATH nor where `go install` puts it")
    # No kubeconfig of the person who runs the tests, and none of their plugins.
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    ended = subprocess.run(
        [program, *arguments],
        env={**kept, "KUBECONFIG": os.devnull},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return Said(ended.returncode, ended.stdout, ended.stderr)


def case_file(case: str) -> str:
    """The path of a values file."""
    return str(VALUES / f"{case}.yaml")


def template(*arguments: str, chart: Path = CHART) -> Said:
    """What `helm template` says of a release called seb."""
    return helm("template", "seb", str(chart), "--namespace", "platform", *arguments)


@functools.cache
def rendered(case: str) -> str:
    """The manifests of a values file, as text."""
    output = template("--values", case_file(case))
    assert output.code == 0, output.err
    return output.out


def render(case: str) -> list[dict[str, Any]]:
    """The manifests of a values file; each call makes new ones."""
    return parsed(rendered(case))


def parsed(text: str) -> list[dict[str, Any]]:
    """Manifests from their text."""
    return [each for each in yaml.safe_load_all(text) if each is not None]


def refused(tmp_path: Path, values: Any) -> str:
    """What `helm` says of values that it must not accept."""
    path = tmp_path / "refused.yaml"
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    output = template("--values", str(path))
    assert output.code != 0, output.out
    return output.err


def accepted(tmp_path: Path, values: Any) -> list[dict[str, Any]]:
    """The manifests of values that are made up in a test."""
    path = tmp_path / "accepted.yaml"
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    output = template("--values", str(path))
    assert output.code == 0, output.err
    return parsed(output.out)


def of_kind(objects: Sequence[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """The manifests of a kind."""
    return [each for each in objects if each["kind"] == kind]


def one(objects: Sequence[dict[str, Any]], kind: str) -> dict[str, Any]:
    """The only manifest of a kind."""
    (found,) = of_kind(objects, kind)
    return found


def pod_spec(objects: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The pod of the DaemonSet."""
    spec: dict[str, Any] = one(objects, "DaemonSet")["spec"]["template"]["spec"]
    return spec


def containers(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every container of a pod, those that begin first included."""
    return [*spec.get("initContainers", []), *spec["containers"]]


def bridge_container(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The container that is the bridge, wherever in the pod it stands."""
    (found,) = (each for each in containers(spec) if each["name"] == "seb")
    return found


def pod_environment(
    spec: Mapping[str, Any], root: Path, objects: Sequence[dict[str, Any]] = ()
) -> dict[str, str]:
    """The environment of the bridge's container, its volumes made below `root`.

    ConfigMaps come from `objects`, or like Secrets from `EXISTING`; a name or a key that is not
    there is a KeyError, as it would keep the kubelet from starting the pod. Paths in the
    environment and in the bridge's TOML file are those below `root`.
    """
    maps = {each["metadata"]["name"]: each["data"] for each in of_kind(objects, "ConfigMap")}
    container = bridge_container(spec)
    volumes = {each["name"]: each for each in spec["volumes"]}
    moved = {}
    for mount in container["volumeMounts"]:
        place = root / mount["mountPath"].lstrip("/")
        moved[mount["mountPath"]] = str(place)
        place.mkdir(parents=True)
        for name, text in _content(volumes[mount["name"]], maps).items():
            (place / name).write_text(text, encoding="utf-8")
    for path in root.rglob("*.toml"):
        path.write_text(_moved(path.read_text(encoding="utf-8"), moved), encoding="utf-8")
    environment: dict[str, str] = {}
    for each in container["env"]:
        text = _value(each)
        for name, value in environment.items():  # Kubernetes: only variables that stand before it
            text = text.replace(f"$({name})", value)
        environment[each["name"]] = _moved(text, moved)
    return environment


def _content(volume: Mapping[str, Any], maps: Mapping[str, Mapping[str, str]]) -> Mapping[str, str]:
    if "configMap" in volume:
        name = volume["configMap"]["name"]
        return maps[name] if name in maps else EXISTING[name]
    return EXISTING[volume["secret"]["secretName"]] if "secret" in volume else {}


def _value(variable: Mapping[str, Any]) -> str:
    if "value" in variable:
        return str(variable["value"])
    source = variable["valueFrom"]
    if "fieldRef" in source:
        return NODE[source["fieldRef"]["fieldPath"]]
    reference = source["secretKeyRef"]
    return EXISTING[reference["name"]][reference["key"]]


def _moved(text: str, moved: Mapping[str, str]) -> str:
    """The text with every path in the pod replaced, in one pass: what is put in holds /tmp too."""
    paths = "|".join(map(re.escape, sorted(moved, key=len, reverse=True)))
    return re.sub(paths, lambda found: moved[found[0]], text)
